"""When waiting jobs start: running jobs end when they say, and each time everything is decided again (161).

The decisions are those of the allocator, on the snapshot as it will be. What is assumed is written down here:

1. A job whose end is known ends then. Where its size changes before, so does the rest of its time: twice the pods need
   half of it.
2. All others run on, also those that start meanwhile, and no new job comes.
3. Pods leave and start at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from elastic_operator.plan.allocation.allocate import Allocator, ends_of_protection
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.snapshot import JobDemand, Snapshot
from elastic_operator.plan.facts.team import Team
from elastic_operator.plan.forecast.ends import FARTHEST_SECONDS
from elastic_operator.plan.lookahead import carried_out

MAX_STEPS = 50
"""At most this many times everything is decided again for one forecast. What starts later has no estimate."""
SAME_MOMENT_SECONDS, SAME_MOMENT_PART = 60.0, 0.1
"""Moments that differ by TOGETHER_SECONDS at most, or by TOGETHER_PART of the time from now, are one step. So MAX_STEPS
steps reach hours, however many jobs end meanwhile.
"""
EVICTION_COUNTS_SECONDS = 60.0
"""Seconds for which an eviction counts under the limits on evictions (138)."""


T = TypeVar("T")
Steps = Generator[None, bool | None, T]
"""Something that yields before each decision, and returns what it has so far once it is sent True."""


@dataclass(slots=True)
class _Run:
    """A running job whose end is known, at that size."""

    end: float
    size: int


def of_now(snapshot: Snapshot, allocation: Allocation, now: float) -> Snapshot:
    """What the allocation was made from, as it would be `now`, with the jobs that it has left out (143)."""
    return replace(allocation.snapshot, jobs=snapshot.jobs, now=now)


def start_times(
    snapshot: Snapshot, allocation: Allocation, ends: Mapping[str, float], waiting: Iterable[str]
) -> Steps[dict[str, float]]:
    """When each of the waiting jobs (uids) starts (epoch seconds), as far as that is found.

    `allocation` was made from the snapshot, and is read before the first step only.
    """
    sizes = {uid: allocation.assignment(uid).replicas for uid in ends if uid in allocation}
    runs = {uid: _Run(ends[uid], size) for uid, size in sizes.items() if size}
    left, found = set(waiting), dict[str, float]()
    began = counts_since = snapshot.now
    snapshot, allocator = carried_out(snapshot, allocation), Allocator()
    for _ in range(MAX_STEPS):
        now = _next_moment(snapshot, runs, left, began)
        if now is None:
            break
        ended = {uid for uid, run in runs.items() if run.end <= now}
        for uid in ended:
            del runs[uid]
        limits = snapshot.eviction_limits
        if now >= counts_since + EVICTION_COUNTS_SECONDS:
            limits, counts_since = replace(limits, gone={}), now
        jobs = tuple(job for job in snapshot.jobs if job.uid not in ended)
        snapshot = replace(snapshot, now=now, jobs=jobs, eviction_limits=limits)
        if (yield):
            break
        allocation = allocator.allocate(snapshot)
        found |= {job.uid: now for job in snapshot.jobs if job.uid in left and _starts(job, allocation)}
        left -= found.keys()
        going_on = _going_on(runs, allocation, now)
        runs = {uid: run for uid, run in going_on if run.end <= began + FARTHEST_SECONDS}
        snapshot = carried_out(snapshot, allocation)
    return found


def _starts(job: JobDemand, allocation: Allocation) -> bool:
    return allocation.assignment(job.uid).replicas >= job.sizes[0]


def _going_on(runs: Mapping[str, _Run], allocation: Allocation, now: float) -> Iterator[tuple[str, _Run]]:
    """The runs at their new sizes. Nobody knows when a job ends that had to start anew."""
    for uid, run in runs.items():
        size = allocation.assignment(uid).replicas
        if size == run.size:
            yield uid, run
        elif size:
            yield uid, _Run(now + (run.end - now) * run.size / size, size)


def _next_moment(snapshot: Snapshot, runs: Mapping[str, _Run], left: Set[str], began: float) -> float | None:
    """When to decide next: the last of the moments that make one step; None if no end is left that matters.

    What frees other kinds of GPU than those that the jobs `left` wait for makes no moment. A job without GPUs waits for
    anything.
    """
    flavors = {job.flavor for job in snapshot.jobs if job.uid in left}
    jobs = [job for job in snapshot.jobs if job.flavor in flavors or "" in flavors]
    ends = [runs[job.uid].end for job in jobs if job.uid in runs]
    if not ends:
        return None
    moments = [*ends, *_turning_points(snapshot, jobs)]
    first = min(moments)
    until = first + max(SAME_MOMENT_SECONDS, SAME_MOMENT_PART * (first - began))
    return max(moment for moment in moments if moment <= until)


def _turning_points(snapshot: Snapshot, jobs: Iterable[JobDemand]) -> Iterator[float]:
    """The times to come from which on a waiting job may get what it may not get now.

    When running jobs may grow is left out: that is decided with the next step.
    """
    teams = snapshot.find_teams()
    for job in jobs:
        times = _times(job, teams.of(job.namespace), snapshot.starvation_seconds)
        yield from (time for time in times if time > snapshot.now)


def _times(job: JobDemand, team: Team, starvation_seconds: float) -> Iterator[float]:
    if not job.members:
        yield job.failed_until
        yield job.may_preempt_at
        yield job.starves_from(starvation_seconds)
    else:
        yield from ends_of_protection(job, team)


def confidence(snapshot: Snapshot, allocation: Allocation, ends: Mapping[str, float], flavor: str) -> float | None:
    """The part of the GPUs in use, of that kind, that jobs use whose end is known; None if none are in use."""
    used = sum(top.used_now for top in allocation.accounts.tops(flavor)) if flavor else 0
    known = sum(job.gpus for job in snapshot.jobs if job.uid in ends and job.flavor == flavor)
    return min(1.0, round(known / used, 2)) if used > 0 else None
