"""Who uses what: every bound pod's share of its node, and which pods are ours, kept up with each change of a pod.

A pod is ours if its controller is a job that exists, by uid, in its namespace, and its name is one that job's pods
have; labels prove nothing. All others are foreign: they only use. A pod that is being created counts from before the
request is sent (`assume`) until it is seen, so that no pass gives its place away.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from elastic_operator.api.job import GROUP, KIND
from elastic_operator.api.template import GPU_RESOURCES
from elastic_operator.cluster import convert
from elastic_operator.cluster.convert import Usage
from elastic_operator.cluster.meta import OwnerReference
from elastic_operator.cluster.pod import Pod
from elastic_operator.plan.model import HostPort, OwnPod, Resources

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ASSUMED_SECONDS = 15.0
"""A create whose outcome stays unknown counts for so long. Far more than a request and its watch event take."""

MOST_KINDS = 10_000
"""So many different things of a sort are remembered."""


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job that exists."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Assumed:
    """A pod that is being created. `uid` stands for the one it will get."""

    uid: str
    job_uid: str
    namespace: str
    name: str
    role: str
    index: int
    node: str | None
    requests: Resources
    host_ports: frozenset[HostPort]
    until: float


@dataclass(frozen=True, slots=True)
class _Entry:
    """A pod as accounted for.

    `node` is where it is bound or pinned. `claims` is the uid of the job it says it belongs to, `own` what it is to
    that job if that is true.
    """

    pod: Pod
    node: str | None
    requests: Resources
    host_ports: frozenset[HostPort]
    claims: str | None
    own: OwnPod | None

    @property
    def holds(self) -> bool:
        """Whether it is a foreign pod that uses a node."""
        return self.own is None and bool(self.pod.spec.node_name) and not convert.ended(self.pod)

    def counts_like(self, other: _Entry) -> bool:
        """Whether it makes no difference to anybody which of the two states of a pod is known."""
        return (
            (self.node, self.holds, self.claims, self.own) == (other.node, other.holds, other.claims, other.own)
            and self.requests == other.requests
            and self.host_ports == other.host_ports
        )


@dataclass(slots=True)
class _Foreign:
    """Sums over the foreign pods of one node."""

    requests: Counter[str] = field(default_factory=Counter)
    ports: Counter[HostPort] = field(default_factory=Counter)
    pods: int = 0


class Ledger:
    """Use per node and pods per job.

    Args:
        job_of: The job with a uid, None if there is none (any more).
        parse: (job name, pod name) to (role, index), None where a job of that name has no such pod.
        gpu_resources: Extended resources that count as GPUs.
        changed: Called when a change of a pod makes a difference: to its node, or to a job.
        now: A monotonic clock.
    """

    def __init__(
        self,
        *,
        job_of: Callable[[str], JobRef | None],
        parse: Callable[[str, str], tuple[str, int] | None],
        gpu_resources: Sequence[str] = GPU_RESOURCES,
        changed: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job_of = job_of
        self._parse = parse
        self._gpu_resources = tuple(gpu_resources)
        self._changed = changed
        self._now = now
        self._entries: dict[str, _Entry] = {}
        self._claims = _Groups()
        self._own_by_job = _Groups()
        self._own_by_node = _Groups()
        self._names = _Groups()
        self._foreign: dict[str, _Foreign] = {}
        self._assumed: dict[str, Assumed] = {}
        self._assumed_by_job = _Groups()
        self._assumed_by_node = _Groups()
        self._revisions: Counter[str | None] = Counter()
        self._own_pods: dict[str, tuple[OwnPod, ...]] = {}
        self._alike: dict[tuple[tuple[str, int], ...], Resources] = {}

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Account for a change; a listener of the pods' store."""
        known = self._entries[old.metadata.uid] if old is not None else None
        if new is not None:
            self.forget(new.metadata.namespace, new.metadata.name)
            entry = self._entry(new, known)
            if known is not None and entry.counts_like(known):
                self._entries[new.metadata.uid] = entry
                return
        if known is not None:
            self._drop(known.pod.metadata.uid)
        if new is not None:
            self._add(entry)
        self._changed()

    def job_changed(self, job_uid: str) -> None:
        """A job appeared or vanished: decide anew which pods are its own."""
        self._own_pods.pop(job_uid, None)
        for uid in tuple(self._claims.get(job_uid)):
            entry = self._drop(uid)
            self._add(self._entry(entry.pod, entry))

    def own_pods(self, job_uid: str) -> tuple[OwnPod, ...]:
        """The pods of a job, by name; the same object as long as none of them changes."""
        if job_uid not in self._own_pods:
            own = (self._entries[uid].own for uid in self._own_by_job.get(job_uid))
            self._own_pods[job_uid] = tuple(sorted((pod for pod in own if pod is not None), key=lambda pod: pod.name))
        return self._own_pods[job_uid]

    def revision(self, node: str) -> int:
        """A number that changes whenever what `node_usage` says of the node may change."""
        return self._revisions[node]

    def outsiders(self, node: str, members: Set[str]) -> frozenset[str]:
        """Our pods on the node, those being created too, that are not among `members`."""
        own, assumed = self._own_by_node.get(node), self._assumed_by_node.get(node)
        if own <= members and assumed <= members:
            return frozenset()
        return frozenset((own | assumed) - members)

    def foreign_names(self, job_uid: str) -> frozenset[str]:
        """Names that the job's pods would get, and that pods hold that are not its own."""
        job = self._job_of(job_uid)
        if job is None:
            return frozenset()
        foreign = self._names.get((job.namespace, job.name)) - self._own_by_job.get(job_uid)
        return frozenset(self._entries[uid].pod.metadata.name for uid in foreign)

    def node_usage(self, node: str, members: Set[str] = frozenset()) -> Usage:
        """What pods use of `node`, but for `members`: uids (of `Assumed` too) that the snapshot lists in its jobs."""
        foreign = self._foreign.get(node) or _Foreign()
        used, ports, leaving = Counter(foreign.requests), set(foreign.ports), Counter[str]()
        for uid in self._own_by_node.get(node):
            pod = self._entries[uid].own
            if pod is None or pod.ended or uid in members:
                continue
            if pod.deleting_since is not None:
                leaving.update(pod.requests)
                continue
            used.update(pod.requests)
            ports |= pod.host_ports
        for assumed in map(self._assumed.__getitem__, self._assumed_by_node.get(node)):
            if assumed.uid not in members:
                used.update(assumed.requests)
                ports |= assumed.host_ports
        return Usage(used=dict(used), used_ports=frozenset(ports), leaving=dict(leaving))

    def assume(
        self,
        *,
        job_uid: str,
        namespace: str,
        name: str,
        role: str,
        index: int,
        node: str | None,
        requests: Resources,
        host_ports: frozenset[HostPort] = frozenset(),
    ) -> str:
        """Count a pod that is about to be created, until a pod of that name is seen; returns the uid it goes by."""
        self.forget(namespace, name)
        uid = _assumed_uid(namespace, name)
        until = self._now() + ASSUMED_SECONDS
        self._assumed[uid] = Assumed(uid, job_uid, namespace, name, role, index, node, requests, host_ports, until)
        self._assumed_by_job.add(job_uid, uid)
        self._assumed_by_node.add(node, uid)
        self._revisions[node] += 1
        return uid

    def forget(self, namespace: str, name: str) -> None:
        """The pod was certainly not created, or is seen."""
        uid = _assumed_uid(namespace, name)
        assumed = self._assumed.pop(uid, None)
        if assumed is not None:
            self._revisions[assumed.node] += 1
            self._assumed_by_job.remove(assumed.job_uid, uid)
            self._assumed_by_node.remove(assumed.node, uid)

    def assumed(self, job_uid: str) -> tuple[Assumed, ...]:
        """The job's pods that are being created and not seen yet."""
        return tuple(self._assumed[uid] for uid in sorted(self._assumed_by_job.get(job_uid)))

    def next_expiry(self) -> float:
        """Seconds until a pod that is being created counts no more, unless it is seen; infinity if there is none."""
        return min((assumed.until for assumed in self._assumed.values()), default=inf) - self._now()

    def expire(self) -> None:
        """Forget pods whose creation nobody heard of for too long."""
        for assumed in [a for a in self._assumed.values() if a.until <= self._now()]:
            self.forget(assumed.namespace, assumed.name)

    def _add(self, entry: _Entry) -> None:
        self._entries[entry.pod.metadata.uid] = entry
        self._group(entry, _Groups.add)
        if entry.holds and entry.node:
            foreign = self._foreign.setdefault(entry.node, _Foreign())
            foreign.requests.update(entry.requests)
            foreign.ports.update(entry.host_ports)
            foreign.pods += 1

    def _drop(self, uid: str) -> _Entry:
        entry = self._entries.pop(uid)
        self._group(entry, _Groups.remove)
        if entry.holds and entry.node:
            foreign = self._foreign[entry.node]
            foreign.requests = foreign.requests - Counter(entry.requests)
            foreign.ports = foreign.ports - Counter(entry.host_ports)
            foreign.pods -= 1
            if not foreign.pods:
                del self._foreign[entry.node]
        return entry

    def _group(self, entry: _Entry, change: Callable[[_Groups, Hashable, str], None]) -> None:
        meta = entry.pod.metadata
        self._revisions[entry.node] += 1
        if entry.claims is not None:
            self._own_pods.pop(entry.claims, None)
            change(self._claims, entry.claims, meta.uid)
        if entry.own is not None:
            change(self._own_by_job, entry.claims, meta.uid)
            change(self._own_by_node, entry.node, meta.uid)
        job_name = meta.name.rsplit("-", 2)[0]
        if self._parse(job_name, meta.name) is not None:
            change(self._names, (meta.namespace, job_name), meta.uid)

    def _entry(self, pod: Pod, known: _Entry | None) -> _Entry:
        """`known` is the same pod as accounted for before; most changes leave its spec, and so its requests, alone."""
        same = known is not None and known.pod.spec == pod.spec
        requests = known.requests if known and same else self._one_of_its_kind(convert.requests_of(pod))
        host_ports = known.host_ports if known and same else convert.host_ports_of(pod)
        owner = _controlling_job(pod)
        own = None
        place = self._place_of(pod, owner)
        if place is not None:
            role, index = place
            own = convert.own_pod(pod, role=role, index=index, requests=requests, gpu_resources=self._gpu_resources)
        return _Entry(pod, convert.node_of(pod), requests, host_ports, owner.uid if owner else None, own)

    def _one_of_its_kind(self, requests: Resources) -> Resources:
        """One object for equal requests: the allocator adds up thousands of them at each pass."""
        return one_of_its_kind(self._alike, tuple(sorted(requests.items())), requests)

    def _place_of(self, pod: Pod, owner: OwnerReference | None) -> tuple[str, int] | None:
        """Role and index of a pod of ours; None for foreign pods, whatever they claim."""
        job = self._job_of(owner.uid) if owner else None
        if job is None or job.namespace != pod.metadata.namespace:
            return None
        return self._parse(job.name, pod.metadata.name)


def one_of_its_kind(known: dict[K, V], key: K, thing: V) -> V:
    """The thing that came first under that key; `known` remembers them, and starts over when there are too many."""
    if len(known) > MOST_KINDS:
        known.clear()
    return known.setdefault(key, thing)


class _Groups:
    """Pod uids by a key."""

    def __init__(self) -> None:
        self._members: dict[Hashable, set[str]] = {}

    def get(self, key: Hashable) -> Set[str]:
        """All of one key."""
        return self._members.get(key, frozenset())

    def add(self, key: Hashable, uid: str) -> None:
        """Put one in."""
        self._members.setdefault(key, set()).add(uid)

    def remove(self, key: Hashable, uid: str) -> None:
        """Take one out."""
        members = self._members[key]
        members.remove(uid)
        if not members:
            del self._members[key]


def _assumed_uid(namespace: str, name: str) -> str:
    return f"assumed/{namespace}/{name}"


def _controlling_job(pod: Pod) -> OwnerReference | None:
    """The job that the pod says controls it."""
    controller = pod.metadata.controller
    if controller is None or controller.kind != KIND or controller.api_version.partition("/")[0] != GROUP:
        return None
    return controller
