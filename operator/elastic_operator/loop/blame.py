"""Finds the objects that make a computation over many of them raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from elastic_operator.plan.allocate import allocate
from elastic_operator.plan.model import JobDemand, Request, Snapshot

T = TypeVar("T")


def culprits(suspects: Sequence[T], work: Callable[[Sequence[T]], object]) -> list[T]:
    """Those among the suspects at which `work` raises by itself, found by halving.

    None where it raises without any of them, too, or where it takes several together.
    """
    return [] if _raises(work, suspects[:0]) else _culprits(suspects, work)


def _culprits(suspects: Sequence[T], work: Callable[[Sequence[T]], object]) -> list[T]:
    if not _raises(work, suspects):
        return []
    if len(suspects) == 1:
        return list(suspects)
    middle = len(suspects) // 2
    return _culprits(suspects[:middle], work) + _culprits(suspects[middle:], work)


def culprits_of_allocation(snapshot: Snapshot) -> list[JobDemand | Request]:
    """The jobs and waiting pods for which an allocation raises by itself."""
    everyone: tuple[JobDemand | Request, ...] = (*snapshot.jobs, *snapshot.requests)

    def work(some: Sequence[JobDemand | Request]) -> None:
        jobs = tuple(one for one in some if isinstance(one, JobDemand))
        requests = tuple(one for one in some if isinstance(one, Request))
        allocation = allocate(replace(snapshot, jobs=jobs, requests=requests))
        _ = allocation.evictions, allocation.reclaims  # made when they are read

    return culprits(everyone, work)


def _raises(work: Callable[[Sequence[T]], object], some: Sequence[T]) -> bool:
    try:
        work(some)
    except Exception:  # noqa: BLE001 - the question is whether
        return True
    return False
