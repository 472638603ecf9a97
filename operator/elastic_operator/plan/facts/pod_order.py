"""The order of one job's own pods: which it keeps first, and which it gives up first.

The order in which jobs lose pods to other jobs is `victim_order` (`plan.allocation.preemption.candidates`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from elastic_worker.contract import ROLE_MASTER


class _HasRole(Protocol):
    """The part of a pod that its order in the job depends on: its role, and its index among the pods of that role."""

    @property
    def role(self) -> str: ...
    @property
    def index(self) -> int: ...


class _Pod(_HasRole, Protocol):
    """A pod that exists. Its uid breaks a tie."""

    @property
    def uid(self) -> str: ...


R = TypeVar("R", bound=_HasRole)
P = TypeVar("P", bound=_Pod)


def master_first(pod: _HasRole) -> tuple[bool, int]:
    """A key to sort by: the master, then workers by index."""
    return pod.role != ROLE_MASTER, pod.index


def master_in(pods: Sequence[R]) -> R | None:
    """The master, which is the first of these pods; None if they have no master."""
    return pods[0] if pods and pods[0].role == ROLE_MASTER else None


def keep_order(pod: _Pod) -> tuple[bool, int, str]:
    """A key to sort existing pods by, the pod to keep longest first: the master, then workers by index."""
    return *master_first(pod), pod.uid


def release_order(pods: Iterable[P]) -> list[P]:
    """The pods in the order in which the job gives them up: the highest worker index first, the master last."""
    return sorted(pods, key=keep_order, reverse=True)
