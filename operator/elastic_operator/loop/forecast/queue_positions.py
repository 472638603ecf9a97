"""The places in line of jobs that wait for their minimum, their estimated starts, and how exact these were (161).

Writing a status is expensive, and when the first job starts, all others move up. So a job's place is written at most
once every 30 seconds, positions are rounded, and at most two places of all jobs are written in a second, those of the
first jobs in line before the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from math import inf

from elastic_api.status import QueuePosition
from elastic_operator.cluster.rate_limit import TokenBucket
from elastic_operator.memory import drop_absent
from elastic_operator.metrics import Metrics
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.times import seconds
from elastic_operator.plan.forecast.ends import known_ends
from elastic_operator.plan.forecast.positions import positions, queued_jobs
from elastic_operator.plan.forecast.starts import Steps, confidence, of_now, start_times
from elastic_operator.plan.forecast.status_forecasts import queue_position
from elastic_operator.plan.planner import PassDecisions

log = logging.getLogger(__name__)

REFRESH_SECONDS = 10.0
"""The least time between two computations of the positions."""
STARTS_SECONDS = 60.0
"""While jobs wait, their starts are estimated once in this time."""
PLACE_WRITE_SECONDS = 30.0
"""The least time between two writes of a job's place."""
MAX_WRITES_AT_ONCE, PLACE_REFILL_SECONDS = 20, 0.5
"""The token bucket of places to write: this many jobs at once, and one more every `PLACE_REFILL_SECONDS`."""
OTHER_SECONDS, OTHER_PART, OTHER_CONFIDENCE = 60.0, 0.1, 0.1
"""An estimate is new if it differs by `OTHER_SECONDS` and by `OTHER_PART` of the remaining time, or if its confidence
differs by `OTHER_CONFIDENCE`.
"""
MAX_ESTIMATES = 16
"""The most estimates of one job that are compared with its start."""


@dataclass(slots=True)
class _Known:
    """The last place in a job's status, and when (monotonic) it was written; its estimates, and when each was written.

    A job with pods has no place. Its estimates are kept until they are compared with its start.
    """

    place: QueuePosition | None
    written_at: float
    estimates: list[tuple[float, float]] = field(default_factory=list)


@dataclass(slots=True)
class _WaitingJob:
    """A job in line at the last refresh, with the last estimate of its start (epoch seconds)."""

    job: JobDemand
    position: int
    start: float | None = None
    confidence: float | None = None


