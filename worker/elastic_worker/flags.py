"""torchrun's options: which there are, what an Elastic job makes of each, and a command line read into them.

The table holds the options of torchrun in torch 2.4 to 2.15. Who takes part, where they meet and what is restarted is
not the command line's to say in an Elastic job. Imports nothing, as the operator reads command lines, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
USE_ENV = "--use-env"
"""Of `python -m torch.distributed.launch` alone: the script gets no argument --local-rank."""
SHORT = {"-m": "--module", "-r": "--redirects", "-t": "--tee"}


class UsageError(ValueError):
    """A command line that torchrun would not take either; the message names what is wrong with it."""


class Option(NamedTuple):
    """An option as it is meant, `value` empty where it has none; `words` is what was written, from word `at` on."""

    name: str
    value: str
    at: int
    words: tuple[str, ...]


class Line(NamedTuple):
    """A command line: torchrun's options, and the script with its arguments."""

    options: tuple[Option, ...]
    program: tuple[str, ...]


def read(argv: Sequence[str], *, is_launch: bool = False) -> Line:
    """What stands after `torchrun`, or after `torch.distributed.launch`. Raises UsageError."""
    words = list(argv)
    options = tuple(_options(words, (USE_ENV,) if is_launch else ()))
    if not words:
        raise UsageError("torchrun's command line names no script to run")
    return Line(options, tuple(words))


def _options(words: list[str], more: Sequence[str]) -> Iterator[Option]:
    """Take the options away from the front of the words, up to the script; `more` are known beside the table's."""
    at = 0
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            return
        written = [word]
        name, value = _split(word, more)
        if name in WITH_VALUE and value is None:
            if not words:
                raise UsageError(f"{word} needs a value")
            value = words.pop(0)
            written.append(value)
        if name not in WITH_VALUE and value is not None:
            raise UsageError(f"{word}: {name} takes no value")
        yield Option(name, value or "", at, tuple(written))
        at += len(written)


def _split(word: str, more: Sequence[str]) -> tuple[str, str | None]:
    """The option's name with dashes, and the value if it stands in the same word."""
    if not word.startswith("--"):
        name = SHORT.get(word[:2])
        if name is None:
            raise UsageError(f"torchrun has no option {word}")
        return name, word[2:].lstrip("=") or None
    flag, equals, value = word.partition("=")
    return _known(flag, more), value if equals else None


def _known(flag: str, more: Sequence[str]) -> str:
    """The option that is meant; as with torchrun, a beginning that fits no other option will do."""
    name, known = flag.replace("_", "-"), (*WITH_VALUE, *WITHOUT_VALUE, *more)
    if name in known:
        return name
    meant = [each for each in known if each.startswith(name)]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise UsageError(f"{flag} may mean each of {', '.join(meant)}")
    raise UsageError(f"torchrun has no option {flag}")
