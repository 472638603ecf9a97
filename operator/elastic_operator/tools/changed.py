"""A snapshot as it would be after changes to jobs and quota policies, when their pods have come and gone.

A snapshot holds the teams that policies make, not the policies; they are made again from the teams. It holds no labels
of namespaces, volumes or PriorityClasses: the changes must contain those they need, or a note names what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elastic_api.job import JobSpec
from elastic_api.policy import Borrowing, FlavorQuota, Lending, PerJob, PolicySpec, Reclaim, TimeSharing
from elastic_api.status import JobStatus
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.pod_shape import shape_of
from elastic_operator.plan.facts.roles import MASTER, WORKER
from elastic_operator.plan.facts.snapshot import JobDemand, PodShape, Snapshot
from elastic_operator.plan.facts.team import Team
from elastic_operator.plan.job.demand import demand_of, job_shape
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.policies.resolve import Namespace, Policy, resolve
from elastic_operator.read.priority import not_allowed
from elastic_operator.settings import Settings
from elastic_operator.tools.files import InputError
from elastic_operator.tools.manifests import Changes

NAME_LABEL = "kubernetes.io/metadata.name"
"""Every namespace has it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The snapshot after the changes, and notes about it."""

    snapshot: Snapshot
    notes: tuple[str, ...]


def changed(snapshot: Snapshot, changes: Changes, settings: Settings) -> Changed:
    """Apply the changes, as an operator with these settings would read them.

    Raises InputError if they refer to an object that does not exist.
    """
    notes = list(_drop_classes_not_allowed(changes, settings))
    mistakes = [*_not_there(snapshot, changes), *_unknown_priorities(snapshot, changes)]
    if mistakes:
        raise InputError(mistakes)
    if changes.policies or changes.deleted_policies:
        snapshot = _with_policies(snapshot, changes, notes)
    return Changed(replace(snapshot, jobs=tuple(_jobs(snapshot, changes))), tuple(notes))


def _not_there(snapshot: Snapshot, changes: Changes) -> Iterator[str]:
    jobs = {(job.namespace, job.name) for job in snapshot.jobs}
    policies = {team.name for team in snapshot.teams if team.has_policy}
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


def _unknown_priorities(snapshot: Snapshot, changes: Changes) -> Iterator[str]:
    """A new job's priority must be known. A job of the snapshot may keep its priority."""
    known = {(job.namespace, job.name) for job in snapshot.jobs}
    for key, spec in changes.jobs.items():
        if spec.priority_class_name and key not in known and spec.priority_class_name not in changes.priority_classes:
            yield (
                f"ElasticPyTorchJob {'/'.join(key)}: spec.priorityClassName: {spec.priority_class_name!r}:"
                " must be a PriorityClass that stands in the changes too: a snapshot does not know them"
            )


def _jobs(snapshot: Snapshot, changes: Changes) -> Iterator[JobDemand]:
    """The jobs after the changes; suspended ones are among them and want no pods."""
    known = {(job.namespace, job.name): job for job in snapshot.jobs}
    for key, job in known.items():
        if key not in changes.deleted_jobs and key not in changes.jobs:
            yield job
    for key, spec in changes.jobs.items():
        if key not in changes.deleted_jobs:
            yield _job(snapshot, known.get(key), key, spec, changes.priority_classes)


def _job(
    snapshot: Snapshot, known: JobDemand | None, key: tuple[str, str], spec: JobSpec, priorities: Mapping[str, int]
) -> JobDemand:
    namespace, name = key
    priority = priorities.get(spec.priority_class_name, known.priority if known else 0)
    job = Job(
        namespace=namespace,
        name=name,
        uid=known.uid if known else f"simulated/{namespace}/{name}",
        generation=1,
        created=known.created if known else snapshot.now,
        status=JobStatus(),
        spec=spec,
        priority=priority,
    )
    master, worker = (_shape(spec.template_of(role), snapshot) for role in (MASTER, WORKER))
    fresh = demand_of(Observation(job, job.status), job_shape(master, worker, flavors=snapshot.flavors))
    return fresh if known is None else _going_on(fresh, known)