class QueuePositions:
    """The places in line, by the uid of the job. `moved`: they may have changed since the last refresh."""

    def __init__(self, *, metrics: Metrics) -> None:
        self._metrics = metrics
        self.moved = False
        self._known: dict[str, _Known] = {}
        self._line: dict[str, _WaitingJob] = {}
        """The jobs that wait, the front of the lines first."""
        self._is_refreshed = False
        self._to_lose: dict[str, None] = {}
        """The jobs (uids) that do not wait any more, but whose statuses may still have a place."""
        self._refresh_at = self._starts_at = 0.0
        """When (monotonic) the positions are due again, and when the estimates are."""
        self._writes = TokenBucket(MAX_WRITES_AT_ONCE, PLACE_REFILL_SECONDS, now=time.monotonic)

    def queue_position(self, uid: str, *, written: QueuePosition | None = None) -> QueuePosition | None:
        """The job's place for its status; `written` if the place is unknown and the job may still wait."""
        shown = self._known.get(uid)
        if shown is not None:
            return shown.place
        return written if uid in self._line or not self._is_refreshed else None

    def forget_deleted(self, present: Set[str]) -> None:
        drop_absent(present, self._line, self._known, self._to_lose)

    def note_started(self, uid: str, now: float) -> None:
        """Compare the start of a job that does not wait any more with the estimates in its status."""
        shown = self._known.pop(uid, None)
        for written_at, start in shown.estimates if shown is not None else ():
            self._metrics.start_estimate_ratio.observe(max(0.0, now - written_at) / max(1.0, start - written_at))

    def next_at_monotonic(self) -> float:
        """When (monotonic) to refresh again; infinity if no job waits and no place changes."""
        return min(self._refresh_at if self.moved else inf, self._starts_at if self._line else inf)

    def refresh(self, decisions: PassDecisions, now: float) -> Steps[dict[str, float]] | None:
        """Find the jobs that wait, and their places; returns the steps of an estimate, if one is due."""
        self.moved, self._refresh_at = False, time.monotonic() + REFRESH_SECONDS
        jobs = queued_jobs(decisions.inputs.jobs, decisions.allocation)
        places, previous = positions(jobs, decisions.allocation), self._line
        self._line = {}
        for job in sorted(jobs, key=lambda job: places[job.uid]):
            waiting = previous.get(job.uid) or _WaitingJob(job, 0)
            waiting.job, waiting.position = job, places[job.uid]
            self._line[job.uid] = waiting
        self._drop_places(decisions)
        if not jobs or time.monotonic() < self._starts_at:
            return None
        self._starts_at = time.monotonic() + STARTS_SECONDS
        self.note_estimates({})
        ends = known_ends(decisions.obs.values(), now)
        if not ends:
            return None
        inputs = of_now(decisions.inputs, decisions.allocation, now)
        flavors = {job.shape.flavor for job in jobs}
        sure = {flavor: confidence(inputs, decisions.allocation, ends, flavor) for flavor in flavors}
        for waiting in self._line.values():
            waiting.confidence = sure[waiting.job.shape.flavor]
        return start_times(inputs, decisions.allocation, ends, [job.uid for job in jobs])

    def _drop_places(self, decisions: PassDecisions) -> None:
        """Drop the places of jobs that do not wait any more. A job without pods has no start to compare either."""
        self._is_refreshed = True
        assignment = decisions.allocation.assignment
        served = {job.uid for job in decisions.inputs.jobs if job.members or assignment(job.uid).replicas}
        for uid in [uid for uid in self._known if uid not in self._line]:
            if uid in served:
                self._known[uid].place = None
            else:
                del self._known[uid]
                self._to_lose[uid] = None
        self._to_lose = {uid: None for uid in self._to_lose if uid not in self._line}

    def note_estimates(self, starts: Mapping[str, float]) -> None:
        """Take the estimated starts: by job (uid), in epoch seconds."""
        for uid, waiting in self._line.items():
            waiting.start = starts.get(uid)

    def take_due(self, now: float) -> list[str]:
        """Take the jobs (uids) whose places are to be written into their statuses now."""
        due = []
        while self._to_lose and self._writes.has(""):
            self._writes.take("")
            due.append(uid := next(iter(self._to_lose)))
            del self._to_lose[uid]
        for uid, waiting in self._line.items():
            if not self._writes.has(""):
                break
            if self._note_if_new(waiting, now):
                self._writes.take("")
                due.append(uid)
        self.moved = self.moved or not self._writes.has("")
        return due

    def _note_if_new(self, waiting: _WaitingJob, now: float) -> bool:
        """Whether the job's place is to be written now. An error at one job keeps no other from its place."""
        job = waiting.job
        try:
            wanted = queue_position(waiting.position, waiting.start, waiting.confidence)
            shown = self._known.get(job.uid)
            if shown is not None and shown.place is not None:
                if not _is_another(shown.place, wanted, now):
                    return False
                if time.monotonic() < shown.written_at + PLACE_WRITE_SECONDS:
                    self.moved = True
                    return False
            self._note(job.uid, wanted, now)
        except Exception:
            self._metrics.forecast_errors.inc()
            log.exception("cannot compute a job's place in line job=%s/%s", job.namespace, job.name)
            return False
        return True

    def _note(self, uid: str, place: QueuePosition, now: float) -> None:
        before = self._known.get(uid) or _Known(None, -inf)
        estimates, last = before.estimates, before.place.estimated_start_time if before.place is not None else None
        if place.estimated_start_time not in (None, last):
            self._metrics.start_estimates.inc()
            estimates = [*estimates, (now, seconds(place.estimated_start_time))][-MAX_ESTIMATES:]
        self._known[uid] = _Known(place, time.monotonic(), estimates)


def _is_another(known: QueuePosition, wanted: QueuePosition, now: float) -> bool:
    """Whether the difference is worth a write."""
    before, after = known.estimated_start_time, wanted.estimated_start_time
    if known.position != wanted.position or (before is None) is not (after is None):
        return True
    if abs((known.confidence or 0.0) - (wanted.confidence or 0.0)) > OTHER_CONFIDENCE:
        return True
    differs = abs(seconds(after) - seconds(before))
    return differs > max(OTHER_SECONDS, OTHER_PART * (seconds(before) - now))
