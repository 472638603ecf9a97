"""The roles of a job's pods, and the order of pods by role."""

from __future__ import annotations

from typing import Protocol

from elastic_worker.contract import ROLE_MASTER


class _Pod(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def index(self) -> int: ...


def master_first(pod: _Pod) -> tuple[bool, int]:
    """A key to sort by: the master, then workers by index. Pods go in the reverse order."""
    return pod.role != ROLE_MASTER, pod.index
