"""docs/protocol.md: every message between coordinator and launchers, from the dataclasses that they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from inspect import getdoc
from pathlib import Path
from typing import Any

from elastic_worker.protocol import orders, reports
from elastic_worker.protocol.codec import BESIDE, INSIDE, Message, wire_names

PATH = Path("docs/protocol.md")
BAR = "\\|"

_HEAD = """\
<!-- Made from worker/elastic_worker/protocol by `make generated`; do not edit. -->
# What coordinator and launchers say to each other

The launcher in each pod keeps a TCP connection to the coordinator in the master's pod. Both prove first that they know
the job's token (`wire.py`). Then each line is a JSON object. It holds one message or several, each under a key of its
own. Both say `{"beat": 1}` every second. An unknown key is passed over, and a missing field has its default, so that
pods of two releases understand each other (decision 103).
"""


def text() -> str:
    """All of the page."""
    sections = (
        ("The coordinator tells a launcher", orders.ALL),
        ("A launcher says what is so, also in each hello", reports.LASTING),
        ("A launcher says what has happened", reports.EVENTS),
        ("A launcher answers", reports.ANSWERS),
    )
    return "\n".join([_HEAD, *(line for title, kinds in sections for line in _section(title, kinds))])


def _section(title: str, kinds: Iterable[type[Message]]) -> Iterator[str]:
    yield from (f"## {title}", "| message | as JSON | meaning |", "|---|---|---|")
    for kind in kinds:
        meaning = " ".join((getdoc(kind) or "").split())
        # A bar ends a cell, also in code.
        yield f"| {kind.__name__} | `{_json(kind).replace('|', BAR)}` | {meaning} |"
    yield ""


def _json(kind: type[Message]) -> str:
    names = dict(zip(wire_names(kind), fields(kind), strict=True))
    if kind.shape == INSIDE:
        return f'{{"{kind.key}": {{{_members(names)}}}}}'
    if not names or kind.shape == BESIDE:
        return f'{{"{kind.key}": 1{", " if names else ""}{_members(names)}}}'
    return f"{{{_members(names)}}}"


def _members(names: dict[str, Field[Any]]) -> str:
    return ", ".join(f'"{name}": {each.type}{_default(each)}' for name, each in names.items())


def _default(each: Field[Any]) -> str:
    return "" if each.default is MISSING else f" = {each.default!r}"
