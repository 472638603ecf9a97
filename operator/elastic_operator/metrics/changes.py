"""Finds the counts for metrics in a written status of a job: the difference from the status before.

It is read from the statuses alone, so that a write that is tried again counts once, when it succeeds (74).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from elastic_api.status import LOST, Change, ChangeReason, ConditionType, JobStatus
from elastic_operator.plan.facts.times import seconds

RESIZES = {
    "up": (ChangeReason.SCALED_UP,),
    "down": (ChangeReason.SCALED_DOWN, ChangeReason.QUOTA_RECLAIMED, ChangeReason.PREEMPTED_BY_JOB),
}
"""Reasons of planned changes of size in the history, by direction."""


@dataclass(frozen=True, slots=True)
class JobChanges:
    """The news of one write.

    `resizes` are (direction, reason), `failures` and `losses` the restarts by cause, `pauses` and `lost_steps` the
    costs of changes of size, `queue_wait` the seconds that the job had waited when it got its pods, None if it did not.
    """

    resizes: tuple[tuple[str, str], ...] = ()
    failures: int = 0
    losses: int = 0
    pauses: tuple[float, ...] = ()
    lost_steps: int = 0
    queue_wait: float | None = None


def changes(old: JobStatus, new: JobStatus, *, created: float) -> JobChanges:
    """The news in `new` compared with `old`; the job was created at `created` (epoch seconds)."""
    added = _added(old.history, new.history)
    lost = sum(change.from_ - change.to for change in added if change.reason in LOST)
    restarts = max(0, new.restarts - old.restarts)
    losses = max(0, min(restarts, lost))
    measured = _measured(old.history, new.history, len(added))
    return JobChanges(
        resizes=_resizes(added, max(0, new.resizes - old.resizes)),
        failures=restarts - losses,
        losses=losses,
        pauses=tuple(change.pause_seconds for change in measured if change.pause_seconds is not None),
        lost_steps=sum(change.lost_steps or 0 for change in measured),
        queue_wait=_queue_wait(old, new, created),
    )


def _added(old: Sequence[Change], new: Sequence[Change]) -> Sequence[Change]:
    """The entries in front of the old ones. Empty if the two histories have nothing in common."""
    if not old:
        return new
    for count in range(len(new)):
        pairs = zip(old, new[count:], strict=False)
        if all(_key(before) == _key(after) for before, after in pairs):
            return new[:count]
    return ()


def _key(change: Change) -> tuple[object, ...]:
    return change.time, change.from_, change.to, change.reason, change.message


def _resizes(added: Sequence[Change], count: int) -> tuple[tuple[str, str], ...]:
    """The newest planned changes of size, as many as the status counts more than before."""
    labels = {(direction, reason) for direction, reasons in RESIZES.items() for reason in reasons}
    planned = [("up" if change.to > change.from_ else "down", change.reason) for change in added if change.from_ > 0]
    return tuple(resize for resize in planned if resize in labels)[:count]


def _measured(old: Sequence[Change], new: Sequence[Change], added: int) -> list[Change]:
    """The entries whose costs are new."""
    earlier = [*(None for _ in range(added)), *old]
    return [
        change
        for change, known in zip(new, earlier, strict=False)
        if change.pause_seconds is not None and (known is None or known.pause_seconds is None)
    ]


def _queue_wait(old: JobStatus, new: JobStatus, created: float) -> float | None:
    """The time from when the job began to wait until it got its place.

    A job that was admitted or suspended before has waited since that ended. Times are whole seconds.
    """
    admitted = _since(new, ConditionType.ADMITTED, "True")
    if admitted is None or _since(old, ConditionType.ADMITTED, "True") is not None:
        return None
    resumed = _since(old, ConditionType.SUSPENDED, "False") or _since(new, ConditionType.SUSPENDED, "False")
    given_back = _since(old, ConditionType.ADMITTED, "False")
    if not old.conditions:
        resumed = None
    began = max(created, seconds(resumed), seconds(given_back))
    return max(0.0, seconds(admitted) - began)


def _since(status: JobStatus, kind: ConditionType, truth: str) -> datetime | None:
    """When the condition got that truth; None if it has another one."""
    condition = status.condition(kind)
    return condition.last_transition_time if condition and condition.status == truth else None
