"""Holds a job at its present pods if its size is changed again and again although nothing changes from outside (143).

Decisions depend only on the facts. So a decision that undoes the one before, and is undone by the next, is a mistake or
a limit of the planner, and each round costs the job a restart. While a job is held, it gets nothing new and none of its
pods moves. Entitled teams may still take GPUs from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from elastic_api.status import DECIDED, Change, ChangeReason, ConditionType, JobStatus, rfc3339
from elastic_operator.plan.facts.job import FlapWindow
from elastic_operator.plan.facts.times import end_of_wait, seconds
from elastic_operator.plan.facts.waits import (
    FLAPPING_WINDOW_SECONDS,
    HELD_SECONDS,
    HELD_WITHOUT_PODS_SECONDS,
    MAX_CHANGES,
)
from elastic_operator.plan.job.observation import Observation


def hold_if_flapping(obs: Observation, now: float) -> Observation:
    """Hold the job if it was changed too often; end the hold when its time is over or something has changed.

    An edit ends the hold. So do a loss and a failure (`end_incarnation`, `count_losses`), and pods that cannot start on
    their nodes (`recreate_misplaced_pods`). If the job is below its minimum, any external change ends the hold: the job
    loses nothing by another try.
    """
    status, flap_window = obs.status, obs.job.context.flap_window
    if status.held_until is None:
        # A back-off makes the job try a size again and again, and says when the next try is due.
        if flap_window is None or status.failed_size or len(_counted_changes(obs, flap_window, now)) <= MAX_CHANGES:
            return obs
        until = end_of_wait(now + _held_seconds(obs))
        granted = status.target_replicas if obs.members else 0
        return obs.with_status(held_until=until, target_replicas=granted).again_at(seconds(until))
    until, edited = status.held_until, obs.job.generation != status.observed_generation
    began = seconds(until) - _held_seconds(obs)  # or up to a second earlier: the end is a whole second
    is_another = flap_window is not None and flap_window.no_external_change_since > began - 1
    if now >= seconds(until) or edited or (is_another and len(obs.members) < obs.spec.minimum):
        return obs.with_status(held_until=None)
    return obs.again_at(seconds(until))


def why_held(status: JobStatus) -> str:
    """A sentence on the cause of the hold, its end, and what the user can do; "" for a job that is not
    held.

    The hold began when the condition became True, or begins now if it is not True yet.
    """
    until, known = status.held_until, status.condition(ConditionType.FLAPPING)
    if until is None:
        return ""
    began = seconds(known.last_transition_time) if known is not None and known.status == "True" else seconds(until)
    lately = _since(status, seconds(until) - HELD_SECONDS - FLAPPING_WINDOW_SECONDS)
    sizes = [change.to for change in lately if seconds(change.time) <= began][-MAX_CHANGES - 2 :]
    return (
        f"The job's size was changed again and again ({', '.join(map(str, sizes))} pods) though nothing changed"
        f" from outside. The job keeps its size until {rfc3339(until)}, but the operator still evicts its pods for"
        " others that are entitled to their GPUs. An edit of the job ends this at once. If this happens"
        " again, report it with the output of `elastic-operator snapshot`."
    )


def _held_seconds(obs: Observation) -> int:
    return HELD_SECONDS if obs.members else HELD_WITHOUT_PODS_SECONDS


def _counted_changes(obs: Observation, flap_window: FlapWindow, now: float) -> list[Change]:
    """The changes that count, among those since the last external change.

    These changes do not count: GPUs that an entitled team takes back, and turns, because both were due; a change in the
    same direction as the change before; growth that is withdrawn before its pod exists, because no pod is deleted.
    """
    counted, direction, turn_is_over = [], 0, False
    within = FLAPPING_WINDOW_SECONDS if obs.members else HELD_WITHOUT_PODS_SECONDS
    for change in _since(obs.status, max(now - within, flap_window.no_external_change_since)):
        before, direction = direction, (change.to > change.from_) - (change.to < change.from_)
        is_preempted = change.to == 0 and change.reason == ChangeReason.PREEMPTED_BY_JOB
        next_turn, turn_is_over = turn_is_over, flap_window.time_sharing and is_preempted
        taken_back = direction < 0 and change.reason == ChangeReason.QUOTA_RECLAIMED
        if change.excused:
            direction = before
        elif not (taken_back or turn_is_over or next_turn) and (direction == 0 or direction != before):
            counted.append(change)
    return counted


def _since(status: JobStatus, time: float) -> Iterator[Change]:
    """The operator's own changes after that time, the oldest first."""
    decided = (change for change in reversed(status.history) if change.reason in DECIDED)
    return (change for change in decided if seconds(change.time) > time)
