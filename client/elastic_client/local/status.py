"""Reads the master's /status of a run: the ranks of the pods, and the cost of each change of size."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from elastic_client.local.plan import HERE
from elastic_client.words import age

ANSWER_SECONDS = 2
COLUMNS = ("AFTER", "PODS", "REASON", "PAUSE", "STEPS LOST")


def ask(port: int) -> Mapping[str, Any]:
    """The content of /status; empty without an answer."""
    with suppress(OSError, ValueError, http.client.HTTPException):
        connection = http.client.HTTPConnection(HERE, port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", "/status")
            answer = json.load(connection.getresponse())
        finally:
            connection.close()
        if isinstance(answer, dict):
            return answer
    return {}


@dataclass(slots=True)
class Seen:
    """The state of a run so far: the present rank of each pod's first process, and the changes of all its masters."""

    begun: datetime
    processes: int
    ranks: dict[str, int] = field(default_factory=dict)
    changes: dict[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)
    step: int | None = None
    state: str = ""

    def take(self, status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Record an answer of /status. Returns the changes that are new, oldest first."""
        if not status:
            return []
        members: Sequence[str] = status.get("members") or ()
        if members:
            self.ranks = {name: place * self.processes for place, name in enumerate(members)}
        self.step, self.state = (status.get("training") or {}).get("step", self.step), status.get("state", "")
        changes = {
            (int(status.get("epoch", 0)), int(change["generation"])): change for change in status.get("changes") or ()
        }
        new = [changes[key] for key in sorted(changes.keys() - self.changes.keys())]
        self.changes |= changes
        return new

    def rows(self) -> list[list[object]]:
        """The rows under COLUMNS, oldest first. An unknown cost is an empty cell."""
        return [
            [
                age(self.begun, datetime.fromtimestamp(one["time"], UTC)),
                sizes_of(one),
                one["reason"],
                f"{one['pauseSeconds']:g} s" if "pauseSeconds" in one else None,
                one.get("lostSteps"),
            ]
            for _, one in sorted(self.changes.items())
        ]


def sizes_of(change: Mapping[str, Any]) -> str:
    """The pods before and after a change."""
    return f"{change['from']} -> {change['to']}"
