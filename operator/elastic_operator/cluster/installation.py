"""Decides which installation leads in this cluster: two operators would grant the same GPUs twice (81).

A Lease belongs to one namespace, and has no effect on operators of another. The chart's PriorityClasses belong to no
namespace. They name the namespace that they were installed for, and an operator of any other namespace stands by. If
several disagree, the oldest counts. If none names one, as without the chart, every installation decides.
"""

from __future__ import annotations

import asyncio

from elastic_operator.cluster.objects import ANNOTATION_OPERATOR_NAMESPACE, PriorityClass
from elastic_operator.cluster.store import Store


class Installation:
    """Whether the operator in `namespace` decides. `classes` must be complete before it is asked."""

    def __init__(self, namespace: str, classes: Store[PriorityClass]) -> None:
        self._namespace, self._classes = namespace, classes
        self._changed = asyncio.Event()
        classes.subscribe(lambda _old, _new: self._changed.set())

    def elsewhere(self) -> str:
        """Why the operator does not decide, and the remedy; "" if it decides."""
        marked = [priority_class for priority_class in self._classes if _owner(priority_class)]
        oldest = min(
            marked, key=lambda found: (found.metadata.creation_timestamp or "", found.metadata.name), default=None
        )
        if oldest is None or _owner(oldest) == self._namespace:
            return ""
        names = " ".join(sorted(found.metadata.name for found in marked if _owner(found) != self._namespace))
        return (
            f"PriorityClass {oldest.metadata.name} belongs to the operator in namespace {_owner(oldest)!r}. This"
            f" operator, in namespace {self._namespace!r}, stands by. Uninstall one of the two, or let this one decide:"
            f" kubectl annotate --overwrite priorityclass {names}"
            f" {ANNOTATION_OPERATOR_NAMESPACE}={self._namespace}"
        )

    async def wait_until(self, *, ours: bool) -> None:
        """Return once the operator decides, or once it does not."""
        while ours == bool(self.elsewhere()):
            self._changed.clear()
            await self._changed.wait()


def _owner(priority_class: PriorityClass) -> str:
    return priority_class.metadata.annotations.operator_namespace
