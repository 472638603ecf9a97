"""Requests to an API server, real or in memory, and their faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

REASONS = {
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
CHANGED = "the object has been modified; please apply your changes to the latest version and try again"
DENIED = 'admission webhook "rules.example.com" denied the request: not now'
"""How a webhook's refusal reads, whatever its code."""


def conflict(what: str, why: str = CHANGED) -> str:
    """The message of kube-apiserver's own conflicts: of the version, or of a precondition."""
    return f"Operation cannot be fulfilled on {what}: {why}"


def told(status: int, what: str) -> str:
    """The message of a test's refusal with that status."""
    return conflict(what) if status == 409 else f"no ({status})"


class CutOff(Exception):  # noqa: N818 - an order, not an error
    """Raised by a `before` or `after` hook: the connection ends without an answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `path` is without its query. `strategic`: a patch that merges conditions by their type."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    strategic: bool = False

    @property
    def watches(self) -> bool:
        """Whether the request opens a watch."""
        return self.query.get("watch", "") in ("1", "true")

    @property
    def writes(self) -> bool:
        """Whether the request may change an object."""
        return self.method not in ("GET", "HEAD")

    @property
    def of_lease(self) -> bool:
        """Whether the request concerns a lease."""
        return "/leases" in self.path

    def __str__(self) -> str:
        return f"{'WATCH' if self.watches else self.method} {self.path}"


@dataclass(slots=True)
class Entry:
    """A logged request: its time (monotonic) and the status of its answer (0: none, or not yet)."""

    at: float
    request: Request
    status: int = 0


Matcher = Callable[[Request], bool]


def anything(_: Request) -> bool:
    """Matches every request."""
    return True


def is_a_write(request: Request) -> bool:
    """Whether the request may change an object other than a lease."""
    return request.writes and not request.of_lease


def makes_a_pod(request: Request) -> bool:
    """Whether the request creates a pod; a dry run does not."""
    return request.method == "POST" and request.path.endswith("/pods") and "dryRun" not in request.query


def deletes_a_pod(request: Request) -> bool:
    """Whether the request deletes or evicts a pod."""
    return request.method == "DELETE" and "/pods/" in request.path


def nominates(request: Request) -> bool:
    """Whether the request writes or withdraws the nomination of a pod."""
    return request.method == "PATCH" and "/pods/" in request.path and request.path.endswith("/status")


def writes_job_status(request: Request) -> bool:
    """Whether the request writes the status of a job."""
    return request.method == "PATCH" and "/elasticpytorchjobs/" in request.path and request.path.endswith("/status")


@dataclass(slots=True)
class Refusal:
    """Answers `times` matching requests (None: all) with a status, and this message in place of the usual one."""

    status: int
    where: Matcher = anything
    times: int | None = None
    retry_after: int | None = None
    message: str = ""

    def takes(self, request: Request) -> bool:
        """Whether the request is refused."""
        if self.times == 0 or not self.where(request):
            return False
        if self.times is not None:
            self.times -= 1
        return True


def failure(status: int, reason: str, message: str) -> dict[str, Any]:
    """The Status of a refusal."""
    named = re.search(r'"([^"]+)" not found$', message)
    told = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    more = {"reason": reason, "message": message, "details": {"name": named[1]} if named else {}}
    return {**told, **more, "code": int(status)}
