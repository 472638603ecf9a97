"""From the stores to the facts that decisions are made from. Reads memory only, writes nothing.

Parsed specs and pod shapes are kept per (job, generation): a status update must not cost a parse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from elastic_operator.api.invalid import InvalidSpecError
from elastic_operator.api.job import JobSpec
from elastic_operator.api.parse import parse_spec, parse_status
from elastic_operator.api.status import JobStatus
from elastic_operator.api.template import fingerprint
from elastic_operator.cluster import convert, objects
from elastic_operator.cluster.ledger import Ledger
from elastic_operator.cluster.store import Store
from elastic_operator.plan.demand import demand_of
from elastic_operator.plan.model import Job, JobDemand, Member, Node, OwnPod, PodShape
from elastic_operator.plan.observation import Observation
from elastic_operator.plan.shape import VolumeFacts, shape_of
from elastic_operator.settings import Settings
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER


@dataclass(slots=True)
class Stores:
    """What is known of the cluster."""

    jobs: Store[objects.CustomObject]
    pods: Store[objects.Pod]
    nodes: Store[objects.Node]
    priority_classes: Store[objects.PriorityClass]
    claims: Store[objects.PersistentVolumeClaim]
    volumes: Store[objects.PersistentVolume]
    services: Store[objects.Service]
    slices: Store[objects.EndpointSlice]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A job's spec of one generation: readable, or the message that says why not."""

    generation: int
    spec: JobSpec | None
    invalid: str
    fingerprints: Mapping[str, str] = field(default_factory=dict)


