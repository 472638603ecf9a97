"""A snapshot as it would be after changes to jobs and quota policies, with all their pods created or deleted.

A snapshot holds neither volumes nor PriorityClasses: the changes must contain those they need, or a note names what is
missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elastic_api.job import JobSpec
from elastic_api.status import JobStatus
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings, JobShape, PodShape
from elastic_operator.plan.facts.job import Job, JobContext
from elastic_operator.plan.facts.job_shape import job_shape
from elastic_operator.plan.facts.pod_shape import shape_of
from elastic_operator.plan.policies.resolve import Namespace, Policy
from elastic_operator.read.priority import not_allowed
from elastic_operator.settings import Settings
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot, SnapshotJob
from elastic_operator.tools.files import InputError
from elastic_operator.tools.manifests import Changes
from elastic_operator.tools.snapshot_view import SnapshotView
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER

NAME_LABEL = "kubernetes.io/metadata.name"
"""Every namespace has it."""


@dataclass(frozen=True, slots=True)
class ChangedSnapshot:
    """The snapshot after the changes, and notes about it."""

    snapshot: ClusterSnapshot
    notes: tuple[str, ...]


def apply_changes(snapshot: ClusterSnapshot, changes: Changes, settings: Settings) -> ChangedSnapshot:
    """Apply the changes, as an operator with these settings would read them.

    Raises InputError if the changes refer to an object that does not exist.
    """
    notes = list(_drop_classes_not_allowed(changes, settings))
    mistakes = [*_not_there(snapshot, changes), *_unknown_priorities(snapshot, changes)]
    if mistakes:
        raise InputError(mistakes)
    after = replace(
        snapshot,
        jobs=tuple(_jobs(snapshot, changes)),
        policies=tuple(_policies(snapshot, changes)),
        namespaces=tuple(_namespaces(snapshot, changes)),
    )
    if changes.policies or changes.deleted_policies:
        notes += _problems(after)
    return ChangedSnapshot(after, tuple(notes))


def _not_there(snapshot: ClusterSnapshot, changes: Changes) -> Iterator[str]:
    jobs = {(job.facts.namespace, job.facts.name) for job in snapshot.jobs}
    policies = {policy.name for policy in snapshot.policies}
    for namespace, name in sorted(changes.deleted_jobs - jobs):
        yield f"--delete: 'job/{namespace}/{name}': must be a job of the snapshot"
    for name in sorted(changes.deleted_policies - policies):
        yield f"--delete: 'policy/{name}': must be a policy of the snapshot"


# -- jobs --------------------------------------------------------------------------------------------------------------


def _drop_classes_not_allowed(changes: Changes, settings: Settings) -> Iterator[str]:
    """A class that jobs may not name counts as 0, whatever its value; a note says so, as the job's condition would
    (96).
    """
    for key, spec in changes.jobs.items():
        name = spec.priority_class_name
        if name and not settings.job_may_name(name):
            changes.priority_classes[name] = 0
            yield f"{'/'.join(key)}: {not_allowed(name, settings)}"


def _unknown_priorities(snapshot: ClusterSnapshot, changes: Changes) -> Iterator[str]:
    """A job's priority must be known. A job of the snapshot keeps its priority with its class."""
    known = {(job.facts.namespace, job.facts.name): job.facts for job in snapshot.jobs}
    for key, spec in changes.jobs.items():
        keeps = key in known and _keeps_class(known[key], spec)
        if spec.priority_class_name and not keeps and spec.priority_class_name not in changes.priority_classes:
            yield (
                f"ElasticPyTorchJob {'/'.join(key)}: spec.priorityClassName: {spec.priority_class_name!r}:"
                " must be a PriorityClass that stands in the changes too: a snapshot does not know them"
            )


def _jobs(snapshot: ClusterSnapshot, changes: Changes) -> Iterator[SnapshotJob]:
    """The jobs after the changes. Suspended jobs are among them, and want no pods."""
    known = {(job.facts.namespace, job.facts.name): job for job in snapshot.jobs}
    for key, job in known.items():
        if key not in changes.deleted_jobs and key not in changes.jobs:
            yield job
    for key, spec in changes.jobs.items():
        if key not in changes.deleted_jobs:
            yield _job(snapshot, known.get(key), key, spec, changes.priority_classes)


