"""The command line: `python -m generate` renews all generated files, `--check` names those that are not current."""

from __future__ import annotations

import argparse
import sys

from generate.artifacts import ALL


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 1 where something is stale."""
    parser = argparse.ArgumentParser(prog="generate", description="Makes the generated files of this repository.")
    parser.add_argument("--check", action="store_true", help="write nothing, name what is not current")
    parser.add_argument("--without-helm", action="store_true", help="leave out what helm renders")
    arguments = parser.parse_args(argv)
    stale = False
    for artifact in ALL:
        if (artifact.needs_helm and arguments.without_helm) or artifact.is_current():
            continue
        stale = True
        if arguments.check:
            sys.stderr.write(f"{artifact.path} is not current: run `make generated`\n")
        else:
            artifact.write()
            sys.stdout.write(f"{artifact.path}\n")
    return 1 if stale and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
