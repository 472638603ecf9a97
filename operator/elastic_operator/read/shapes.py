"""Makes the shapes of each job's pods, from the job's spec and the volumes, classes and flavors that the spec names.

A shape is kept until one of these changes, because it costs far more to read a template than to find it unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from functools import partial
from typing import Literal, NamedTuple

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.memory import KeyedCache, LastSeen
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.job_shape import claims_of, shape_of_spec
from elastic_operator.plan.facts.pod_shape import VolumeFacts
from elastic_operator.plan.facts.requirements import JobShape, PodShape
from elastic_operator.read.pod_priority import PodPriorities
from elastic_operator.settings import Settings


class _Key(NamedTuple):
    """The inputs of a shape: the job's spec and namespace, the volumes of the claims that the spec names, and the
    lowest priority of the job's pods.
    """

    generation: int
    namespace: str
    volumes: VolumeFacts
    lowest_priority: int


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
        self._settings, self._claims, self._volumes = settings.allocation, claims, volumes
        self._priorities = PodPriorities(classes, settings)
        self._shapes: KeyedCache[_Key, JobShape] = KeyedCache()
        self._volumes_seen: LastSeen[tuple[int, int]] = LastSeen()

    def forget_deleted(self, present: Set[str]) -> None:
        self._shapes.drop_absent(present)

    def take_moved(self) -> Iterator[str]:
        """Take the jobs (uids) whose volumes have changed since the last call of `shape_of`. Only these jobs must be
        read again.
        """
        if not self._volumes_seen.changed((self._claims.revision, self._volumes.revision)):
            return
        for uid, (key, _) in self._shapes.items():
            if self.volumes(key.namespace, key.volumes) != key.volumes:
                yield uid

    def shape(self, job: Job, role: str) -> PodShape:
        """The shape of a pod of that role, from the last result of `shape_of` for that job."""
        _, shape = self._shapes.peek(job.uid) or (None, None)
        assert shape is not None, "asked of jobs for which `shape_of` was called"
        return shape.of(role)

    def shape_of(self, job: Job) -> JobShape:
        """The shapes of the job's pods; the same object while they do not change."""
        spec, (last, _) = job.spec, self._shapes.peek(job.uid) or (None, None)
        assert spec is not None, "only a job whose spec can be read has shapes"
        claims = last.volumes if last is not None and last.generation == job.generation else claims_of(spec)
        volumes = self.volumes(job.namespace, claims)
        lowest = self._priorities.lowest_of_pods(spec, has_own_class=job.context.has_own_class)
        key = _Key(job.generation, job.namespace, volumes, lowest)
        make = partial(shape_of_spec, settings=self._settings, volumes=volumes, lowest_priority=lowest)
        return self._shapes.get(job.uid, key, make, spec, job.uid)

    def volumes(self, namespace: str, claims: Iterable[str]) -> VolumeFacts:
        """The known facts on the volumes of these claims."""
        return {name: self._claim_state(namespace, name) for name in claims}

    def _claim_state(self, namespace: str, name: str) -> Literal["bound", "unbound", "zonal"]:
        claim = self._claims.named(name, namespace)
        if claim is None or not claim.bound:
            return "unbound"
        volume = self._volumes.named(claim.spec.volume_name)
        return "bound" if volume and volume.spec.node_affinity is None else "zonal"
