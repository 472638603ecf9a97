"""The API server's audit log as a list of writes, each with the times of its arrival and of its answer."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

SUCCESS, SERVER_ERRORS = range(200, 300), range(500, 600)


@dataclass(frozen=True, slots=True)
class Write:
    """A request to the API server, in most benchmarks a write. Times are seconds since 1970, to the microsecond.

    `what` is verb, resource and subresource, such as "create pods" or "patch elasticpytorchjobs/scale".
    `ready_replicas` is the new value in a job's status, None if the write did not change it, and `ends` whether the
    status says that the job has ended. `replicas` is the size to which a job is scaled, None for other writes. `node`
    is the node of a binding. `at_once` is a deletion without grace.
    """

    what: str
    name: str
    user: str
    received: float
    done: float
    ready_replicas: int | None = None
    ends: bool = False
    replicas: int | None = None
    node: str = ""
    at_once: bool = False


@dataclass(slots=True)
class AuditLog:
    """The log of one API server, read as it grows.

    `requests` are all requests in the log, including refused ones and dry runs. `unsure` are requests that the server
    gave up: they may have been carried out nevertheless.
    """

    file: Path
    writes: list[Write] = field(default_factory=list)
    unsure: list[Write] = field(default_factory=list)
    requests: list[Write] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> list[Write]:
        """All accepted requests so far, in the order of the answers."""
        with self.file.open("rb") as log:
            log.seek(self._offset)
            lines = log.read().split(b"\n")
        self._offset += sum(len(line) + 1 for line in lines[:-1])  # an incomplete line is read next time
        for event in map(json.loads, lines[:-1]):
            asked = request_of(event)
            if asked is not None:
                self.requests.append(asked)
                code = event["responseStatus"]["code"]
                if code in SUCCESS and "dryRun=" not in event.get("requestURI", ""):
                    insort(self.writes, asked, key=attrgetter("done"))
                elif code in SERVER_ERRORS:
                    self.unsure.append(asked)
        return self.writes

    def forget(self) -> None:
        """Drop the requests read so far, because a search of tens of thousands of writes takes long."""
        self.writes.clear()
        self.requests.clear()


def request_of(event: Mapping[str, Any]) -> Write | None:
    """The request of an audit event, with any answer; None if it concerns no object."""
    target = event.get("objectRef")
    if target is None:
        return None
    resource = "/".join(part for part in (target["resource"], target.get("subresource")) if part)
    body = event.get("requestObject") or {}
    status = body.get("status") or {}
    return Write(
        what=f"{event['verb']} {resource}",
        name=target.get("name", ""),
        user=event["user"]["username"],
        received=_seconds(event["requestReceivedTimestamp"]),
        done=_seconds(event["stageTimestamp"]),
        ready_replicas=status.get("readyReplicas"),
        ends=bool(status.get("completionTime")),
        replicas=(body.get("spec") or {}).get("replicas") if resource.endswith("/scale") else None,
        node=(body.get("target") or {}).get("name", ""),
        at_once="gracePeriodSeconds=0" in event.get("requestURI", "") or body.get("gracePeriodSeconds") == 0,
    )


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
