"""Copies this package to where the training container finds it: `python -m elastic_worker.inject FOLDER`.

An init container runs it, as an unprivileged user, from an image that has the package. After that `python FOLDER
ARGUMENTS` is the launcher, with the training image's own python. A run that was interrupted is repeated by the next.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
MAIN = """\
import runpy

runpy.run_module("elastic_worker", run_name="__main__", alter_sys=True)
"""


def inject(folder: Path) -> None:
    """Put the package and its `__main__.py` into the existing `folder`. Each appears whole or not at all.

    Raises:
        OSError: the folder cannot be written to, or is full.
    """
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as work:
        copy = Path(work) / PACKAGE.name
        # Byte code is left out, since another version of Python may run there.
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        main = Path(work) / "__main__.py"
        main.write_text(MAIN)
        for path in (main, copy, *copy.rglob("*")):
            path.chmod(_mode(path))
        target = folder / PACKAGE.name
        if target.exists():
            target.rename(Path(work) / "before")
        copy.rename(target)
        main.replace(folder / main.name)


def _mode(path: Path) -> int:
    """A mode that lets everybody read, since the training container's user is the image's or the pod's."""
    return 0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644


if __name__ == "__main__":
    inject(Path(sys.argv[1]))
