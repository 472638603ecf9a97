"""Makes the shapes of each job's pods, from the job's spec and the volumes, classes and flavors that the spec names.

A shape is kept until one of these changes, because it costs far more to read a template than to find it unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from elastic_api.elastic import requested_template
from elastic_api.job import JobSpec
from elastic_api.ports import declared_ports, master_port
from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.memory import KeyedCache, LastSeen
from elastic_operator.plan.facts.allocation_inputs import JobShape, PodShape
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.job_shape import job_shape
from elastic_operator.plan.facts.pod_shape import VolumeFacts, shape_of
from elastic_operator.settings import Settings
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER

WITHOUT_CLASSES = {ROLE_MASTER: 1, ROLE_WORKER: 0}
"""The priorities of pods whose PriorityClass is not known (yet). They are those of the operator's own classes (9)."""


class _Key(NamedTuple):
    """The inputs of a shape: the job's spec and namespace, the volumes of the claims that the spec names, and the
    priorities of the job's pods.
    """

    generation: int
    namespace: str
    volumes: VolumeFacts
    priorities: tuple[int, int]


class Shapes:
    """The shapes of all jobs that were asked for."""

    def __init__(
        self,
        settings: Settings,
        *,
        claims: Store[objects.PersistentVolumeClaim],
        volumes: Store[objects.PersistentVolume],
        classes: Store[objects.PriorityClass],
    ) -> None:
        self._settings, self._claims, self._volumes, self._classes = settings, claims, volumes, classes
        self._gpu_resources, self._flavors = settings.allocation.gpu_resources, settings.allocation.flavors
        self._shapes: KeyedCache[_Key, JobShape] = KeyedCache()
        self._volumes_seen: LastSeen[tuple[int, int]] = LastSeen()

    def forget_deleted(self, present: Set[str]) -> None:
        """Forget deleted jobs; `present` are the uids of the existing ones."""
        self._shapes.drop_absent(present)

    def take_moved(self) -> Iterator[str]:
        """Take the jobs (uids) whose volumes have changed since the last call of `shape_of`. Only these jobs must be
        read again.
        """
        if not self._volumes_seen.changed((self._claims.revision, self._volumes.revision)):
            return
        for uid in self._shapes.names():
            key, _ = self._shapes.peek(uid) or (None, None)
            if key is not None and self.volumes(key.namespace, key.volumes) != key.volumes:
                yield uid

    def shape(self, job: Job, role: str) -> PodShape:
        """The shape of a pod of that role, from the last result of `shape_of` for that job."""
        _, shape = self._shapes.peek(job.uid) or (None, None)
        assert shape is not None, "asked of jobs for which `shape_of` was called"
        return shape.master if role == ROLE_MASTER else shape.worker

    def shape_of(self, job: Job) -> JobShape:
        """The shapes of the job's pods; the same object while they do not change."""
        last, _ = self._shapes.peek(job.uid) or (None, None)
        claims = last.volumes if last is not None and last.generation == job.generation else _claims(job)
        volumes = self.volumes(job.namespace, claims)
        priorities = self._priority_of(job, ROLE_MASTER), self._priority_of(job, ROLE_WORKER)
        key = _Key(job.generation, job.namespace, volumes, priorities)
        return self._shapes.get(job.uid, key, self._shape, job, volumes, priorities)

    def volumes(self, namespace: str, claims: Iterable[str]) -> VolumeFacts:
        """The known facts on the volumes of these claims."""
        return {name: self._claim_state(namespace, name) for name in claims}

    def _shape(self, job: Job, volumes: VolumeFacts, priorities: tuple[int, int]) -> JobShape:
        spec = _readable(job)
        of_master, of_worker = (requested_template(spec, role) for role in (ROLE_MASTER, ROLE_WORKER))
        master = worker = shape_of(of_master, gpu_resources=self._gpu_resources, volumes=volumes)
        if of_worker != of_master:
            worker = shape_of(of_worker, gpu_resources=self._gpu_resources, volumes=volumes)
        port = master_port(job.uid, spec)
        if ours := {("", "TCP", each) for each in declared_ports(port, ROLE_MASTER, is_elastic=spec.is_elastic)}:
            master = replace(master, host_ports=master.host_ports | ours)
        return job_shape(master, worker, flavors=self._flavors, priorities=priorities)

    def _priority_of(self, job: Job, role: str) -> int:
        """The priority that the API server gives a pod of that role."""
        settings = self._settings
        ours = settings.master_priority_class_name if role == ROLE_MASTER else settings.worker_priority_class_name
        theirs = "" if job.context.has_own_class else _class_name(_readable(job).template_of(role))
        if class_name := theirs or ours:
            named = self._classes.named(class_name)
            return named.value if named else WITHOUT_CLASSES[role]
        return next(
            (priority_class.value for priority_class in self._classes.values() if priority_class.global_default), 0
        )

    def _claim_state(self, namespace: str, name: str) -> Literal["bound", "unbound", "zonal"]:
        claim = self._claims.named(name, namespace)
        if claim is None or not claim.bound:
            return "unbound"
        volume = self._volumes.named(claim.spec.volume_name)
        return "bound" if volume and volume.spec.node_affinity is None else "zonal"


def _readable(job: Job) -> JobSpec:
    assert job.spec is not None, "only a job whose spec can be read has shapes"
    return job.spec


def _claims(job: Job) -> frozenset[str]:
    """The volume claims, in its namespace, that the job's templates name."""
    templates = (_readable(job).template_of(role) for role in (ROLE_MASTER, ROLE_WORKER))
    volumes = (volume for template in templates for volume in template["spec"].get("volumes") or ())
    return frozenset(v["persistentVolumeClaim"]["claimName"] for v in volumes if v.get("persistentVolumeClaim"))


def _class_name(template: Mapping[str, Any]) -> str:
    return template["spec"].get("priorityClassName") or ""
