"""Decides which PriorityClass the pods of a job may have (97). `priority` reads the class that orders the job among
jobs.

Pods of jobs never preempt others (`preemptionPolicy: Never`): the operator reclaims GPUs by teams' shares, and
kube-scheduler would not. If a template names a class that preempts, the pods get the operator's own classes instead,
and the job gets a condition. The job is not refused, because it may run already, and its class may have been deleted
since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from elastic_api.job import JobSpec
from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.text import Reason

NEVER = "Never"
_REMEDY = (
    " Pods of jobs never preempt others, so they have the operator's own PriorityClasses instead. Name a class with"
    " preemptionPolicy Never, or leave the field out; spec.priorityClassName says which jobs go first."
)


class _TemplateInUse(NamedTuple):
    """A template in use: its field, and its spec."""

    path: str
    pod: Mapping[str, Any]


class PodPriorities:
    """The PriorityClasses as they are now."""

    def __init__(self, classes: Store[objects.PriorityClass]) -> None:
        self._classes = classes

    def why_dropped(self, spec: JobSpec | None) -> Reason | None:
        """A sentence for each field of the templates that the pods do not get; None if they get all fields."""
        sentences = [why for at, pod in _in_use(spec) for why in self._why(at, pod)] if spec else []
        return Reason("PodsNeverPreempt", f"{' '.join(sentences)}{_REMEDY}") if sentences else None

    def _why(self, at: str, pod: Mapping[str, Any]) -> Iterator[str]:
        name = pod.get("priorityClassName")
        named = self._classes.named(name) if name else None
        if named is not None and named.preemption_policy == NEVER:
            return
        if name:
            what = "its pods would preempt others" if named else "there is no such PriorityClass"
            yield f"{at}.priorityClassName is {name!r}, and {what}."
        elif "priority" in pod or pod.get("preemptionPolicy", NEVER) != NEVER:
            field = "priority" if "priority" in pod else "preemptionPolicy"
            yield f"{at}.{field} is {pod[field]!r}, without a class."


def _in_use(spec: JobSpec) -> Iterator[_TemplateInUse]:
    """The templates of the pods: without `spec.template` if both roles have their own."""
    roles = {"spec.master.template": spec.master, "spec.worker.template": spec.worker}
    for at, own in roles.items():
        if own is not None:
            yield _TemplateInUse(f"{at}.spec", own.template["spec"])
    if None in roles.values():
        yield _TemplateInUse("spec.template.spec", spec.template["spec"])
