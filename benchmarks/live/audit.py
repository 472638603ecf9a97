"""The API server's audit log as a list of writes, each with the moments at which it arrived and was answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class Write:
    """A request to the API server, for most benchmarks a write. Times are seconds since 1970, to the microsecond.

    `what` is verb, resource and subresource, such as "create pods" or "patch elasticpytorchjobs/scale".
    `ready_replicas` is what a job's status was set to, None if the write left it alone.
    """

    what: str
    name: str
    user: str
    received: float
    done: float
    ready_replicas: int | None = None


@dataclass(slots=True)
class AuditLog:
    """The log of one API server, read on as it grows.

    `requests` are all of which the policy tells, those that were refused too.
    """

    file: Path
    writes: list[Write] = field(default_factory=list)
    requests: list[Write] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> list[Write]:
        """All that was accepted until now, in the order of the answers."""
        with self.file.open("rb") as log:
            log.seek(self._offset)
            lines = log.read().split(b"\n")
        self._offset += sum(len(line) + 1 for line in lines[:-1])  # a line that is not whole yet is read next time
        for event in map(json.loads, lines[:-1]):
            asked = request_of(event)
            if asked is not None:
                self.requests.append(asked)
                if event["responseStatus"]["code"] in SUCCESS:
                    self.writes.append(asked)
        self.writes.sort(key=lambda write: write.done)
        return self.writes

    def forget(self) -> None:
        """Leave out what was read until now: after tens of thousands of writes each look at them takes its time."""
        self.writes.clear()
        self.requests.clear()


def request_of(event: Mapping[str, Any]) -> Write | None:
    """The request an audit event tells of, whatever the answer; None for one that is about no object."""
    target = event.get("objectRef")
    if target is None:
        return None
    resource = "/".join(part for part in (target["resource"], target.get("subresource")) if part)
    status = (event.get("requestObject") or {}).get("status") or {}
    return Write(
        what=f"{event['verb']} {resource}",
        name=target.get("name", ""),
        user=event["user"]["username"],
        received=_seconds(event["requestReceivedTimestamp"]),
        done=_seconds(event["stageTimestamp"]),
        ready_replicas=status.get("readyReplicas"),
    )


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
