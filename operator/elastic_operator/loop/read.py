"""From the stores to the facts that decisions are made from. Reads memory only, writes nothing.

Parsed specs and pod shapes are kept per (job, generation): a status update must not cost a parse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from elastic_operator.api.invalid import InvalidSpecError
from elastic_operator.api.job import JobSpec
from elastic_operator.api.parse import parse_spec, parse_status
from elastic_operator.api.status import JobStatus
from elastic_operator.api.template import fingerprint
from elastic_operator.cluster import convert, objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.ledger import Assumed, Ledger, one_of_its_kind
from elastic_operator.cluster.store import Store
from elastic_operator.loop.status_times import StatusTimes, moved
from elastic_operator.plan.demand import demand_of
from elastic_operator.plan.model import Job, JobDemand, Member, Node, OwnPod, PodShape
from elastic_operator.plan.observation import Observation
from elastic_operator.plan.shape import VolumeFacts, shape_of
from elastic_operator.settings import Settings
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER

Shapes = tuple[PodShape, PodShape]
"""Of the master and of a worker."""
Unready = Mapping[str, float]
"""Nodes that are not Ready, with since when."""
LATE_SECONDS = 60.0
"""Later than this, news of a node is not late: the clock of whoever wrote it is."""


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
    claims: frozenset[str] = frozenset()
    """Names of the volume claims that its pods mount."""


class Facts(NamedTuple):
    """All that a look at one job starts from; two looks at equal facts see the same until time itself changes it.

    `pods` are its own as they are to be seen; `unready` those of its nodes that are not Ready, with since when.
    """

    body: objects.CustomObject
    pods: tuple[OwnPod, ...]
    foreign_names: frozenset[str]
    priority: int
    unknown_priority: str
    trouble: str
    blocked: str
    refused: str
    unready: tuple[tuple[str, float], ...]

    def equal(self, other: Facts) -> bool:
        """Whether nothing differs; objects are not looked into, since the stores never change one."""
        return self.body is other.body and self.pods is other.pods and self[2:] == other[2:]


class Reader:
    """Turns stores into `plan` facts."""

    def __init__(
        self, stores: Stores, ledger: Ledger, settings: Settings, *, clock: ServerClock, times: StatusTimes
    ) -> None:
        self.stores, self.ledger, self.settings = stores, ledger, settings
        self.clock, self.times = clock, times
        self._parsed: dict[str, Parsed] = {}
        self._statuses: dict[str, tuple[tuple[str, int], JobStatus]] = {}
        self._shapes: dict[str, tuple[object, Shapes]] = {}
        self._alike: dict[str, PodShape] = {}
        self._down: dict[str, tuple[float, float]] | None = None
        """Nodes that were not Ready at the last look: since when as written, and as believed. None before the first."""
        self._nodes: dict[str, tuple[objects.Node, object, Node]] = {}

    def keep_only(self, present: Set[str]) -> None:
        """Forget the jobs that are gone."""
        for known in (self._parsed, self._statuses, self._shapes):
            drop_absent(known, present)

    def facts(
        self,
        body: objects.CustomObject,
        *,
        pods: tuple[OwnPod, ...],
        trouble: str,
        blocked: str,
        refused: str,
        unready: Unready,
    ) -> Facts:
        """What is known of one job now; `unready` are all nodes that are not Ready."""
        priority, unknown = self._priority(self._parse(body).spec)
        down = tuple((p.node, unready[p.node]) for p in pods if p.node and p.node in unready) if unready else ()
        names = self.ledger.foreign_names(body.metadata.uid)
        return Facts(body, pods, names, priority, unknown, trouble, blocked, refused, down)

    def job(self, facts: Facts) -> Job:
        """One job, from its facts."""
        meta = facts.body.metadata
        parsed = self._parse(facts.body)
        return Job(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            created=convert.epoch(meta.creation_timestamp or ""),
            status=self.status(facts.body),
            spec=parsed.spec if not facts.unknown_priority else None,
            invalid=parsed.invalid or facts.unknown_priority,
            priority=facts.priority,
            pods=tuple(map(self._on_present_clock, facts.pods)),
            foreign_names=facts.foreign_names,
            fingerprints=parsed.fingerprints,
            trouble=facts.trouble,
            blocked=facts.blocked,
            refused=facts.refused,
        )

    def status(self, body: objects.CustomObject) -> JobStatus:
        """The job's status, its times on the present clock; the same object as long as it does not change."""
        meta = body.metadata
        behind = self.times.behind(meta.uid)
        known = self._statuses.get(meta.uid)
        if known is None or known[0] != (meta.resource_version, behind):
            known = ((meta.resource_version, behind), moved(parse_status({"status": body.status}), behind))
            self._statuses[meta.uid] = known
        return known[1]

    def _on_present_clock(self, pod: OwnPod) -> OwnPod:
        """The pod, with its times as the API server's clock would have shown them if it had not stepped since."""
        if self.clock.revision == 0:
            return pod

        def now(time: float | None) -> float | None:
            return self.clock.current(time, of=pod.uid) if time else time

        main = replace(pod.main, running_since=now(pod.main.running_since), finished_at=now(pod.main.finished_at))
        return replace(
            pod,
            main=main,
            created=now(pod.created) or 0.0,
            deleting_since=now(pod.deleting_since),
            unschedulable_since=now(pod.unschedulable_since),
        )

    def _parse(self, body: objects.CustomObject) -> Parsed:
        meta = body.metadata
        known = self._parsed.get(meta.uid)
        if known and known.generation == meta.generation:
            return known
        try:
            spec = parse_spec({"spec": body.spec}, gpu_resources=self.settings.gpu_resources)
            prints = {role: fingerprint(spec, role) for role in (ROLE_MASTER, ROLE_WORKER)}
            claims = frozenset(name for role in prints for name in _claims(spec.template_of(role)))
            parsed = Parsed(meta.generation, spec, "", prints, claims)
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

    def demand(self, seen: Observation, shapes: Shapes, assumed: tuple[Assumed, ...]) -> JobDemand:
        """The allocator's view of a job that may have pods; pods being created right now count as its members."""
        demand = demand_of(seen, master=shapes[0], worker=shapes[1])
        if not assumed:
            return demand
        members = tuple(Member(a.uid, a.role, a.index, a.node, a.requests, a.host_ports) for a in assumed)
        indices = frozenset(m.index for m in members if m.role == "worker")
        return replace(demand, members=demand.members + members, taken_indices=demand.taken_indices | indices)

    def shape(self, job: Job, role: str) -> PodShape:
        """The shape of a pod of that role, as last used for a demand."""
        master, worker = self._shapes[job.uid][1]
        return master if role == "master" else worker

    def shapes(self, job: Job) -> Shapes:
        """What the job's master and its workers ask of a node; the same object as long as that does not change."""
        spec = job.spec
        assert spec is not None
        volumes = {name: self._claim_state(job.namespace, name) for name in self._parsed[job.uid].claims}
        key = (job.generation, volumes)
        known = self._shapes.get(job.uid)
        if known is None or known[0] != key:
            known = self._shapes[job.uid] = (
                key,
                (self._shape(spec, ROLE_MASTER, volumes), self._shape(spec, ROLE_WORKER, volumes)),
            )
        return known[1]

    def _shape(self, spec: JobSpec, role: str, volumes: VolumeFacts) -> PodShape:
        """One object for equal shapes: most jobs of a cluster ask for much the same."""
        shape = shape_of(spec.template_of(role), gpu_resources=self.settings.gpu_resources, volumes=volumes)
        return one_of_its_kind(self._alike, repr(shape), shape)

    def _claim_state(self, namespace: str, name: str) -> Literal["bound", "unbound", "zonal"]:
        claim = self.stores.claims.named(name, namespace)
        if claim is None or not claim.bound:
            return "unbound"
        volume = self.stores.volumes.named(claim.spec.volume_name)
        return "bound" if volume and volume.spec.node_affinity is None else "zonal"

    def nodes(self, members: Set[str], leaving: Iterable[OwnPod]) -> tuple[Node, ...]:
        """All nodes with their use; `members` are listed in the snapshot's jobs, `leaving` are about to be deleted.

        A node of which nothing changed is the same object as before.
        """
        going: dict[str, tuple[OwnPod, ...]] = {}
        for pod in leaving:
            if pod.node and pod.bound and pod.deleting_since is None and not pod.ended:
                going[pod.node] = (*going.get(pod.node, ()), pod)
        apart = members | {pod.uid for pods in going.values() for pod in pods} if going else members
        stored = self.stores.nodes.values()
        nodes = tuple(self._node(node, apart, going.get(node.metadata.name, ())) for node in stored)
        if len(self._nodes) > len(nodes):
            here = {node.name for node in nodes}
            self._nodes = {name: known for name, known in self._nodes.items() if name in here}
        return nodes

    def _node(self, stored: objects.Node, apart: Set[str], going: tuple[OwnPod, ...]) -> Node:
        name = stored.metadata.name
        key = (self.ledger.revision(name), self.ledger.outsiders(name, apart), going)
        known = self._nodes.get(name)
        if known is not None and known[0] is stored and known[1] == key:
            return known[2]
        node = convert.node(stored, self.ledger.node_usage(name, apart))
        for pod in going:
            leaving = dict(node.leaving)
            for resource, amount in pod.requests.items():
                leaving[resource] = leaving.get(resource, 0) + amount
            node = replace(node, leaving=leaving)
        if known is not None and known[2] == node:
            node = known[2]
        self._nodes[name] = (stored, key, node)
        return node

    def unready_since(self, now: float) -> Unready:
        """Since when each node that is not Ready is so.

        Whoever wrote that time may have a clock that is far behind. A node that was Ready at the last look has not been
        away for much longer than that.
        """
        down: dict[str, tuple[float, float]] = {}
        for node in self.stores.nodes.values():
            written = convert.unready_since(node)
            if written is None:
                continue
            name, known = node.metadata.name, self._down
            since = self.clock.current(written, of=node.metadata.uid)
            if known is not None and now - since >= LATE_SECONDS:
                since = known[name][1] if known.get(name, (None,))[0] == written else now
            down[name] = (written, since)
        self._down = down
        return {name: since for name, (_, since) in down.items()}

    def clock_stepped(self) -> None:
        """What was reckoned on the clock before is reckoned anew."""
        self._down = None


def drop_absent(known: dict[str, Any], present: Set[str]) -> None:
    """Drop what is kept for jobs that are gone; `present` are the uids of those that are not."""
    for uid in known.keys() - present:
        del known[uid]


def _claims(template: Mapping[str, Any]) -> set[str]:
    volumes = template["spec"].get("volumes") or []
    return {v["persistentVolumeClaim"]["claimName"] for v in volumes if v.get("persistentVolumeClaim")}
