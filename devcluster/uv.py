"""Finds uv: the machine's, else a pinned one in a virtual environment in the cache.

It uses the standard library only: `python3 -m devcluster.uv` is the first command on a new machine.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from devcluster import cache, packages, shell
from devcluster.errors import DevclusterError
from devcluster.progress import Progress

VERSION = "0.13.9"
OLDEST_PYTHON = (3, 11)


def ensure(progress: Progress) -> str:
    """The path of uv, installed if it is missing. Raises DevclusterError if that fails."""
    return shutil.which("uv") or str(cache.entry("uv", lambda folder: _install(folder, progress)) / "bin" / "uv")


def _install(folder: Path, progress: Progress) -> None:
    if sys.version_info < OLDEST_PYTHON:
        wanted, found = (".".join(map(str, version)) for version in (OLDEST_PYTHON, sys.version_info[:3]))
        raise DevclusterError(f"Python {wanted} or newer is needed as `python3`, and {sys.executable} is {found}")
    if importlib.util.find_spec("ensurepip") is None:
        packages.install(progress, ["python3-venv"])
    with progress.step(f"installing uv {VERSION} into {cache.root() / 'uv'}"):
        shell.run(sys.executable, "-m", "venv", folder)
        shell.run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"uv=={VERSION}")


def main() -> None:
    """Install uv."""
    try:
        ensure(Progress())
    except DevclusterError as error:
        sys.exit(f"uv: {error}")


if __name__ == "__main__":
    main()
