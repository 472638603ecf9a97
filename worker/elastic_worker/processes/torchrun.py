"""Reads a torchrun command line: the program, the processes per pod, and the flags that an Elastic job ignores.

Ignored flags are returned with the reason (see flags.py), for the log and for the job. A flag with the same value as
the pod's own variable is followed, such as `--rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT` in a launch script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .. import contract, flags
from ..flags import UsageError as UsageError
from .program import COMMAND, MODULE, SCRIPT, Program

NUMBERS_BY_DEVICE = ("gpu", "cpu", "xpu", "auto")
_ALSO_IN = {
    "--nnodes": contract.ENV_WORLD_SIZE,
    "--node-rank": contract.ENV_POD_RANK,
    "--master-addr": contract.ENV_MASTER_ADDR,
    "--master-port": contract.ENV_MASTER_PORT,
}
"""Variables that hold an option's value, beside torchrun's own, as PET_NNODES."""
MOST_OF_A_FLAG = 100
"""Characters of a flag that the job shows."""


class Torchrun(NamedTuple):
    """A command line of torchrun.

    `nproc` is the number of processes per pod, or the kind of device to count (gpu, cpu, xpu, auto), or None without
    such a flag. `ignored` are pairs of a flag, as it was written, and the reason.
    """

    program: Program
    nproc: int | str | None
    ignored: tuple[tuple[str, str], ...]

    @property
    def unfollowed(self) -> tuple[str, ...]:
        """The ignored flags that say which pods take part, or where they meet."""
        return tuple(flag[:MOST_OF_A_FLAG] for flag, why in self.ignored if why in (flags.MEMBERS, flags.MEETING))


def parse(argv: Sequence[str], *, own: Mapping[str, str] | None = None) -> Torchrun:
    """Parse the words after `torchrun`. `own` are the pod's variables, as the operator has set them.

    Raises UsageError.
    """
    options, words = flags.read(argv)
    given = {option.name: option for option in options if not _is_followed(option, own or {})}
    names = {option.name for option in options}
    if {"--module", "--no-python"} <= names:
        raise UsageError("--module and --no-python exclude each other: a module is run by python")
    numbers = [option.value for option in options if option.name == "--nproc-per-node"]
    return Torchrun(
        program=Program(_kind(names), words[0], words[1:]),
        nproc=_number(numbers[-1]) if numbers else None,
        ignored=tuple((" ".join(given[name].words), why) for name in sorted(given) if (why := _why_ignored(name))),
    )


def _kind(names: set[str]) -> str:
    if "--run-path" in names:
        return SCRIPT
    if "--no-python" in names:
        return COMMAND
    return MODULE if "--module" in names else SCRIPT


def _why_ignored(name: str) -> str:
    return flags.WITH_VALUE.get(name) or flags.WITHOUT_VALUE.get(name, "")


def _is_followed(option: flags.Option, own: Mapping[str, str]) -> bool:
    """Whether the job follows the flag nevertheless."""
    if (option.name, option.value) == ("--rdzv-backend", "c10d"):
        return True
    variables = f"PET_{option.name[2:].replace('-', '_').upper()}", _ALSO_IN.get(option.name, "")
    return option.value != "" and option.value in map(own.get, variables)


def _number(value: str) -> int | str:
    if value in NUMBERS_BY_DEVICE:
        return value
    if not value.isdigit() or int(value) < 1:
        raise UsageError(
            f"--nproc-per-node={value}: write a number from 1 on, or one of {', '.join(NUMBERS_BY_DEVICE)}"
        )
    return int(value)
