"""Finds the one statement of a batch script that trains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import basename

from elastic_client.convert import slurm_options
from elastic_client.convert.converted import ConvertError
from elastic_client.convert.launch import TORCHRUN
from elastic_client.convert.shell import Statement, Word

SRUN = "srun"
QUERIES = ("hostname", "scontrol", "nvidia-smi", "env", "echo", "printenv", "date", "true", "ip", "ls")
"""Commands that a script runs by srun for information, not to train."""
STARTS = (TORCHRUN, "accelerate", "python", "python3", "deepspeed", "fabric")
_SPACE_BEFORE = re.compile(r"([ \t]*\\\n)?[ \t]*$")
Edit = tuple[int, int, str]
"""An edit: the start and end of a part of a statement, and the text that replaces it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The statement that trains, with the words of its program and what to cut out of its text."""

    statement: Statement
    words: tuple[Word, ...]
    step: tuple[Word, ...]
    """`srun` and its options."""
    after: tuple[Word, ...]
    """Redirections and other words after the command."""

    def text(self, edits: Sequence[Edit]) -> str:
        """The statement after these edits. The space before a removed word goes, or its line if it is the first."""
        text = self.statement.text
        for start, end, new in sorted(edits, reverse=True):
            before = text[:start] if new else _SPACE_BEFORE.sub("", text[:start])
            text = before + new + text[end:]
        return text.strip().removesuffix("\\").rstrip()


def find_launch(parts: Sequence[Statement]) -> Launch:
    """The one statement that trains. Raises ConvertError if there is none, or more than one."""
    found = [launch for part in parts if part.is_command and (launch := _as_launch(part))]
    found = [launch for launch in found if launch.step] or found
    inside = [part for part in parts if part.is_command and _starts_inside(part)]
    if inside and not found:
        raise ConvertError(
            f"line {inside[0].line}: {first_line(inside[0])}: the training must start at one place: write one"
            " `srun torchrun ...` outside of loops and functions"
        )
    if not found:
        raise ConvertError("the script starts no training: write `srun torchrun ...` or `srun python ...` in it")
    if len(found) > 1:
        lines = ", ".join(str(launch.statement.line) for launch in found)
        raise ConvertError(f"lines {lines}: each starts something: write a job for each, or one script that does all")
    return found[0]


def _as_launch(part: Statement) -> Launch | None:
    """The statement as the one that trains; None if it is something else."""
    words = part.words()
    at = next((n for n, word in enumerate(words) if not _is_setting(word) and word.text not in ("exec", "time")), None)
    if at is None or part.assignment():
        return None
    end = next((n for n, word in enumerate(words) if n > at and word.is_sign), len(words))
    step: tuple[Word, ...] = ()
    if words[at].text == SRUN:
        _, used = slurm_options.read([word.value or word.text for word in words[at + 1 : end]])
        step = tuple(words[at : at + 1 + used])
    program = words[at + len(step) : end]
    if not program or (not step and basename(program[0].text) not in STARTS):
        return None
    if basename(program[0].text) in QUERIES:
        return None
    return Launch(part, tuple(program), step, tuple(words[end:]))


def _starts_inside(part: Statement) -> bool:
    return re.search(rf"(?m)(^|[;&|({{]|\bdo|\bthen)\s*({SRUN}|{TORCHRUN})\s", part.text) is not None


def torchrun_at(words: Sequence[Word]) -> int | None:
    """The number of the last word that starts torchrun; None if it is not the command itself."""
    texts = [word.value or word.text for word in words]
    if basename(texts[0]) == TORCHRUN:
        return 0
    if "-m" in texts[:3] and "torch.distributed.run" in texts:
        return texts.index("torch.distributed.run")
    return None


def _is_setting(word: Word) -> bool:
    return re.match(r"[A-Za-z_]\w*=", word.text) is not None


def first_line(part: Statement) -> str:
    """The statement's first line, for messages."""
    return part.text.strip().partition("\n")[0]
