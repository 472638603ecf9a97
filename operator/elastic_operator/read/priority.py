"""Finds a job's priority among jobs, from the PriorityClass that the job names. If that class does not count, says why
(96).

The class orders jobs only, and no pod gets it. So a ResourceQuota with a scope of PriorityClass does not limit its use;
the setting `jobPriorityClassNames` does.
"""

from __future__ import annotations

from typing import NamedTuple

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.text import Reason, listed
from elastic_operator.settings import Settings


class Priority(NamedTuple):
    """The value. If the class that the job names does not count, `ignored` says why."""

    value: int
    ignored: Reason | None = None


def priority_of(class_name: str, classes: Store[objects.PriorityClass], settings: Settings) -> Priority:
    """The priority of a job that names this class ("" = none). It is 0 if jobs may not name the class, or if the class
    does not exist.

    A missing class is no mistake of the job: somebody may have deleted the class while the job runs.
    """
    if not class_name:
        return Priority(default_priority(classes))
    if not settings.job_may_name(class_name):
        allowed = settings.job_priority_class_names
        instead = f"one of {listed(allowed)}" if allowed else "one whose name does not begin with 'system-'"
        text = (
            f"spec.priorityClassName is {class_name!r}, which jobs may not name (the operator's setting"
            f" jobPriorityClassNames). The job has priority 0. Write {instead}, or leave the field out."
        )
        return Priority(0, Reason("PriorityClassNotAllowed", text))
    named = classes.named(class_name)
    if named:
        return Priority(named.value)
    text = (
        f"spec.priorityClassName is {class_name!r}, and there is no such PriorityClass."
        " The job has priority 0. Create the class, or leave the field out."
    )
    return Priority(0, Reason("NoSuchPriorityClass", text))


def default_priority(classes: Store[objects.PriorityClass]) -> int:
    """The priority of whatever names no class: that of the cluster's default class, else 0."""
    return next((priority_class.value for priority_class in classes.values() if priority_class.global_default), 0)
