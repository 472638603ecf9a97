"""Keeps the last lines that a process printed before it failed, and passes them on.

A user's program wrote them, so a terminal's control sequences are removed. Operator and launcher both use this module:
the launcher writes the lines behind its termination message, which is readable with a right to read the pod (163).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MOST_LINES = 20
MOST_BYTES = 2048
"""Limit for all lines together, with their line ends, in UTF-8."""
MOST_CHARACTERS = 500
"""Limit for one line. The beginning is kept, because it says what the line is about."""
CUT = " [...]"
MARK = "| "
"""Prefix of each line in a termination message."""
_TERMINAL = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?")
_HEAD = re.compile(
    r"^Last lines of rank (-?\d{1,9}) of ([a-z0-9][a-z0-9.-]{0,252}) \(exit code (-?\d{1,9})\):$", re.MULTILINE
)


@dataclass(frozen=True)
class LastLines:
    """The last output of a process. `exit_code` is minus the signal's number for a signal."""

    pod: str
    rank: int
    exit_code: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        head = f"Last lines of rank {self.rank} of {self.pod} (exit code {self.exit_code}):"
        return "\n".join([head, *(MARK + line for line in self.lines)])


def shown(lines: Iterable[str]) -> tuple[str, ...]:
    """The last of these lines as text for display: at most MOST_LINES lines and MOST_BYTES bytes."""
    kept: list[str] = []
    size = 0
    for line in reversed([_plain(line) for line in lines]):
        size += len(line.encode(errors="replace")) + 1
        if len(kept) == MOST_LINES or size > MOST_BYTES:
            break
        if line or kept:
            kept.append(line)
    while kept and not kept[-1]:
        kept.pop()
    return tuple(reversed(kept))


def parted(message: str) -> tuple[str, LastLines | None]:
    """A termination message without the lines behind it, and these lines; None if there are none."""
    heads = list(_HEAD.finditer(message))
    if not heads:
        return message, None
    head = heads[-1]
    lines = message[head.end() :].split("\n")[1:]
    if not lines or not all(line.startswith(MARK) for line in lines):
        return message, None
    last = LastLines(head[2], int(head[1]), int(head[3]), shown(line[len(MARK) :] for line in lines))
    return message[: head.start()].rstrip("\n"), last


def _plain(line: str) -> str:
    """The line as a terminal would show it in the end: a progress bar writes over itself."""
    line = _TERMINAL.sub("", line.rstrip("\r\n").rpartition("\r")[2])
    plain = "".join(letter if letter.isprintable() else " " for letter in line[: 4 * MOST_CHARACTERS]).rstrip()
    return plain if len(plain) <= MOST_CHARACTERS else plain[: MOST_CHARACTERS - len(CUT)] + CUT
