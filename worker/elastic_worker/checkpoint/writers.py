"""Which files some processes have open for writing, as the kernel tells in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
_DELETED = " (deleted)"
_SESSION_FIELD = 3
"""Of /proc/PID/stat, counted from the state on."""


def open_for_writing(leaders: Iterable[int]) -> Iterator[Path]:
    """The files that processes of these sessions have open for writing, as full paths without symlinks."""
    for pid in sessions(leaders):
        yield from _of_process(PROC / str(pid))


def sessions(leaders: Iterable[int]) -> set[int]:
    """All processes of the sessions with these leaders, the leaders included."""
    wanted = set(leaders)
    return wanted and {
        pid for pid, fields in _stats().items() if pid in wanted or int(fields[_SESSION_FIELD]) in wanted
    }


def all_stopped(leaders: Iterable[int]) -> bool:
    """Whether none of these processes runs: each is stopped, dead or gone."""
    return all(_state(pid) in ("T", "t", "Z", "X", "") for pid in leaders)


def _state(pid: int) -> str:
    with suppress(OSError):
        return _fields(PROC / str(pid))[0]
    return ""


def _stats() -> dict[int, list[str]]:
    stats = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                stats[int(folder.name)] = _fields(folder)
    return stats


def _fields(folder: Path) -> list[str]:
    # The name in brackets may itself have spaces and brackets.
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _of_process(folder: Path) -> Iterator[Path]:
    with suppress(OSError):  # ended meanwhile, or another user's
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
