"""The command line: `python -m release VERSION`; `make release VERSION=` is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from devcluster import command_line
from devcluster.progress import Progress
from release import assemble, source

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    version: Annotated[str, typer.Argument(help="The version that the files of the commit name.")] = "",
    registry: Annotated[str, typer.Option(help="Where the images will be, written into chart and manifests.")] = "",
    target: Annotated[Path, typer.Option(help="The release is made in a folder of its version in here.")] = Path(
        "dist"
    ),
) -> None:
    """Make the release of the last commit of this repository."""
    made = assemble.release(
        source.Wanted(version, registry), repository=source.ROOT, target=target, progress=Progress()
    )
    typer.echo(f"{made}: {', '.join(sorted(path.name for path in made.iterdir()))}")


if __name__ == "__main__":
    command_line.run(app, program="release")
