"""Reads a torchrun command line: the program, the processes per pod, and the flags that an Elastic job ignores.

Ignored flags are returned with the reason (see flags.py), for the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .. import flags
from ..flags import UsageError as UsageError
from .program import COMMAND, MODULE, SCRIPT, Program

NUMBERS_BY_DEVICE = ("gpu", "cpu", "xpu", "auto")


class Torchrun(NamedTuple):
    """A command line of torchrun.

    `nproc` is the number of processes per pod, or the kind of device to count (gpu, cpu, xpu, auto), or None without
    such a flag. `ignored` are pairs of a flag, as it was written, and the reason.
    """

    program: Program
    nproc: int | str | None
    ignored: tuple[tuple[str, str], ...]


def parse(argv: Sequence[str]) -> Torchrun:
    """Parse the words after `torchrun`. Raises UsageError."""
    options, words = flags.read(argv)
    given = {option.name: option for option in options}
    names = set(given)
    if {"--module", "--no-python"} <= names:
        raise UsageError("--module and --no-python exclude each other: a module is run by python")
    numbers = [option.value for option in options if option.name == "--nproc-per-node"]
    return Torchrun(
        program=Program(_kind(names), words[0], words[1:]),
        nproc=_number(numbers[-1]) if numbers else None,
        ignored=tuple((" ".join(given[name].words), why) for name in sorted(names) if (why := _why_ignored(name))),
    )


def _kind(names: set[str]) -> str:
    if "--run-path" in names:
        return SCRIPT
    if "--no-python" in names:
        return COMMAND
    return MODULE if "--module" in names else SCRIPT


def _why_ignored(name: str) -> str:
    return flags.WITH_VALUE.get(name) or flags.WITHOUT_VALUE.get(name, "")


def _number(value: str) -> int | str:
    if value in NUMBERS_BY_DEVICE:
        return value
    if not value.isdigit() or int(value) < 1:
        raise UsageError(
            f"--nproc-per-node={value}: write a number from 1 on, or one of {', '.join(NUMBERS_BY_DEVICE)}"
        )
    return int(value)
