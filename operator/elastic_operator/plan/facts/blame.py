"""Finds the objects that cause an error in a computation over many objects (88)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

MAX_BLAME_CALLS = 256
"""The most calls of the work in one search. They suffice for twenty culprits among a thousand objects, in seconds."""


def culprits(suspects: Sequence[T], work: Callable[[Sequence[T]], object]) -> list[T]:
    """The suspects for which `work` raises an error. They are found by halving groups of suspects.

    The list is empty if `work` also fails without any suspect, or only for several suspects together. If there are too
    many culprits for `MAX_BLAME_CALLS` calls, the list has whole groups for which `work` fails.
    """
    if _raises(work, suspects[:0]) or not _raises(work, suspects):
        return []
    groups, found, tries = deque([(0, len(suspects))]), [], MAX_BLAME_CALLS
    while groups and tries > 0:
        start, end = groups.popleft()
        if end - start == 1:
            found.append((start, end))
            continue
        middle = (start + end) // 2
        groups.extend(half for half in ((start, middle), (middle, end)) if _raises(work, suspects[slice(*half)]))
        tries -= 2
    return [suspect for start, end in sorted((*found, *groups)) for suspect in suspects[start:end]]


def _raises(work: Callable[[Sequence[T]], object], some: Sequence[T]) -> bool:
    try:
        work(some)
    except Exception:  # noqa: BLE001 - the question is whether it raises
        return True
    return False
