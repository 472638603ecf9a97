"""Turns the stores into the facts about jobs that decisions are made from. Reads memory only, writes nothing.

Parsed specs and pod shapes are kept by job and generation, so a status update costs no parse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import NamedTuple

from elastic_api.invalid import InvalidSpecError
from elastic_api.job import PLURAL, JobSpec
from elastic_api.parse import known_part, parse_spec, parse_status, unused_flags
from elastic_api.status import JobStatus
from elastic_api.template import fingerprint
from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.stores import Stores
from elastic_operator.plan.facts.disruption import Disruption
from elastic_operator.plan.facts.job import NOBODY_ASKS, Group, Job, OwnPod, Quiet
from elastic_operator.plan.facts.launcher_report import Report
from elastic_operator.plan.facts.snapshot import PodShape
from elastic_operator.plan.facts.times import at, seconds
from elastic_operator.plan.job.demand import JobShape
from elastic_operator.plan.job.flapping import may_flap
from elastic_operator.plan.job.holding import flavor_held, stays
from elastic_operator.plan.job.written_times import not_ahead
from elastic_operator.plan.policies.resolve import Namespace, Policy, Resolved
from elastic_operator.read import convert
from elastic_operator.read.bulkhead import Bulkhead, Fault
from elastic_operator.read.dropped_fields import Unkept
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.nodes import Nodes, Unready
from elastic_operator.read.outside_changes import Outside
from elastic_operator.read.pending_pods import PendingPods, claims_of
from elastic_operator.read.pod_priority import PodPriorities
from elastic_operator.read.policies import Policies
from elastic_operator.read.priority import Priority, priority_of
from elastic_operator.read.shapes import Shapes
from elastic_operator.read.sightings import Sightings
from elastic_operator.read.touched import drop_absent
from elastic_operator.read.uncounted import Asked, Uncounted, asked_by
from elastic_operator.settings import Settings
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER


@dataclass(frozen=True, slots=True)
class Parsed:
    """A job's spec of one generation; or the last one that could be read, with the message that says why this cannot
    (99).

    `unknown` warns of fields that were left out, `unused` of flags of torchrun.
    """

    generation: int
    spec: JobSpec | None
    invalid: str
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    asked: Asked = field(default_factory=Asked)
    unknown: str = ""
    unused: str = ""


class Facts(NamedTuple):
    """The input of a look at one job: two looks at equal facts give the same result until a time in it comes.

    `pods` are its own. `unready` are those of its nodes that are not Ready, with the time since when. `grace_ceiling`
    is the most seconds that a leaving pod gets. `report` is its master's last one. `disruption` is set if too many
    nodes are away for its own to be given up. `heard` and `group` are as in `Job`, but while all of its nodes are Ready
    they are as if no master and no log were asked. `shut_out` and `quiet` are as in `Job`. `uncounted` and `left_out`
    are sentences: the devices that it asks for and that are not counted, and what its pods are made without.
    """

    body: objects.CustomObject
    pods: tuple[OwnPod, ...]
    foreign_names: frozenset[str]
    priority: int
    ignored_priority: tuple[str, str]
    trouble: str
    blocked: str
    refused: str
    unready: tuple[tuple[str, float], ...]
    grace_ceiling: int
    report: Report | None
    disruption: Disruption | None
    heard: float | None
    shut_out: tuple[tuple[str, str], ...]
    group: Group | None
    uncounted: str
    left_out: str
    quiet: Quiet | None

    def equal(self, other: Facts) -> bool:
        """Whether nothing differs. Objects are compared by identity, since the stores never change one."""
        return self.body is other.body and self.pods is other.pods and self[2:] == other[2:]


class Reader:
    """Turns stores into facts of `plan`."""

    def __init__(
        self,
        stores: Stores,
        ledger: Ledger,
        settings: Settings,
        *,
        clock: ServerClock,
        bulkhead: Bulkhead | None = None,
        unkept: Unkept | None = None,
    ) -> None:
        self._unkept = unkept or Unkept(PLURAL)
        self.stores, self.ledger, self.settings = stores, ledger, settings
        self.clock, self._sightings = clock, Sightings(clock)
        self.bulkhead = bulkhead or Bulkhead()
        self._parsed: dict[str, Parsed] = {}
        self._statuses: dict[str, tuple[tuple[str, int], JobStatus]] = {}
        self._shapes = Shapes(settings, claims=stores.claims, volumes=stores.volumes, classes=stores.priority_classes)
        flavors = [f.name for f in settings.flavors]
        self._policies = Policies(stores.policies, stores.namespaces, flavors=flavors, bulkhead=self.bulkhead)
        self.uncounted = Uncounted(stores.device_classes)
        self._pod_priorities = PodPriorities(stores.priority_classes)
        self.nodes = Nodes(stores.nodes, ledger, self._sightings, self.bulkhead, settings.gpu_resources)
        self.requests = PendingPods(
            ledger,
            settings,
            nodes=stores.nodes,
            clock=clock,
            bulkhead=self.bulkhead,
            volumes=lambda pod: self._shapes.volumes(pod.metadata.namespace, claims_of(pod)),
        )
        self.outside = Outside(stores.jobs, ledger)
        self._gpu_resources = settings.gpu_resources

    def begin_look(self) -> None:
        """Another look at everything begins."""
        self._sightings.begin_look()

    def keep_only(self, present: Set[str]) -> None:
        """Forget the jobs that are gone."""
        for known in (self._parsed, self._statuses):
            drop_absent(known, present)
        self._shapes.keep_only(present)

    @property
    def policies(self) -> Resolved:
        """The teams that the quota policies made at the last look."""
        return self._policies.resolved

    def tells_by_itself(self, body: objects.CustomObject) -> bool:
        """Whether the job's pods write into their termination message why they failed, so that no log need be read
        (14).
        """
        spec = self._parse(body).spec
        return spec is not None and spec.is_elastic

    def policy_sources(self) -> tuple[tuple[Policy, ...], tuple[Namespace, ...]]:
        """The policies and namespaces of which `policies` was made."""
        return self._policies.sources()

    def look_at_policies(self) -> None:
        """Read changed quota policies and namespaces; `policies` is a new object only if the change matters."""
        self._policies.look()

    def surroundings(self, unready: Unready) -> object:
        """What jobs are judged by beside themselves and their pods; equal while nothing of it has changed."""
        return (
            self.stores.priority_classes.revision,
            unready,
            self.nodes.disruptions.present,
            self.nodes.openness(),
            self.policies,
            self.uncounted.served(),
        )

    def moved(self) -> Iterable[str]:
        """Jobs (uids) with a claim or volume that has changed since their shape was last asked for."""
        return self._shapes.moved()

    def facts(
        self,
        body: objects.CustomObject,
        *,
        pods: tuple[OwnPod, ...],
        trouble: str,
        blocked: str,
        refused: str,
        unready: Unready,
        report: Report | None = None,
        heard: float | None = -inf,
        group: Group | None = NOBODY_ASKS,
    ) -> Facts:
        """The facts of one job now; `unready` are all nodes that are not Ready."""
        parsed = self._parse(body)
        name = parsed.spec.priority_class_name if parsed.spec is not None else _class_named_by(body)
        priority = self._priority(name)
        down = tuple((p.node, unready[p.node]) for p in pods if p.node and p.node in unready) if unready else ()
        return Facts(
            body=body,
            pods=pods,
            foreign_names=self.ledger.foreign_names(body.metadata.uid),
            priority=priority.value,
            ignored_priority=priority.ignored,
            trouble=trouble,
            blocked=blocked,
            refused=refused,
            unready=down,
            grace_ceiling=self.grace_ceiling(body.metadata.namespace),
            report=report,
            disruption=self.nodes.disruptions.present if down else None,
            heard=heard if down else -inf,
            shut_out=self._shut_out(pods),
            group=group if down else NOBODY_ASKS,
            uncounted=self.uncounted.why(parsed.asked),
            left_out=self._pod_priorities.left_out(parsed.spec),
            quiet=self._quiet(body),
        )

    def _quiet(self, body: objects.CustomObject) -> Quiet | None:
        """Since when nothing has changed from outside, if that matters for the job (143)."""
        if not may_flap(self.status(body), self.clock.time()):
            return None
        name = self.policies.team_of.get(body.metadata.namespace)
        in_turns = any(team.name == name and team.quantum_seconds is not None for team in self.policies.teams)
        return Quiet(self.outside.since, in_turns)

    def _shut_out(self, pods: tuple[OwnPod, ...]) -> tuple[tuple[str, str], ...]:
        """The unbound pods (uids) that the node they are pinned to does not take any more, each with the reason."""
        pinned = [(pod, pod.node) for pod in pods if not pod.bound and pod.node and stays(pod)]
        return tuple((pod.uid, why) for pod, node in pinned if (why := self.nodes.why_shut_out(pod, node)))

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
            spec=_with_grace_up_to(facts.grace_ceiling, parsed.spec),
            invalid=parsed.invalid,
            unknown_fields=parsed.unknown,
            unused_flags=parsed.unused,
            priority=facts.priority,
            ignored_priority=facts.ignored_priority,
            pods=tuple(map(self._sightings.of_pod, facts.pods)),
            foreign_names=facts.foreign_names,
            fingerprints=parsed.fingerprints,
            trouble=facts.trouble,
            blocked=facts.blocked,
            refused=facts.refused,
            provisioning=self.settings.pending_pods,
            report=facts.report,
            heard=facts.heard,
            group=facts.group,
            disruption=facts.disruption,
            shut_out=dict(facts.shut_out),
            uncounted=facts.uncounted,
            left_out=facts.left_out,
            grace_ceiling=facts.grace_ceiling,
            start_seconds=self.settings.start_timeout_seconds,
            unkept=self._unkept.fields,
            quiet=facts.quiet,
            what_if=meta.annotations.what_if,
        )

    def bare_job(self, body: objects.CustomObject, pods: tuple[OwnPod, ...], fault: Fault | None) -> Job:
        """A job that is set aside, or deleted: what is known without its spec."""
        meta = body.metadata
        try:
            created, status = convert.epoch(meta.creation_timestamp or ""), self.status(body)
        except Exception:  # noqa: BLE001 - it is told already that the job cannot be read
            created, status = 0.0, JobStatus()
        return Job(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            created=created,
            status=status,
            spec=None,
            pods=pods,
            fault=fault.message if fault else "",
            unallocated=fault is not None and fault.in_allocation,
            priority=self._priority(_class_named_by(body)).value,
            deleted=meta.deletion_timestamp is not None,
            grace_ceiling=self.grace_ceiling(meta.namespace),
        )

    def grace_ceiling(self, namespace: str) -> int:
        """The most seconds that a leaving pod of a job there gets: the policy's, if it has one (95).

        One at least, as a deletion without any grace would be one by force.
        """
        ceiling = self.policies.grace_ceiling(namespace)
        return max(1, self.settings.reclaim.max_grace_period_seconds if ceiling is None else ceiling)

    def status(self, body: objects.CustomObject) -> JobStatus:
        """The job's status, with no time that lies further ahead than it can (29); the same object while it does not
        change.
        """
        meta = body.metadata
        key, known = (meta.resource_version, self.clock.stepped), self._statuses.get(meta.uid)
        if known is None or known[0] != key:
            known = self._statuses[meta.uid] = key, self._status(meta.uid, parse_status({"status": body.status}))
        return known[1]

    def _status(self, uid: str, status: JobStatus) -> JobStatus:
        if status.master_lost_time is not None:
            since = self._sightings.since(uid, seconds(status.master_lost_time))
            status = status.model_copy(update={"master_lost_time": at(since)})
        return not_ahead(status, self.clock.time())

    def _parse(self, body: objects.CustomObject) -> Parsed:
        meta = body.metadata
        known = self._parsed.get(meta.uid)
        if known and known.generation == meta.generation:
            return known
        try:
            spec, unknown = self._read_spec(body)
            prints = {role: fingerprint(spec, role) for role in (ROLE_MASTER, ROLE_WORKER)}
            parsed = Parsed(meta.generation, spec, "", prints, asked_by(spec), unknown, unused_flags(spec))
        except InvalidSpecError as error:
            last = known or Parsed(meta.generation, None, "")
            parsed = replace(last, generation=meta.generation, invalid=str(error))
        self._parsed[meta.uid] = parsed
        return parsed

    def _read_spec(self, body: objects.CustomObject) -> tuple[JobSpec, str]:
        """The spec, with a warning if a job that has run has fields that are not known here (99).

        It ran with these fields under a later release of the operator. A job that has not run waits for somebody to
        look. Raises InvalidSpecError.
        """
        has_run = self.status(body).start_time is not None
        read = partial(parse_spec, gpu_resources=self._gpu_resources, has_run=has_run)
        try:
            return read({"spec": body.spec}), ""
        except InvalidSpecError:
            spec, unknown = known_part(body.spec) if has_run else (body.spec, "")
            if not unknown:
                raise
            return read({"spec": spec}), unknown

    def _priority(self, class_name: str | None) -> Priority:
        return priority_of(class_name or "", self.stores.priority_classes, self.settings)

    def flavor_held(self, pods: Sequence[OwnPod]) -> str | None:
        """The flavor of the GPUs that these pods hold, by the labels of their nodes; None where they hold none."""
        found = ((pod.node, self.stores.nodes.named(pod.node)) for pod in pods if pod.node is not None)
        labels = {name: node.metadata.labels for name, node in found if node is not None}
        return flavor_held(pods, labels, self.settings.gpu_flavors)

    def shape(self, job: Job, role: str) -> PodShape:
        """The shape of a pod of that role, as last used for a demand."""
        shape = self._shapes.last(job.uid)
        return shape.master if role == ROLE_MASTER else shape.worker

    def shapes(self, job: Job) -> JobShape:
        """What the job's pods ask of a node; the same object while that does not change."""
        return self._shapes.of(job)


def _class_named_by(body: objects.CustomObject) -> str | None:
    """The PriorityClass of a job whose spec cannot be read."""
    name = body.spec.get("priorityClassName") if isinstance(body.spec, dict) else None
    return name if isinstance(name, str) else None


def _with_grace_up_to(seconds: int, spec: JobSpec | None) -> JobSpec | None:
    """The spec, with the grace of its pods cut to that."""
    if spec is None or spec.elasticity.grace_period_seconds <= seconds:
        return spec
    elasticity = spec.elasticity.model_copy(update={"grace_period_seconds": seconds})
    return spec.model_copy(update={"elasticity": elasticity})