class Reader:
    """Turns stores into `plan` facts."""

    def __init__(self, stores: Stores, ledger: Ledger, settings: Settings) -> None:
        self.stores, self.ledger, self.settings = stores, ledger, settings
        self._parsed: dict[str, Parsed] = {}
        self._statuses: dict[str, tuple[str, JobStatus]] = {}
        self._shapes: dict[str, tuple[object, tuple[PodShape, PodShape]]] = {}

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._parsed.pop(uid, None)
        self._statuses.pop(uid, None)
        self._shapes.pop(uid, None)

    def job(self, body: objects.CustomObject, *, pods: tuple[OwnPod, ...], trouble: str, refused: str) -> Job:
        """One job; `pods` are its own as they are to be seen."""
        meta = body.metadata
        parsed = self._parse(body)
        priority, unknown = self._priority(parsed.spec)
        return Job(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            created=convert.epoch(meta.creation_timestamp or ""),
            status=self._status(body),
            spec=parsed.spec if not unknown else None,
            invalid=parsed.invalid or unknown,
            priority=priority,
            pods=pods,
            foreign_names=self.ledger.foreign_names(meta.uid),
            fingerprints=parsed.fingerprints,
            trouble=trouble,
            refused=refused,
        )

    def _status(self, body: objects.CustomObject) -> JobStatus:
        """The job's status, read once per resourceVersion: most jobs do not change between two passes."""
        meta = body.metadata
        known = self._statuses.get(meta.uid)
        if known is None or known[0] != meta.resource_version:
            known = (meta.resource_version, parse_status({"status": body.status}))
            self._statuses[meta.uid] = known
        return known[1]

    def _parse(self, body: objects.CustomObject) -> Parsed:
        meta = body.metadata
        known = self._parsed.get(meta.uid)
        if known and known.generation == meta.generation:
            return known
        try:
            spec = parse_spec({"spec": body.spec}, gpu_resources=self.settings.gpu_resources)
            prints = {role: fingerprint(spec, role) for role in (ROLE_MASTER, ROLE_WORKER)}
            parsed = Parsed(meta.generation, spec, "", prints)
        except InvalidSpecError as error:
            parsed = Parsed(meta.generation, None, str(error))
        self._parsed[meta.uid] = parsed
        return parsed

    def _priority(self, spec: JobSpec | None) -> tuple[int, str]:
        """The job's priority; a class that does not exist is the user's to mend."""
        if spec is None:
            return 0, ""
        if spec.priority_class_name:
            named = self.stores.priority_classes.named(spec.priority_class_name)
            if named:
                return named.value, ""
            return 0, (
                f"spec.priorityClassName: must be the name of an existing PriorityClass, not"
                f" {spec.priority_class_name!r}; create it, or leave the field out."
            )
        default = next((c for c in self.stores.priority_classes.values() if c.global_default), None)
        return (default.value if default else 0), ""

    def demand(self, seen: Observation) -> JobDemand:
        """The allocator's view of a job that may have pods; pods being created right now count as its members."""
        master, worker = self._shapes_of(seen)
        demand = demand_of(seen, master=master, worker=worker)
        assumed = self.ledger.assumed(seen.job.uid)
        if not assumed:
            return demand
        members = tuple(Member(a.uid, a.role, a.index, a.node, a.requests, a.host_ports) for a in assumed)
        indices = frozenset(m.index for m in members if m.role == "worker")
        return replace(demand, members=demand.members + members, taken_indices=demand.taken_indices | indices)

    def shape(self, job: Job, role: str) -> PodShape:
        """The shape of a pod of that role, as last used for a demand."""
        master, worker = self._shapes[job.uid][1]
        return master if role == "master" else worker

    def _shapes_of(self, seen: Observation) -> tuple[PodShape, PodShape]:
        job, spec = seen.job, seen.job.spec
        assert spec is not None
        volumes = self._volume_facts(job.namespace, spec)
        key = (job.generation, tuple(sorted(volumes.items())))
        known = self._shapes.get(job.uid)
        if known and known[0] == key:
            return known[1]
        master = shape_of(spec.template_of("master"), gpu_resources=self.settings.gpu_resources, volumes=volumes)
        worker = shape_of(spec.template_of("worker"), gpu_resources=self.settings.gpu_resources, volumes=volumes)
        self._shapes[job.uid] = (key, (master, worker))
        return master, worker

    def _volume_facts(self, namespace: str, spec: JobSpec) -> VolumeFacts:
        names = {name for role in ("master", "worker") for name in _claims(spec.template_of(role))}
        return {name: self._claim_state(namespace, name) for name in names}

    def _claim_state(self, namespace: str, name: str) -> Literal["bound", "unbound", "zonal"]:
        claim = self.stores.claims.named(name, namespace)
        if claim is None or not claim.bound:
            return "unbound"
        volume = self.stores.volumes.named(claim.spec.volume_name)
        return "bound" if volume and volume.spec.node_affinity is None else "zonal"

    def nodes(self, members: frozenset[str], leaving: Iterable[OwnPod]) -> tuple[Node, ...]:
        """All nodes with their use; `members` are listed in the snapshot's jobs, `leaving` are about to be deleted."""
        going: dict[str, list[OwnPod]] = {}
        for pod in leaving:
            if pod.node and pod.bound and pod.deleting_since is None and not pod.ended:
                going.setdefault(pod.node, []).append(pod)
        apart = members | {pod.uid for pods in going.values() for pod in pods}
        return tuple(self._node(node, apart, going.get(node.metadata.name, [])) for node in self.stores.nodes.values())

    def _node(self, node: objects.Node, apart: frozenset[str], going: list[OwnPod]) -> Node:
        known = convert.node(node, self.ledger.node_usage(node.metadata.name, apart))
        if not going:
            return known
        leaving = dict(known.leaving)
        for pod in going:
            for name, amount in pod.requests.items():
                leaving[name] = leaving.get(name, 0) + amount
        return replace(known, leaving=leaving)

    def unready_since(self) -> Mapping[str, float]:
        """Since when each node that is not Ready is so."""
        facts = ((node.metadata.name, convert.unready_since(node)) for node in self.stores.nodes.values())
        return {name: since for name, since in facts if since is not None}


def _claims(template: Mapping[str, Any]) -> set[str]:
    volumes = template["spec"].get("volumes") or []
    return {v["persistentVolumeClaim"]["claimName"] for v in volumes if v.get("persistentVolumeClaim")}
