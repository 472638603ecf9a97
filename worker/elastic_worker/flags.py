"""torchrun's options: which exist, how an Elastic job treats each of them, and how a command line is parsed.

The table holds the options of torchrun in torch 2.4 to 2.15. In an Elastic job the command line decides neither the
members of the rendezvous, nor its address, nor restarts. This module imports nothing, as the operator reads command
lines, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MEMBERS = "the job sets the number of pods (spec.elasticity), and it may change while the job runs"
MEETING = "the operator sets the job's rendezvous"
RESTARTS = "the job sets its restarts (spec.recovery)"
OUTPUT = "output goes to the log of the pod, with the local rank before each line if a pod has several processes"
INNER = "the launcher starts and watches processes in its own way"

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
"""Option -> the reason why it is ignored, HONOURED if it is not."""
WITHOUT_VALUE = {
    "--module": HONOURED,
    "--no-python": HONOURED,
    "--run-path": HONOURED,
    "--standalone": MEETING,
    "--virtual-local-rank": "LOCAL_RANK counts the processes of the pod",
}
USE_ENV = "--use-env"
"""An option of `python -m torch.distributed.launch` alone: the script gets no argument --local-rank."""
MOST_OPTIONS = 200
"""The limit for one command line. torchrun has 40 options, and the operator reads the lines of all tenants."""
SHORT = {"-m": "--module", "-r": "--redirects", "-t": "--tee"}


class UsageError(ValueError):
    """torchrun would refuse the command line as well; the message names the mistake."""


class Option(NamedTuple):
    """One option with its full name.

    `value` is "" if it has none; `words` are the words as they were written, of which the first is number `at`.
    """

    name: str
    value: str
    at: int
    words: tuple[str, ...]


class Line(NamedTuple):
    """A parsed command line: torchrun's options, and the script with its arguments."""

    options: tuple[Option, ...]
    program: tuple[str, ...]


def read(argv: Sequence[str], *, is_launch: bool = False) -> Line:
    """Parse the words after `torchrun`, or with `is_launch` after `torch.distributed.launch`. Raises UsageError."""
    more = (USE_ENV,) if is_launch else ()
    options: list[Option] = []
    at = 0
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-":
        if argv[at] == "--":
            at += 1
            break
        if len(options) == MOST_OPTIONS:
            raise UsageError(f"torchrun's command line has more than {MOST_OPTIONS} options")
        options.append(_option(argv, at, more))
        at += len(options[-1].words)
    if at >= len(argv):
        raise UsageError("torchrun's command line names no script to run")
    return Line(tuple(options), tuple(argv[at:]))


def _option(argv: Sequence[str], at: int, more: Sequence[str]) -> Option:
    """The option that begins with word `at`. The names in `more` are known in addition to the table's."""
    word = argv[at]
    name, value = _split(word, more)
    if name not in WITH_VALUE and value is not None:
        raise UsageError(f"{word}: {name} takes no value")
    if name not in WITH_VALUE or value is not None:
        return Option(name, value or "", at, (word,))
    if at + 1 == len(argv):
        raise UsageError(f"{word} needs a value")
    return Option(name, argv[at + 1], at, (word, argv[at + 1]))


def _split(word: str, more: Sequence[str]) -> tuple[str, str | None]:
    """The option's name with dashes, and the value if it stands in the same word."""
    if not word.startswith("--"):
        name = SHORT.get(word[:2])
        if name is None:
            raise UsageError(f"torchrun has no option {word}")
        return name, word[2:].lstrip("=") or None
    flag, equals, value = word.partition("=")
    return _full_name(flag, more), value if equals else None


def _full_name(flag: str, more: Sequence[str]) -> str:
    """The option's full name. As in torchrun, a prefix that fits a single option is enough."""
    name, options = flag.replace("_", "-"), (*WITH_VALUE, *WITHOUT_VALUE, *more)
    if name in options:
        return name
    meant = [each for each in options if each.startswith(name)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UsageError(f"{flag} may mean each of {', '.join(meant)}")
    raise UsageError(f"torchrun has no option {flag}")
