"""Quarantines a job, pod, policy or node that causes an error in the operator, while the pass continues for all other
objects (88).

controller-runtime recovers in the same way from a panic at one object of its queue. The error is logged and counted,
and the operator tries the object again with back-off; a job or a policy also at once when its spec changes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from elastic_operator.attempts import NEVER_FAILED, Attempts
from elastic_operator.memory import DelayQueue, DirtyJobs, DirtySet
from elastic_operator.plan.facts.job import FaultStage, Quarantined

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_FAULT_SECONDS = 1.0
FIRST_ALLOCATION_SECONDS = 30.0
"""The first wait after an error of the allocation. It is longer, because the search for the culprit costs several
allocations.
"""
MAX_QUARANTINE_SECONDS = 1800.0
MAX_ERROR_CHARACTERS = 300
"""The most characters of an error's own text in a message to users."""
NO_PREEMPTION_SECONDS = 600.0
"""After an error at a job's grant, no pods are preempted for the job until this long after its next try, because the
job could probably not use their room. The time ends earlier if pods of the job are created on idle GPUs.
"""
KEPT_SECONDS = 3600.0
"""After this long without an error, an object begins again with the shortest wait."""
MAX_VERSIONS = 3
"""After this many specs of a job have caused errors, an edited spec is still tried at once, but the edit does not end
the time in which no pods are preempted for the job.
"""


@dataclass(slots=True)
class _Fault:
    """An error of the operator at one object. The object is left out until its next try, or until its version differs
    from `version`.
    """

    version: object
    why: Quarantined
    attempts: Attempts
    """The errors of this version (monotonic)."""
    may_preempt_at: float
    """Until this time (monotonic) no pod is preempted for the object."""
    versions: int = 1
    """The number of versions with errors."""
    is_reported: bool = False
    """Whether the write of a status with this fault was begun."""
    status_failed: bool = False
    """Whether planning this status failed, too."""

    @property
    def again_at_monotonic(self) -> float:
        """When the object is tried again (monotonic)."""
        return self.attempts.until


class Quarantine:
    """The objects that are quarantined, by uid. `count` is called with the kind of each object at each error.

    When a wait of a job begins or ends, the job is marked in `dirty_jobs` (200).
    """

    def __init__(self, count: Callable[[str], None] = lambda _: None, dirty_jobs: DirtyJobs | None = None) -> None:
        self.count, self._dirty_jobs = count, dirty_jobs or DirtySet()
        self._faults: dict[str, _Fault] = {}
        self._wait_ends = DelayQueue()
        """When (monotonic) each object is tried again or may preempt again, whichever is next."""
        self._raised = 0

    def attempt(self, kind: str, uid: str, name: str, work: Callable[[], T]) -> T | None:
        """The result of `work` for that object; None if the object is quarantined, which an error of `work` also
        causes.
        """
        if self.fault(uid) is not None:
            return None
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - any error is handled as an error of this object only
            self.quarantine(kind, uid, name, error)
            return None

    def quarantine(
        self,
        kind: str,
        uid: str,
        name: str,
        error: Exception,
        *,
        version: object = None,
        stage: FaultStage = FaultStage.READING,
    ) -> Quarantined:
        """Leave the object out until its next try; returns why. The error and its traceback are logged."""
        now, in_allocation = time.monotonic(), stage is FaultStage.ALLOCATION
        self._forget_old(now)
        previous = self._faults.get(uid)
        edited = previous is not None and previous.version != version
        self.count(kind)
        left_out = self._left_out(uid, version)
        if stage is FaultStage.GRANT and left_out is not None and left_out.is_reported:
            text = "planning the status of a quarantined object failed, too %s=%s error=%r"
            log.error(text, kind, name, error, exc_info=error)
            left_out.status_failed = True
            return left_out.why
        earlier = previous.attempts if previous is not None and not edited else NEVER_FAILED
        first = FIRST_ALLOCATION_SECONDS if in_allocation else FIRST_FAULT_SECONDS
        attempts = earlier.failed(now, first, MAX_QUARANTINE_SECONDS)
        # The text of an error in the allocation may name other tenants' objects.
        text = type(error).__name__ if in_allocation else f"{type(error).__name__}: {error}"
        text = text if len(text) <= MAX_ERROR_CHARACTERS else f"{text[:MAX_ERROR_CHARACTERS]}..."
        continued = " Its pods continue." if kind == "job" else ""
        message = (
            f"An internal error of the operator stopped work on this {kind}: {text}.{continued} The operator retries"
            " automatically, and at once after an edit of the spec. The operator's log has the traceback."
        )
        self._raised += 1
        seconds = attempts.until - now
        log.error("an object is quarantined for %.0f s %s=%s error=%r", seconds, kind, name, error, exc_info=error)
        may_preempt_at = previous.may_preempt_at if previous is not None else now
        if stage is FaultStage.GRANT:
            may_preempt_at = attempts.until + NO_PREEMPTION_SECONDS
        versions = previous.versions + edited if previous is not None else 1
        why = Quarantined(message, in_allocation)
        self._faults[uid] = _Fault(version, why, attempts, may_preempt_at, versions)
        self._note_waits(uid, now)
        return why

    def fault(self, uid: str, version: object = None) -> Quarantined | None:
        """Why the object is left out now; None if it is not left out, or if its next try is due."""
        fault = self._left_out(uid, version)
        return fault.why if fault is not None else None

    def begin_status(self, uid: str, version: object) -> bool:
        """Note that a status with the object's fault is about to be written; False if planning such a status failed.
        True for an object that is not left out now.
        """
        fault = self._left_out(uid, version)
        if fault is None:
            return True
        fault.is_reported = True
        return not fault.status_failed

    def _left_out(self, uid: str, version: object) -> _Fault | None:
        fault = self._faults.get(uid)
        if fault is None or fault.version != version or time.monotonic() >= fault.again_at_monotonic:
            return None
        return fault

    def may_preempt(self, uid: str, version: object) -> bool:
        """Whether pods may be preempted for the object."""
        fault = self._faults.get(uid)
        if fault is None or time.monotonic() >= fault.may_preempt_at:
            return True
        return fault.version != version and fault.versions < MAX_VERSIONS

    def note_success(self, uid: str) -> None:
        """Note that the object could use its grant, so that its next error counts as the first."""
        if self._faults.pop(uid, None) is not None:
            self._wait_ends.drop(uid)
            self._dirty_jobs.mark(uid)

    def revision(self) -> object:
        """A value that changes whenever an object is quarantined, or its next try is due. Read it before the
        objects.
        """
        now = time.monotonic()
        return self._raised, sum(fault.again_at_monotonic > now for fault in self._faults.values())

    def next_end_monotonic(self) -> float:
        """When (monotonic) the first object is tried again, or may preempt again; infinity if none waits."""
        return self._wait_ends.next()

    def note_ends(self) -> None:
        """Note the waits that have ended since the last call."""
        now = time.monotonic()
        for uid in self._wait_ends.due(now):
            self._note_waits(uid, now)

    def _note_waits(self, uid: str, now: float) -> None:
        """Mark the job, because a wait began or ended; note when its next wait ends."""
        ends = (self._faults[uid].again_at_monotonic, self._faults[uid].may_preempt_at)
        self._wait_ends.set(uid, min((at for at in ends if at > now), default=inf))
        self._dirty_jobs.mark(uid)

    def _forget_old(self, now: float) -> None:
        for uid in [uid for uid, fault in self._faults.items() if fault.again_at_monotonic + KEPT_SECONDS < now]:
            del self._faults[uid]
            self._wait_ends.drop(uid)
