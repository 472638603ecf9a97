"""docs/protocol.md: all messages in and between pods of Elastic mode, from the dataclasses that they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field
from inspect import getdoc
from pathlib import Path
from typing import Any

from elastic_worker.protocol import orders, process_orders, process_reports, reports, standin, warm_parent
from elastic_worker.protocol.codec import BESIDE, INSIDE, Message, wire_fields

PATH = Path("docs/protocol.md")
BAR = "\\|"

_HEAD = """\
<!-- Made from worker/elastic_worker/protocol by `make generated`; do not edit. -->
# The messages between coordinator, launchers and training processes

Each side sends JSON objects. An object holds one message or several, each under its own key. The receiver ignores an
unknown key, and uses the default of a missing field, so that two releases understand each other
([decision](decisions.md) 103).

## Coordinator and launchers
The launcher in each pod keeps a TCP connection to the coordinator in the master's pod. Both first prove that they know
the job's token (`wire.py`). Then each line is a JSON object, and both send `{"beat": 1}` every second. A
`GenerationRecord` is a launcher's part of a generation (`coordinator/part.py`), or for earlier releases all of it. An
`AttemptKey` names one attempt at a change in place: the number of the next generation, and the number of the attempt. A
`StuckRank` is `{"generation": int, "rank": int, "tick": int, "seconds": float}`.
"""
_PROCESSES = """\
## A launcher and its training processes
A process whose script uses [the library](library.md) connects to the Unix socket of its launcher (`ELASTIC_LIBRARY`),
and sends Hello. Each line is a JSON object. A *boundary* is a point that all processes of a group pass in the same
order, at least one in each step. Boundaries are counted from the group's beginning (`tick` in JSON). A step by itself
sends nothing: Progress comes twice a second at most, AskPosition once a second. A `GroupPlace` has the first eight
fields of Prepare. A `ScriptValue` is a value of any type from the script.
"""
_STARTS = """\
## A launcher and what it starts
Launcher and warm parent have a socket pair, a packet is one message, and both are of the same release. A `torchrun`
that a user's command calls connects to a Unix socket (`ELASTIC_SOCKET`), sends one line, and receives one.
"""


def text() -> str:
    """All of the page."""
    between_pods = (
        ("From the coordinator to a launcher", orders.ALL),
        ("From a launcher: the state of its pod, repeated in each hello", reports.STATE),
        ("From a launcher: events", reports.EVENTS),
        ("From a launcher: answers", reports.ANSWERS),
    )
    with_processes = (
        ("From a launcher to its processes", process_orders.ALL),
        ("From a process to its launcher", process_reports.ALL),
    )
    at_starts = (
        ("From a launcher to its warm parent", warm_parent.FROM_LAUNCHER),
        ("From the warm parent, or a process forked from it", warm_parent.FROM_PARENT),
        ("Between the torchrun of a command and its launcher", (standin.Run, standin.Ended)),
    )
    return "\n".join(
        line
        for head, sections in ((_HEAD, between_pods), (_PROCESSES, with_processes), (_STARTS, at_starts))
        for line in (head, *(line for title, kinds in sections for line in _section(title, kinds)))
    )


def _section(title: str, kinds: Iterable[type[Message]]) -> Iterator[str]:
    yield from (f"### {title}", "| message | as JSON | meaning |", "|---|---|---|")
    for kind in kinds:
        meaning = " ".join((getdoc(kind) or "").split())
        # A bar ends a cell, also in code.
        yield f"| {kind.__name__} | `{_json(kind).replace('|', BAR)}` | {meaning} |"
    yield ""


def _json(kind: type[Message]) -> str:
    names = wire_fields(kind)
    if kind.shape == INSIDE:
        return f'{{"{kind.key}": {{{_members(names)}}}}}'
    if not names or kind.shape == BESIDE:
        return f'{{"{kind.key}": 1{", " if names else ""}{_members(names)}}}'
    return f"{{{_members(names)}}}"


def _members(names: dict[str, Field[Any]]) -> str:
    return ", ".join(f'"{name}": {each.type}{_default(each)}' for name, each in names.items())


def _default(each: Field[Any]) -> str:
    return "" if each.default is MISSING else f" = {each.default!r}"
