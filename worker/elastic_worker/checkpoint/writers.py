"""Finds the files that processes have open for writing, in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from elastic_worker.proc import PROC, sessions, stat_of

_DELETED = " (deleted)"


def open_for_writing(leaders: Iterable[int]) -> Iterator[Path]:
    """The files that processes of these sessions have open for writing, as full paths without symlinks."""
    for pids in sessions(leaders).values():
        for pid in pids:
            yield from _of_process(PROC / str(pid))


def all_stopped(leaders: Iterable[int]) -> bool:
    """Whether none of these processes runs: each is stopped or has ended."""
    return all(_state(pid) in ("T", "t", "Z", "X", "") for pid in leaders)


def _state(pid: int) -> str:
    with suppress(OSError):
        return stat_of(PROC / str(pid))[0]
    return ""


def _of_process(folder: Path) -> Iterator[Path]:
    with suppress(OSError):  # the process has ended meanwhile, or is another user's
        for number in (folder / "fd").iterdir():
            with suppress(OSError):
                target = str(number.readlink())
                is_file = target.startswith("/") and not target.endswith(_DELETED)
                if is_file and _is_writable(folder / "fdinfo" / number.name):
                    yield Path(target)


def _is_writable(info: Path) -> bool:
    for line in info.read_text().splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False
