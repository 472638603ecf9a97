"""The instructions for a new process that is to become a training process.

The launcher writes it to a file of the private folder; the process reads it and removes it. So a process forked from
the warm parent and one started anew do the same, and an environment of any size fits.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from .program import Program


@dataclass(frozen=True)
class Ticket:
    """One start. Empty file names mean: do without."""

    launcher: int
    """Process id of the launcher, the parent to be."""
    program: Program
    environ: dict[str, str]
    directory: str
    error_file: str = ""
    steps_file: str = ""


def write(ticket: Ticket, path: Path) -> None:
    """Put the ticket where only this user can read it: the environment may hold secrets."""
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
