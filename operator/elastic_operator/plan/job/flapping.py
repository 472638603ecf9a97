"""A job whose size is changed again and again, though nothing changes from outside, is held at what it has (143).

What is decided depends on nothing but what there is. So a decision that undoes the one before, and is undone by the
next, is an error of the planner's, or one of its limits: each round costs the job a restart. While it is held it gets
nothing new and nothing of it moves. Others get what they are entitled to all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from elastic_operator.api.status import Change, JobStatus, Limit, rfc3339
from elastic_operator.plan.facts.job import Quiet
from elastic_operator.plan.facts.times import at, seconds
from elastic_operator.plan.job.observation import Observation

MOST_CHANGES = 3
WITHIN_SECONDS = 600.0
"""More changes than that within so long are too many; what goes on in the same direction is one."""
HELD_SECONDS = 600
EMPTY_SECONDS = 60
"""Both, for a job without pods: it has nothing to lose, and may be entitled to what it waits for."""
_OWN = frozenset({"Started", "ScaledUp", "ScaledDown", "QuotaReclaimed", "PreemptedByJob", Limit.WAITING_FOR_NODES})
"""Reasons of changes that were decided here."""


def may_flap(status: JobStatus, now: float) -> bool:
    """Whether it has changed often enough lately for it, or is held: else nobody need know how quiet it is."""
    lately = status.history[MOST_CHANGES : MOST_CHANGES + 1]
    return status.held_until is not None or any(seconds(one.time) > now - WITHIN_SECONDS for one in lately)


def hold_still(obs: Observation, now: float) -> Observation:
    """The job held, if it was changed too often; or let go, when the time is over or something has changed.

    Somebody's edit ends it, as do a loss and a failure (`end_incarnation`, `count_losses`). A job without its minimum
    is let go by any change from outside: it loses nothing by another try.
    """
    assert obs.job.spec is not None
    status, quiet = obs.status, obs.job.quiet
    if status.held_until is None:
        if quiet is None or _waits_by_itself(status) or len(_too_many(obs, quiet, now)) <= MOST_CHANGES:
            return obs
        until = at(now + _held_seconds(obs))
        granted = status.target_replicas if obs.live else 0
        status = status.model_copy(update={"held_until": until, "target_replicas": granted})
        return replace(obs, status=status, wake_at=(*obs.wake_at, seconds(until)))
    until, edited = status.held_until, obs.job.generation != status.observed_generation
    began = seconds(until) - _held_seconds(obs)
    is_another = quiet is not None and quiet.since > began + 1 and len(obs.live) < obs.job.spec.min_replicas
    if now >= seconds(until) or edited or is_another:
        return replace(obs, status=status.model_copy(update={"held_until": None}))
    return replace(obs, wake_at=(*obs.wake_at, seconds(until)))


def why_held(status: JobStatus) -> str:
    """What happened, until when it is held, and what a person can do, in words; "" for a job that is not."""
    until = status.held_until
    if until is None:
        return ""
    latest = seconds(until) - EMPTY_SECONDS
    changes = [one for one in _since(status, latest - HELD_SECONDS - WITHIN_SECONDS) if seconds(one.time) <= latest]
    sizes = [change.to for change in changes[-MOST_CHANGES - 2 :]]
    return (
        f"Its size was changed again and again ({', '.join(map(str, sizes))} pods) though nothing changed from outside."
        f" It keeps what it has until {rfc3339(until)}, and still gives back what others are entitled to. An edit of"
        " the job ends this at once. If it comes again, report it with the output of `elastic-operator snapshot`."
    )


def _waits_by_itself(status: JobStatus) -> bool:
    """Whether it tries a size again and again by a back-off, which says when the next try is due."""
    return status.retry is not None and (status.retry.size is not None or status.retry.waits_for is not None)


def _held_seconds(obs: Observation) -> int:
    return HELD_SECONDS if obs.live else EMPTY_SECONDS


def _too_many(obs: Observation, quiet: Quiet, now: float) -> list[Change]:
    """The changes that count, of those since it is quiet: those that were due are left out, and those that only go on
    in the direction of the one before.
    """
    counted, direction, turn_is_over = [], 0, False
    within = WITHIN_SECONDS if obs.live else EMPTY_SECONDS
    for change in _since(obs.status, max(now - within, quiet.since)):
        before, direction = direction, (change.to > change.from_) - (change.to < change.from_)
        next_turn, turn_is_over = turn_is_over, quiet.in_turns and change.to == 0 and change.reason == "PreemptedByJob"
        taken_back = direction < 0 and change.reason == "QuotaReclaimed"
        if not (taken_back or turn_is_over or next_turn) and (direction == 0 or direction != before):
            counted.append(change)
    return counted


def _since(status: JobStatus, time: float) -> Iterator[Change]:
    """The changes that were decided here after that time, the oldest first."""
    return (change for change in reversed(status.history) if change.reason in _OWN and seconds(change.time) > time)
