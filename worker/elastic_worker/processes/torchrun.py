"""Reads a torchrun command line: what is to run, how many processes a pod has, and which flags have no meaning here.

The table holds the options of torchrun in torch 2.4 to 2.15. Who takes part, where they meet and what is restarted is
not the command line's to say in an Elastic job, so such flags are named for the log and otherwise ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .program import COMMAND, MODULE, SCRIPT, Program

MEMBERS = "who takes part is the job's to say (spec.elasticity), and may change while it runs"
MEETING = "the pods of a job find each other by themselves"
RESTARTS = "restarts are the job's to say (spec.recovery)"
OUTPUT = "output goes to the log of the pod, with the local rank before each line if a pod has several processes"
INNER = "processes are started and watched in another way here"

HONOURED = ""
WITH_VALUE = {
    "--nproc-per-node": HONOURED,
    "--nnodes": MEMBERS,
    "--node-rank": MEMBERS,
    "--rdzv-backend": MEETING,
    "--rdzv-endpoint": MEETING,
    "--rdzv-id": MEETING,
    "--rdzv-conf": MEETING,
    "--master-addr": MEETING,
    "--master-port": MEETING,
    "--local-addr": MEETING,
    "--max-restarts": RESTARTS,
    "--shutdown-timeout": "the time to end is the pod's termination grace period",
    "--monitor-interval": INNER,
    "--start-method": INNER,
    "--event-log-handler": INNER,
    "--signals-to-handle": INNER,
    "--numa-binding": "processes are not bound to NUMA nodes here",
    "--role": "all processes have the role `default`",
    "--log-dir": OUTPUT,
    "--redirects": OUTPUT,
    "--tee": OUTPUT,
    "--log-line-prefix-template": OUTPUT,
    "--local-ranks-filter": OUTPUT,
    "--duplicate-stdout-filters": OUTPUT,
    "--duplicate-stderr-filters": OUTPUT,
    "--logs-specs": OUTPUT,
}
"""Option -> why it is ignored."""
WITHOUT_VALUE = {
    "--module": HONOURED,
    "--no-python": HONOURED,
    "--run-path": HONOURED,
    "--standalone": MEETING,
    "--virtual-local-rank": "LOCAL_RANK counts the processes of the pod",
}
SHORT = {"-m": "--module", "-r": "--redirects", "-t": "--tee"}
NUMBERS_BY_DEVICE = ("gpu", "cpu", "xpu", "auto")


class UsageError(ValueError):
    """A command line that torchrun would not take either; the message names what is wrong with it."""


class Torchrun(NamedTuple):
    """`nproc` is a number, or what to count (gpu, cpu, xpu, auto), or None where the command line does not say.

    `ignored` are pairs of a flag and the reason.
    """

    program: Program
    nproc: int | str | None
    ignored: tuple[tuple[str, str], ...]


class Option(NamedTuple):
    """`value` is empty where the option has none."""

    name: str
    value: str


def parse(argv: Sequence[str]) -> Torchrun:
    """Understand what stands after `torchrun`. Raises UsageError."""
    options, words = split(argv)
    names = {option.name for option in options}
    if {"--module", "--no-python"} <= names:
        raise UsageError("--module and --no-python exclude each other: a module is run by python")
    numbers = [option.value for option in options if option.name == "--nproc-per-node"]
    return Torchrun(
        program=Program(_kind(names), words[0], tuple(words[1:])),
        nproc=_number(numbers[-1]) if numbers else None,
        ignored=tuple((name, why) for name in sorted(names) if (why := _why_ignored(name))),
    )


def split(argv: Sequence[str]) -> tuple[list[Option], list[str]]:
    """The options, by their full names, and the script with its arguments. Raises UsageError."""
    words = list(argv)
    options = list(_options(words))
    if not words:
        raise UsageError("torchrun's command line names no script to run")
    return options, words


def _kind(names: set[str]) -> str:
    if "--run-path" in names:
        return SCRIPT
    if "--no-python" in names:
        return COMMAND
    return MODULE if "--module" in names else SCRIPT


def _why_ignored(name: str) -> str:
    return WITH_VALUE.get(name) or WITHOUT_VALUE.get(name, "")


def _number(value: str) -> int | str:
    if value in NUMBERS_BY_DEVICE:
        return value
    if not value.isdigit() or int(value) < 1:
        raise UsageError(
            f"--nproc-per-node={value}: write a number from 1 on, or one of {', '.join(NUMBERS_BY_DEVICE)}"
        )
    return int(value)


def _options(words: list[str]) -> Iterator[Option]:
    """Take the options away from the front of the words, up to the script."""
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            return
        name, value = _split(word)
        if name in WITH_VALUE and value is None:
            if not words:
                raise UsageError(f"{word} needs a value")
            value = words.pop(0)
        if name in WITHOUT_VALUE and value is not None:
            raise UsageError(f"{word}: {name} takes no value")
        yield Option(name, value or "")


def _split(word: str) -> tuple[str, str | None]:
    """The option's name with dashes, and the value if it stands in the same word."""
    if not word.startswith("--"):
        name = SHORT.get(word[:2])
        if name is None:
            raise UsageError(f"torchrun has no option {word}")
        return name, word[2:].lstrip("=") or None
    flag, equals, value = word.partition("=")
    return _known(flag), value if equals else None


def _known(flag: str) -> str:
    """The option that is meant; as with torchrun, a beginning that fits no other option will do."""
    name = flag.replace("_", "-")
    if name in WITH_VALUE or name in WITHOUT_VALUE:
        return name
    meant = [known for known in (*WITH_VALUE, *WITHOUT_VALUE) if known.startswith(name)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UsageError(f"{flag} may mean each of {', '.join(meant)}")
    raise UsageError(f"torchrun has no option {flag}")
