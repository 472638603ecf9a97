"""Estimates when waiting jobs start: each running job ends when its reports say, and after each end everything is
decided again (161).

The decisions are those of the allocator, on the input as it will be. The assumptions are:

1. A job whose end is known ends then. If its size changes before, its remaining time changes in proportion: twice the
   pods need half of it.
2. All other jobs continue, those that start meanwhile included, and no new job is created.
3. Pods leave and start at once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from elastic_operator.plan.allocation.allocate import Allocator
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.change_times import ends_of_protection
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.eviction_limits import EVICTION_SECONDS
from elastic_operator.plan.forecast.ends import FARTHEST_SECONDS
from elastic_operator.plan.lookahead import carried_out

MAX_STEPS = 50
"""The most decisions for one forecast. Jobs that start later have no estimate."""
SAME_MOMENT_SECONDS, SAME_MOMENT_PART = 60.0, 0.1
"""Moments are one step if they differ by SAME_MOMENT_SECONDS at most, or by SAME_MOMENT_PART of the time from now.
MAX_STEPS steps therefore reach hours ahead, however many jobs end meanwhile.
"""


T = TypeVar("T")
Steps = Generator[None, bool | None, T]
"""A generator that yields before each decision. Once it is sent True, it returns its result so far."""


@dataclass(slots=True)
class _Run:
    """A running job whose end is known, at that size."""

    end: float
    size: int


def of_now(inputs: AllocationInputs, allocation: Allocation, now: float) -> AllocationInputs:
    """The allocation's input as it would be `now`, including the jobs that the look ahead left out (143)."""
    return replace(allocation.inputs, jobs=inputs.jobs, now=now)


def start_times(
    inputs: AllocationInputs, allocation: Allocation, ends: Mapping[str, float], waiting: Iterable[str]
) -> Steps[dict[str, float]]:
    """When a waiting job starts (epoch seconds), by uid. Jobs without an estimate are missing.

    `allocation` was made from the input, and is read before the first step only.
    """
    sizes = {uid: allocation.assignment(uid).replicas for uid in ends if uid in allocation}
    runs = {uid: _Run(ends[uid], size) for uid, size in sizes.items() if size}
    still_waiting, found = set(waiting), dict[str, float]()
    began = counts_since = inputs.now
    inputs, allocator = carried_out(inputs, allocation), Allocator()
    for _ in range(MAX_STEPS):
        now = _next_moment(inputs, runs, still_waiting, began)
        if now is None:
            break
        ended = {uid for uid, run in runs.items() if run.end <= now}
        for uid in ended:
            del runs[uid]
        limits = inputs.eviction_limits
        if now >= counts_since + EVICTION_SECONDS:
            limits, counts_since = replace(limits, evicted_last_minute={}), now
        jobs = tuple(job for job in inputs.jobs if job.uid not in ended)
        inputs = replace(inputs, now=now, jobs=jobs, eviction_limits=limits)
        if (yield):
            break
        allocation = allocator.allocate(inputs)
        asking = [job for job in inputs.jobs if job.uid in still_waiting]
        found |= {job.uid: now for job in asking if allocation.assignment(job.uid).replicas >= job.minimum}
        still_waiting -= found.keys()
        going_on = _going_on(runs, allocation, now)
        runs = {uid: run for uid, run in going_on if run.end <= began + FARTHEST_SECONDS}
        inputs = carried_out(inputs, allocation)
    return found


def _going_on(runs: Mapping[str, _Run], allocation: Allocation, now: float) -> Iterator[tuple[str, _Run]]:
    """The runs at their new sizes. A job that had to start again has no known end."""
    for uid, run in runs.items():
        size = allocation.assignment(uid).replicas
        if size == run.size:
            yield uid, run
        elif size:
            yield uid, _Run(now + (run.end - now) * run.size / size, size)


def _next_moment(
    inputs: AllocationInputs, runs: Mapping[str, _Run], still_waiting: Set[str], began: float
) -> float | None:
    """When to decide next: the last of the moments of one step; None if no end that matters is left.

    An end that frees only other kinds of GPU than the jobs `still_waiting` wait for makes no moment. A job without GPUs
    waits for any end.
    """
    flavors = {job.shape.flavor for job in inputs.jobs if job.uid in still_waiting}
    jobs = [job for job in inputs.jobs if job.shape.flavor in flavors or "" in flavors]
    ends = [runs[job.uid].end for job in jobs if job.uid in runs]
    if not ends:
        return None
    moments = [*ends, *_turning_points(inputs, jobs)]
    first = min(moments)
    until = first + max(SAME_MOMENT_SECONDS, SAME_MOMENT_PART * (first - began))
    return max(moment for moment in moments if moment <= until)


def _turning_points(inputs: AllocationInputs, jobs: Iterable[JobDemand]) -> Iterator[float]:
    """The future times from which a waiting job may get more than now.

    Times of the growth of running jobs are left out: the next step decides about growth.
    """
    for job in jobs:
        if job.members:
            times = [*ends_of_protection(job, inputs.teams.team_of(job.namespace))]
        else:
            times = [job.bar.until, job.yields_until, job.starves_from(inputs.settings.starvation_seconds)]
            times += [job.failed.until] if job.failed is not None else []
        yield from (time for time in times if time > inputs.now)


def confidence(
    inputs: AllocationInputs, allocation: Allocation, ends: Mapping[str, float], flavor: str
) -> float | None:
    """Of the GPUs of that kind in use, the part that jobs with a known end use; None if none are in use."""
    used = sum(top.used_with_terminating for top in allocation.accounts.tops(flavor)) if flavor else 0
    known = sum(job.gpus for job in inputs.jobs if job.uid in ends and job.shape.flavor == flavor)
    return min(1.0, round(known / used, 2)) if used > 0 else None
