"""The ticket of a new process: the instructions by which it becomes a training process.

The launcher writes the ticket to a file in its private folder; the process reads the file and removes it. A forked
process and a new interpreter are handled alike this way, and an environment of any size fits.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from .program import Program


@dataclass(frozen=True)
class Ticket:
    """The instructions for one start. An empty file name means that there is no such file."""

    launcher: int
    """Process id of the launcher, which becomes the parent."""
    program: Program
    environ: dict[str, str]
    directory: str
    error_file: str = ""
    steps_file: str = ""


def write(ticket: Ticket, path: Path) -> None:
    """Write the ticket with mode 0600, since the environment may hold secrets."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(asdict(ticket), file, ensure_ascii=False)


def take(path: Path) -> Ticket:
    """Read the ticket and remove it."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    path.unlink()
    fields = json.loads(text)
    kind, target, args = fields.pop("program")
    return Ticket(program=Program(kind, target, tuple(args)), **fields)
