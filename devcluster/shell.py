"""Runs a program and turns its failure into an error that shows what the program said."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from devcluster.errors import DevclusterError

ERROR_CHARACTERS = 3000


def run(
    *command: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    timeout_seconds: float | None = None,
) -> str:
    """Standard output of `command`. Raises DevclusterError with the end of its output when it fails and `check`."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        env=None if env is None else os.environ | env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout_seconds,
    )
    if check and done.returncode != 0:
        said = (done.stderr + done.stdout).strip()[-ERROR_CHARACTERS:]
        raise DevclusterError(f"`{_shown(words)}` exited with {done.returncode}:\n{said}")
    return done.stdout


def try_run(*command: str | Path) -> bool:
    """Whether `command` succeeded; its output is dropped."""
    words = [str(word) for word in command]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def _shown(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) < 200 else text[:197] + "..."
