"""Finds the one object that makes a computation over many of them raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from elastic_operator.plan.allocate import allocate
from elastic_operator.plan.model import JobDemand, Request, Snapshot

T = TypeVar("T")


def culprit(suspects: Sequence[T], work: Callable[[Sequence[T]], object]) -> T | None:
    """The one among the suspects at which `work` raises by itself, found by halving; None where no single one does.

    Of several it finds one: ask again without it.
    """
    if not _raises(work, suspects):
        return None
    while len(suspects) > 1:
        middle = len(suspects) // 2
        first, second = suspects[:middle], suspects[middle:]
        suspects = first if _raises(work, first) else second
    return suspects[0] if suspects and _raises(work, suspects) else None


def culprit_of_allocation(snapshot: Snapshot) -> JobDemand | Request | None:
    """The job or waiting pod for which an allocation raises by itself."""
    everyone: tuple[JobDemand | Request, ...] = (*snapshot.jobs, *snapshot.requests)

    def work(some: Sequence[JobDemand | Request]) -> None:
        jobs = tuple(one for one in some if isinstance(one, JobDemand))
        requests = tuple(one for one in some if isinstance(one, Request))
        allocation = allocate(replace(snapshot, jobs=jobs, requests=requests))
        _ = allocation.evictions, allocation.reclaims  # made when they are read

    return culprit(everyone, work)


def _raises(work: Callable[[Sequence[T]], object], some: Sequence[T]) -> bool:
    try:
        work(some)
    except Exception:  # noqa: BLE001 - the question is whether
        return True
    return False
