"""How long a job waits: for kube-scheduler to place a pod, and until the next try. The job's status keeps the ends of
these waits, so that the next leader reads them there (`read.written_times`).

Any other time stands at the top of the module that waits, in most cases with `Attempts` of `elastic_operator.attempts`.
docs/internals.md has a row for each wait before a retry, with its module.
"""

from __future__ import annotations

from elastic_api.status import PREEMPTED, Change, JobStatus, RetryCause
from elastic_operator.attempts import doubled
from elastic_operator.plan.facts.times import seconds

UNSCHEDULABLE_SECONDS = 60.0
"""A pod that the scheduler has not placed for this long is deleted (10)."""
MAX_BACKOFF_SECONDS = 60
"""The longest wait after a failure or a loss; the first one is a second, and each next one twice as long."""
WAITS = {
    RetryCause.FAILED_CREATE: (10.0, 300.0),
    RetryCause.UNSCHEDULABLE: (30.0, 1800.0),
    RetryCause.NODES_NOT_PROVISIONED: (30.0, 1800.0),
    RetryCause.PODS_NOT_STARTED: (60.0, 3600.0),
}
"""Seconds until the next try: the first wait, and the longest one; each wait is twice the one before (27). The numbers
for pods that have not started are Kueue's defaults.
"""
YIELD_SECONDS = 60.0
"""How long a job that has lost all its pods to other teams lets a large gang have its nodes first (217)."""
REFUSING_NODE_SECONDS, MAX_REFUSING_NODE_SECONDS = 10, 600
"""How long a node whose kubelet refused a pod is avoided: at first, and doubled each time up to the maximum."""
MAX_CHANGES = 3
FLAPPING_WINDOW_SECONDS = 600.0
"""More than `MAX_CHANGES` changes of size within this time are too many. Changes in the same direction count once."""
HELD_SECONDS = 600
"""How long a job with pods keeps its size after too many changes (143)."""
HELD_WITHOUT_PODS_SECONDS = 60
"""The same for a job without pods: it has nothing to lose, and may be entitled to GPUs."""

FUTILE_TRIES = 3
"""A preemptor (a job or a foreign pod) backs off after this many futile tries (139). After fewer, the obstacle may have
passed.
"""
FIRST_FUTILE_SECONDS, MAX_FUTILE_SECONDS = 3600.0, 86_400.0
"""The first back-off of such a preemptor, doubled after each further try up to the maximum."""


def whole_preemption(status: JobStatus) -> Change | None:
    """The last change of the job's size, if by it the job lost all its pods to others."""
    last = status.history[0] if status.history else None
    return last if last is not None and last.to == 0 and last.reason in PREEMPTED else None


def futile_backoff_seconds(times: int) -> float:
    """The back-off of a preemptor after this many futile tries."""
    if times < FUTILE_TRIES:
        return 0.0
    return doubled(FIRST_FUTILE_SECONDS, MAX_FUTILE_SECONDS, times - FUTILE_TRIES + 1)


def avoided_seconds(times: int) -> int:
    """How long a node is avoided after this many refusals in a row."""
    return doubled(REFUSING_NODE_SECONDS, MAX_REFUSING_NODE_SECONDS, times)


def may_flap(status: JobStatus, now: float) -> bool:
    """Whether the job is held, or has changed often enough to be held. Only then the last external change matters."""
    lately = status.history[MAX_CHANGES : MAX_CHANGES + 1]
    return status.held_until is not None or any(
        seconds(change.time) > now - FLAPPING_WINDOW_SECONDS for change in lately
    )
