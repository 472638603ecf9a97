"""Cuts times of statuses that lie further ahead than possible, because the API server's clock was set back after they
were written (29).

Without this, a job would wait longer by the size of the step. The end of a wait is cut to the longest length of this
wait from now, and a time that should be past is cut to now. The next write of the status stores the cut times.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from elastic_api.status import JobStatus, Retry
from elastic_operator.attempts import doubled
from elastic_operator.plan.facts.times import not_later, seconds, status_time
from elastic_operator.plan.facts.waits import (
    HELD_SECONDS,
    HELD_WITHOUT_PODS_SECONDS,
    MAX_BACKOFF_SECONDS,
    WAITS,
    avoided_seconds,
)

Part = TypeVar("Part", bound=BaseModel)


def not_ahead(status: JobStatus, now: float) -> JobStatus:
    """The status without such times; the same object if there are none."""
    held = HELD_SECONDS if status.target_replicas else HELD_WITHOUT_PODS_SECONDS
    status = _cut(status, "held_until", latest=now + held)
    for name in (
        "start_time",
        "active_since",
        "completion_time",
        "last_resize_time",
        "running_since",
        "turn_started",
        "master_lost_time",
    ):
        status = _cut(status, name, latest=now)
    parts = {
        "retry": _no_later(status.retry, now),
        "failed_size": _no_later(status.failed_size, now),
        "training": status.training and _cut(status.training, "last_updated_time", latest=now),
        "history": [_cut(change, "time", latest=now) for change in status.history],
        "conditions": [_cut(condition, "last_transition_time", latest=now) for condition in status.conditions],
        "avoided_nodes": [
            _cut(node, "until", latest=now + avoided_seconds(node.times) + 1) for node in status.avoided_nodes
        ],
    }
    cut = {name: part for name, part in parts.items() if part != getattr(status, name)}
    return status.model_copy(update=cut) if cut else status


def _cut(part: Part, name: str, *, latest: float) -> Part:
    """The part of a status in which that time is no later than `latest`."""
    written = seconds(getattr(part, name))
    time = not_later(written, latest)
    return part if time == written else part.model_copy(update={name: status_time(time)})


def _no_later(retry: Retry | None, now: float) -> Retry | None:
    """The retry, no later than possible: waits for pods that could not be had may be half as long again as `WAITS`."""
    if retry is None:
        return None
    waits = WAITS.get(retry.cause)
    longest = 1.5 * doubled(*waits, retry.attempt) if waits else doubled(1, MAX_BACKOFF_SECONDS, retry.attempt) + 1
    return _cut(retry, "not_before", latest=now + longest)
