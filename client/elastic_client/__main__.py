"""The command `kubectl elastic`, also `elastic`."""

from __future__ import annotations

import typer

app = typer.Typer(name="kubectl elastic", no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