def _going_on(fresh: JobDemand, known: JobDemand) -> JobDemand:
    """The demand of an edited job, with its pods and times as they were."""
    return replace(
        fresh,
        members=known.members,
        taken_indices=known.taken_indices,
        holds_place=known.holds_place,
        running_since=known.running_since,
        waiting_since=known.waiting_since,
        pod_priorities=known.pod_priorities,
    )


def _shape(template: Mapping[str, Any], snapshot: Snapshot) -> PodShape:
    """The shape of a template. Volume claims count as bound to volumes that every node reaches."""
    volumes = [v.get("persistentVolumeClaim") or {} for v in template["spec"].get("volumes") or ()]
    bound = {claim["claimName"]: "bound" for claim in volumes if claim}
    return shape_of(template, gpu_resources=snapshot.gpu_resources, volumes=bound)  # type: ignore[arg-type]


# -- policies ----------------------------------------------------------------------------------------------------------


def _with_policies(snapshot: Snapshot, changes: Changes, notes: list[str]) -> Snapshot:
    policies = {team.name: _policy_of(team, snapshot.team_of) for team in snapshot.teams if team.has_policy}
    for name in changes.deleted_policies:
        del policies[name]
    for name, spec in changes.policies.items():
        known = policies.get(name)
        if known is None:
            policies[name] = Policy(f"simulated/{name}", name, snapshot.now, spec)
        else:
            policies[name] = replace(known, spec=spec)
    resolved = resolve(
        policies.values(), _namespaces(snapshot, changes), flavors=[flavor.name for flavor in snapshot.flavors]
    )
    names = {policy.uid: policy.name for policy in policies.values()}
    notes += [f"{names[uid]}: {p.message}" for uid, found in sorted(resolved.problems.items()) for p in found]
    notes += _blind_selectors(changes)
    others = tuple(team for team in snapshot.teams if not team.has_policy)
    return replace(snapshot, teams=(*resolved.teams, *others), team_of=resolved.team_of)


def _policy_of(team: Team, team_of: Mapping[str, str]) -> Policy:
    """A policy that makes this team. Teams of a snapshot need not fit the bounds of the CRD."""
    spec = PolicySpec.model_construct(
        namespaces=sorted(namespace for namespace, owner in team_of.items() if owner == team.name),
        parent=team.parent,
        flavors=list(_flavor_quotas(team)),
        priority=team.priority,
        per_job=PerJob.model_construct(max_gpus=team.max_gpus_per_job),
        reclaim=Reclaim.model_construct(min_runtime_seconds=team.min_runtime_seconds),
        time_sharing=TimeSharing.model_construct(quantum_seconds=team.quantum_seconds)
        if team.quantum_seconds
        else None,
    )
    return Policy(team.uid or team.name, team.name, team.created, spec)


def _flavor_quotas(team: Team) -> Iterator[FlavorQuota]:
    for flavor, quota in team.quotas.items():
        yield FlavorQuota.model_construct(
            name=flavor,
            guaranteed=quota.guaranteed,
            borrowing=Borrowing.model_construct(limit=quota.borrow_limit, weight=quota.weight),
            lending=Lending.model_construct(limit=quota.lend_limit),
        )


def _namespaces(snapshot: Snapshot, changes: Changes) -> list[Namespace]:
    """All namespaces that are mentioned, with the labels that are known."""
    names = {job.namespace for job in snapshot.jobs} | {request.namespace for request in snapshot.requests}
    names |= {namespace for node in snapshot.nodes for namespace in (*node.used_by, *node.leaving_by)}
    names |= {*snapshot.team_of, *changes.namespaces, *(namespace for namespace, _ in changes.jobs)}
    return [Namespace(name, {**changes.namespaces.get(name, {}), NAME_LABEL: name}) for name in sorted(names)]


def _blind_selectors(changes: Changes) -> Iterator[str]:
    for name, spec in sorted(changes.policies.items()):
        if spec.namespace_selector is not None and not changes.namespaces:
            yield (
                f"{name}: spec.namespaceSelector: a snapshot does not know the labels of namespaces;"
                " put their manifests into the changes, or name them in spec.namespaces."
            )