def _job(
    snapshot: ClusterSnapshot,
    known: SnapshotJob | None,
    key: tuple[str, str],
    spec: JobSpec,
    priorities: Mapping[str, int],
) -> SnapshotJob:
    shape = _shape(spec, snapshot.settings)
    if known is None:
        return SnapshotJob(_new(snapshot, key, spec, priorities.get(spec.priority_class_name, 0)), shape)
    return replace(known, facts=_edited(known.facts, spec, priorities), shape=_for_pods_like(known.shape, shape))


def _new(snapshot: ClusterSnapshot, key: tuple[str, str], spec: JobSpec, priority: int) -> Job:
    namespace, name = key
    return Job(
        namespace=namespace,
        name=name,
        uid=f"simulated/{namespace}/{name}",
        generation=1,
        created=snapshot.now,
        status=JobStatus(),
        spec=spec,
        context=JobContext(priority=priority),
    )


def _edited(job: Job, spec: JobSpec, priorities: Mapping[str, int]) -> Job:
    """The job after the edit, with its old pods and status. Errors of the old spec are dropped."""
    context = job.context
    unlisted = context.priority if _keeps_class(job, spec) else 0
    return replace(
        job,
        spec=spec,
        generation=job.generation + 1,
        context=replace(context, priority=priorities.get(spec.priority_class_name, unlisted)),
        feedback=replace(job.feedback, pods_rejected_until_edit="", pods_rejected=""),
        invalid="",
        quarantine=None,
    )


def _keeps_class(job: Job, spec: JobSpec) -> bool:
    """Whether the edit leaves the job its PriorityClass. The class of a job with an unreadable spec is unknown."""
    return job.spec is None or job.spec.priority_class_name == spec.priority_class_name


def _for_pods_like(known: JobShape | None, shape: JobShape) -> JobShape:
    return shape if known is None else replace(shape, priorities=known.priorities)


def _shape(spec: JobSpec, settings: AllocationSettings) -> JobShape:
    master, worker = (_pod_shape(spec.template_of(role), settings) for role in (ROLE_MASTER, ROLE_WORKER))
    return job_shape(master, worker, flavors=settings.flavors)


def _pod_shape(template: Mapping[str, Any], settings: AllocationSettings) -> PodShape:
    """The shape of a template. Volume claims count as bound to volumes that every node reaches."""
    volumes = [v.get("persistentVolumeClaim") or {} for v in template["spec"].get("volumes") or ()]
    bound = {claim["claimName"]: "bound" for claim in volumes if claim}
    return shape_of(template, gpu_resources=settings.gpu_resources, volumes=bound)  # type: ignore[arg-type]


# -- policies ----------------------------------------------------------------------------------------------------------


def _policies(snapshot: ClusterSnapshot, changes: Changes) -> Iterator[Policy]:
    known = {policy.name for policy in snapshot.policies}
    for policy in snapshot.policies:
        if policy.name in changes.deleted_policies:
            continue
        spec = changes.policies.get(policy.name)
        yield policy if spec is None else replace(policy, spec=spec, invalid="", fault="")
    for name, spec in changes.policies.items():
        if name not in known and name not in changes.deleted_policies:
            yield Policy(f"simulated/{name}", name, snapshot.now, spec)


def _namespaces(snapshot: ClusterSnapshot, changes: Changes) -> Iterator[Namespace]:
    """The existing namespaces, and those of the changes and of their jobs."""
    known = {namespace.name: namespace.labels for namespace in snapshot.namespaces}
    labels = {namespace: known.get(namespace, {}) for namespace, _ in changes.jobs} | known | changes.namespaces
    for name in sorted(labels):
        yield Namespace(name, {**labels[name], NAME_LABEL: name})


def _problems(after: ClusterSnapshot) -> Iterator[str]:
    names = {policy.uid: policy.name for policy in after.policies}
    for uid, found in sorted(SnapshotView(after).policies.problems.items()):
        yield from (f"{names[uid]}: {problem.message}" for problem in found)
