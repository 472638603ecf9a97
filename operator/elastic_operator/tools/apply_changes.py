"""A snapshot as it would be after changes to jobs and quota policies, with all their pods created or deleted.

A snapshot holds no volumes: those of changed jobs count as bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from elastic_api.job import JobSpec
from elastic_api.status import ConditionType, JobStatus
from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.job_shape import claims_of, shape_of_spec
from elastic_operator.plan.policies.resolve import Namespace, Policy
from elastic_operator.read.pod_priority import PodPriorities
from elastic_operator.read.priority import priority_of
from elastic_operator.settings import Settings
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot, SnapshotJob
from elastic_operator.tools.files import InputError
from elastic_operator.tools.manifests import Changes
from elastic_operator.tools.snapshot_view import SnapshotView

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
    if mistakes := list(_not_there(snapshot, changes)):
        raise InputError(mistakes)
    after = replace(
        snapshot,
        jobs=tuple(_jobs(snapshot, changes, settings)),
        policies=tuple(_policies(snapshot, changes)),
        namespaces=tuple(_namespaces(snapshot, changes)),
    )
    changed = (job.facts for job in after.jobs if (job.facts.namespace, job.facts.name) in changes.jobs)
    notes = [note for job in changed for note in _ignored(job)]
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


def _jobs(snapshot: ClusterSnapshot, changes: Changes, settings: Settings) -> Iterator[SnapshotJob]:
    """The jobs after the changes. Suspended jobs are among them, and want no pods."""
    known = {(job.facts.namespace, job.facts.name): job for job in snapshot.jobs}
    classes: Store[objects.PriorityClass] = Store()
    for each in ({each.metadata.name: each for each in snapshot.priority_classes} | changes.priority_classes).values():
        classes.observe(each)
    for key, job in known.items():
        if key not in changes.deleted_jobs and key not in changes.jobs:
            yield job
    for key, spec in changes.jobs.items():
        if key in changes.deleted_jobs:
            continue
        job = _edited(known[key], spec) if key in known else SnapshotJob(_new(snapshot, key, spec))
        yield _read_again(job, spec, snapshot.settings, classes, settings)


def _new(snapshot: ClusterSnapshot, key: tuple[str, str], spec: JobSpec) -> Job:
    namespace, name = key
    return Job(
        namespace=namespace,
        name=name,
        uid=f"simulated/{namespace}/{name}",
        generation=1,
        created=snapshot.now,
        status=JobStatus(),
        spec=spec,
    )


def _edited(known: SnapshotJob, spec: JobSpec) -> SnapshotJob:
    """The job after the edit, with its old pods and status. Errors of the old spec are dropped."""
    job = known.facts
    facts = replace(
        job,
        spec=spec,
        generation=job.generation + 1,
        feedback=replace(job.feedback, pods_rejected_until_edit="", pods_rejected=""),
        invalid="",
        quarantine=None,
    )
    return replace(known, facts=facts)


def _read_again(
    job: SnapshotJob,
    spec: JobSpec,
    allocation: AllocationSettings,
    classes: Store[objects.PriorityClass],
    settings: Settings,
) -> SnapshotJob:
    """The job with the priority and the shape that the operator reads from the spec. Volume claims count as bound."""
    priority, pods = priority_of(spec.priority_class_name, classes, settings), PodPriorities(classes, settings)
    ignored = {
        ConditionType.PRIORITY_IGNORED: priority.ignored,
        ConditionType.POD_PRIORITY_IGNORED: pods.why_dropped(spec),
    }
    kept = {kind: reason for kind, reason in job.facts.context.warnings.items() if kind not in ignored}
    warnings = kept | {kind: reason for kind, reason in ignored.items() if reason is not None}
    context = replace(job.facts.context, priority=priority.value, warnings=warnings)
    shape = shape_of_spec(
        spec,
        job.facts.uid,
        settings=allocation,
        volumes=dict.fromkeys(claims_of(spec), "bound"),
        lowest_priority=pods.lowest_of_pods(spec, has_own_class=context.has_own_class),
    )
    return replace(job, facts=replace(job.facts, context=context), shape=shape)


def _ignored(job: Job) -> Iterator[str]:
    """The classes of the job that do not count, as its conditions would say it (96, 97)."""
    for kind in (ConditionType.PRIORITY_IGNORED, ConditionType.POD_PRIORITY_IGNORED):
        if kind in job.context.warnings:
            yield f"{job.key}: {job.context.warnings[kind].message}"


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
