"""The roles of a job's pods, and the order of pods by role."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from elastic_worker.contract import ROLE_MASTER


class _Pod(Protocol):
    """The part of a pod that its order in the job depends on: its role, and its index among the pods of that role."""

    @property
    def role(self) -> str: ...
    @property
    def index(self) -> int: ...


P = TypeVar("P", bound=_Pod)


def master_first(pod: _Pod) -> tuple[bool, int]:
    """A key to sort by: the master, then workers by index."""
    return pod.role != ROLE_MASTER, pod.index


def master_in(pods: Sequence[P]) -> P | None:
    """The master, which is the first of these pods; None if they have no master."""
    return pods[0] if pods and pods[0].role == ROLE_MASTER else None


def leaving_order(pods: Iterable[P]) -> list[P]:
    """The pods in the order in which they are deleted: the highest worker index first, the master last."""
    return sorted(pods, key=master_first, reverse=True)
