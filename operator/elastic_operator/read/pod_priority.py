"""Decides which PriorityClass the pods of a job may have (97), and finds the lowest priority that they get. `priority`
reads the class that orders the job among jobs.

Pods of jobs never preempt others (`preemptionPolicy: Never`): the operator reclaims GPUs by teams' shares, and
kube-scheduler would not. If a template names a class that preempts, the pods get the operator's own classes instead,
and the job gets a condition. The job is not refused, because it may run already, and its class may have been deleted
since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elastic_api.job import JobSpec
from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.text import Reason
from elastic_operator.read.priority import default_priority
from elastic_operator.settings import Settings
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER

WITHOUT_CLASSES = {ROLE_MASTER: 1, ROLE_WORKER: 0}
"""The priorities of pods whose PriorityClass is not known (yet). They are those of the operator's own classes (9)."""
NEVER = "Never"
_REMEDY = (
    " Pods of jobs never preempt others, so they have the operator's own PriorityClasses instead. Name a class with"
    " preemptionPolicy Never, or leave the field out; spec.priorityClassName says which jobs go first."
)


class PodPriorities:
    """The PriorityClasses as they are now."""

    def __init__(self, classes: Store[objects.PriorityClass], settings: Settings) -> None:
        self._classes = classes
        self._ours = {
            ROLE_MASTER: settings.master_priority_class_name,
            ROLE_WORKER: settings.worker_priority_class_name,
        }

    def lowest_of_pods(self, spec: JobSpec, *, has_own_class: bool) -> int:
        """The lowest priority that the API server gives the pods. With `has_own_class` they get the operator's classes
        instead of the templates'.
        """
        return min(self._of_pod(spec, role, has_own_class) for role in (ROLE_MASTER, ROLE_WORKER))

    def _of_pod(self, spec: JobSpec, role: str, has_own_class: bool) -> int:
        theirs = "" if has_own_class else spec.template_of(role)["spec"].get("priorityClassName") or ""
        if class_name := theirs or self._ours[role]:
            named = self._classes.named(class_name)
            return named.value if named else WITHOUT_CLASSES[role]
        return default_priority(self._classes)

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


def _in_use(spec: JobSpec) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The field and the pod's spec of each template in use: without `spec.template` if both roles have their own."""
    roles = {"spec.master.template": spec.master, "spec.worker.template": spec.worker}
    for at, own in roles.items():
        if own is not None:
            yield f"{at}.spec", own.template["spec"]
    if None in roles.values():
        yield "spec.template.spec", spec.template["spec"]
