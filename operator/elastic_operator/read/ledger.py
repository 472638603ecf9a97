"""The ledger of use: every bound pod's use of its node, and the pods of each job. Each change of a pod updates it.

A pod is ours if its controller (by uid) is an existing job of the same namespace, and if its name is one that this
job's pods have (95); labels prove nothing. All other pods only use GPUs. A pod that is being created counts as well
(`assumed_pods`). If the deletion of a pod is overdue, the pod's room counts as used again, so that no pod waits for
that room (40).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import inf
from operator import attrgetter

from elastic_api.template import GPU_RESOURCES
from elastic_operator.cluster import objects
from elastic_operator.cluster.interned import intern
from elastic_operator.cluster.meta import OwnerReference
from elastic_operator.cluster.pod import Pod
from elastic_operator.memory import EMPTY_SET, DirtyJobs, DirtySet, SingleCache
from elastic_operator.plan.facts.gpus import count_gpus
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.node import HostPort, Node, Resources
from elastic_operator.plan.facts.requirements import Load
from elastic_operator.read import convert
from elastic_operator.read.assumed_pods import AssumedPods
from elastic_operator.read.counted_pod import CountedPod, controlling_job, quantities_of
from elastic_operator.read.foreign.reservation import reservation_of
from elastic_operator.read.sums import PodIndex, PodSum
from elastic_operator.read.terminating_pods import TerminatingPods

log = logging.getLogger(__name__)


class Ledger:
    """The use of each node by pods, and the pods of each job.

    Args:
        job_of: The job with a uid; None if it does not exist (any more).
        parse: (job name, pod name) to (role, index), None if a job of that name has no such pod.
        gpu_resources: Extended resources that count as GPUs.
        dirty_jobs: A job is marked there if a pod of the job may have changed, a pod that is being created included; a
            foreign pod with the name of a pod of the job; or the use of a node that has refused a pod of the job.
        on_change: Called when a change of a pod affects its node or a job.
        now: A monotonic clock.
    """

    def __init__(
        self,
        *,
        job_of: Callable[[str], objects.CustomObject | None],
        parse: Callable[[str, str], tuple[str, int] | None],
        gpu_resources: Sequence[str] = GPU_RESOURCES,
        dirty_jobs: DirtyJobs | None = None,
        on_change: Callable[[], None] = lambda: None,
        on_error: Callable[[], None] = lambda: None,
        now: Callable[[], float] = lambda: time.monotonic(),
    ) -> None:
        self._job_of = job_of
        self._parse = parse
        self._gpu_resources = tuple(gpu_resources)
        self._dirty_jobs: DirtyJobs = dirty_jobs or DirtySet()
        self._on_change = on_change
        self._on_error = on_error
        self._now = now
        self._entries: dict[str, CountedPod] = {}
        self._claims = PodIndex()
        self._own_by_job = PodIndex()
        self._own_by_node = PodIndex()
        self._preemptors = PodIndex()
        """Foreign pods by the pods that were or will be evicted for them (203)."""
        self._names = PodIndex()
        self._foreign: dict[str, PodSum] = {}
        self._plain: dict[str, PodSum] = {}
        """Pods of no job that request GPUs, by namespace."""
        self._waiting: dict[str, Pod] = {}
        self._terminating = TerminatingPods(now)
        self.assumed = AssumedPods(now, self._assumed_changed)
        self.revision = 0
        """This number grows with each change that may affect a node or a job."""
        self._revisions: dict[str | None, int] = {}
        """The revision of the last change of a node's pods, by node."""
        self._last_load: SingleCache[tuple[object, ...], Load] = SingleCache()
        """The last load that was read. Pods of one template follow each other in a list."""

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Count a change of a pod. This method is a listener of the pods' store."""
        previous = self._entries.get(old.metadata.uid) if old is not None else None
        if new is not None:
            entry = self._entry(new, previous)
            self.assumed.forget(new.metadata.namespace, new.metadata.name)
            if previous is not None and entry.counts_like(previous):
                self._entries[new.metadata.uid] = entry
                if entry.waits:
                    self._waiting[new.metadata.uid] = new
                return
        if previous is not None:
            self._drop(previous.pod.metadata.uid)
        if new is not None:
            self._add(entry)
        elif previous is not None:
            self._terminating.forget(previous.pod.metadata.uid)
        self._on_change()

    def job_changed(self, job_uid: str) -> None:
        """Decide again which pods belong to a job, after the job was created or deleted."""
        for uid in tuple(self._claims.get(job_uid)):
            previous = self._entries[uid]
            entry = self._entry(previous.pod, previous)
            self._drop(uid)
            self._add(entry)

    def mark_refused(self, node: str) -> None:
        """Mark the jobs with a pod that is pinned to the node, and that kube-scheduler has refused. If the node or its
        use has changed, the node may be too full for this pod now (142).
        """
        for uid in self._own_by_node.get(node):
            entry = self._entries[uid]
            if entry.own is not None and entry.own.unschedulable and entry.controller_uid is not None:
                self._dirty_jobs.mark(entry.controller_uid)

    def own_pods(self, job_uid: str) -> tuple[OwnPod, ...]:
        """The pods of a job, sorted by name. While a pod does not change, it is the same object."""
        own = [pod for uid in self._own_by_job.get(job_uid) if (pod := self._entries[uid].own) is not None]
        return tuple(sorted(own, key=attrgetter("name")))

    def waiting_foreign_pods(self) -> tuple[Pod, ...]:
        """Foreign pods that request GPUs and have no node yet."""
        return tuple(self._waiting.values())

    def bound_to(self, uid: str) -> str:
        """The node of that pod; "" if it has none, or is deleted."""
        entry = self._entries.get(uid)
        return entry.pod.spec.node_name if entry is not None else ""

    def preemptor_of(self, uid: str) -> Pod | None:
        """The foreign pod for which the pod with that uid was or will be evicted (203)."""
        preemptors = sorted(self._preemptors.get(uid))
        return self._entries[preemptors[0]].pod if preemptors else None

    def plain_gpus(self) -> Mapping[str, Resources]:
        """The GPUs of plain pods, pods without a node included: namespace -> extended resource -> GPUs."""
        return {name: held.by_namespace()[name] for name, held in self._plain.items()}

    def node_revision(self, node: str) -> int:
        """A number that changes whenever the use of the node by pods may change; 0 for a node without pods."""
        return self._revisions.get(node, 0)

    def has_terminating_pods(self, node: str) -> bool:
        """Whether pods of ours are leaving the node, and their kubelet may still be busy with them (145)."""
        return any(map(self._terminating.is_terminating_in_time, self._terminating_on(node)))

    def overdue_within(self, node: str) -> float:
        """Seconds until the first of our pods that are leaving the node is overdue (40); infinity if no pod leaves."""
        return min(map(self._terminating.overdue_within, self._terminating_on(node)), default=inf)

    def _terminating_on(self, node: str) -> Iterator[str]:
        entries = (self._entries[uid] for uid in self._own_by_node.get(node))
        return (entry.own.uid for entry in entries if entry.own and entry.own.deleting_since is not None)

    def own_pods_except(self, node: str, members: Set[str]) -> frozenset[str]:
        """Our pods on the node that are not among `members`, pods being created included."""
        own, assumed = self._own_by_node.get(node), self.assumed.uids_at(node)
        if own <= members and assumed <= members:
            return frozenset()
        return frozenset((own | assumed) - members)

    def foreign_names(self, job_uid: str) -> frozenset[str]:
        """Names of the job's future pods that foreign pods use (82)."""
        job = self._job_of(job_uid)
        if job is None:
            return EMPTY_SET
        foreign = self._names.get((job.metadata.namespace, job.metadata.name)) - self._own_by_job.get(job_uid)
        return frozenset(self._entries[uid].pod.metadata.name for uid in foreign) or EMPTY_SET

    def with_use(self, node: Node, members: Set[str] = frozenset(), *, leaving: Iterable[OwnPod] = ()) -> Node:
        """The node with its use by pods, without `members`: the pods (uids, also of `Assumed`) that are counted
        elsewhere.

        `leaving` are the pods among `members` that are about to be deleted: they count as leaving.
        """
        foreign = self._foreign.get(node.name)
        used = foreign.copy() if foreign else PodSum(self._gpu_resources)
        leaving_use = PodSum(self._gpu_resources)
        for pod in leaving:
            leaving_use.add(pod.namespace, pod)
        for uid in self._own_by_node.get(node.name):
            entry = self._entries[uid]
            own = entry.own
            if own is None or own.ended or uid in members or _will_never_run(own):
                continue
            is_leaving = own.deleting_since is not None and not self._terminating.is_overdue(uid)
            (leaving_use if is_leaving else used).add(own.namespace, own)
        for assumed in self.assumed.at(node.name):
            if assumed.member.uid not in members:
                used.add(assumed.namespace, assumed.member)
        return replace(node, used=used.as_use(), leaving=leaving_use.as_use())

    def bound_use(self, node: str) -> Resources:
        """The resources that bound pods use on the node, without our leaving pods that are not overdue."""
        own = (self._entries[uid].own for uid in self._own_by_node.get(node))
        unbound = {pod.uid for pod in own if pod is not None and not pod.bound}
        return self.with_use(Node(node, {}), unbound | self.assumed.uids_at(node)).used.requests

    def seconds_until_expiry(self) -> float:
        """Seconds until `expire` changes the use of a node; infinity if it will not."""
        return min(self.assumed.next_expiry_monotonic(), self._terminating.next_due_monotonic()) - self._now()

    def expire(self) -> None:
        """Forget pods whose creation was not confirmed for too long. Count the room of overdue pods as used (40)."""
        self.assumed.expire()
        for uid in self._terminating.expire():
            self._node_changed(self._entries[uid].node)

    def _add(self, entry: CountedPod) -> None:
        self._entries[entry.pod.metadata.uid] = entry
        self._index(entry, PodIndex.add)
        if entry.waits:
            self._waiting[entry.pod.metadata.uid] = entry.pod
        if entry.own is not None and entry.own.deleting_since is not None:
            self._terminating.deletion_seen(entry.own.uid, entry.own.grace_seconds)
        for sums, key in self._sums_with(entry):
            sums.setdefault(key, PodSum(self._gpu_resources)).add(entry.pod.metadata.namespace, entry.load)
        self._node_changed(entry.node)

    def _drop(self, uid: str) -> None:
        entry = self._entries.pop(uid)
        self._index(entry, PodIndex.remove)
        if entry.waits:
            del self._waiting[uid]
        for sums, key in self._sums_with(entry):
            sums[key].remove(entry.pod.metadata.namespace, entry.load)
            if not sums[key].pods:
                del sums[key]
        self._node_changed(entry.node)

    def _sums_with(self, entry: CountedPod) -> Iterator[tuple[dict[str, PodSum], str]]:
        """The sums that the pod is part of, each with its key."""
        if entry.uses_node and entry.node:
            yield self._foreign, entry.node
        if entry.plain and entry.load.gpus:
            yield self._plain, entry.pod.metadata.namespace

    def _index(self, entry: CountedPod, change: Callable[[PodIndex, Hashable, str], None]) -> None:
        meta = entry.pod.metadata
        if entry.controller_uid is not None:
            change(self._claims, entry.controller_uid, meta.uid)
        if entry.own is not None:
            change(self._own_by_job, entry.controller_uid, meta.uid)
            change(self._own_by_node, entry.node, meta.uid)
        for victim in entry.victims:
            change(self._preemptors, victim, meta.uid)
        job_name = meta.name.rsplit("-", 2)[0]
        if self._parse(job_name, meta.name) is not None:
            names = meta.namespace, job_name
            change(self._names, names, meta.uid)
            self._dirty_jobs.mark(names)

    def _assumed_changed(self, job_uid: str, node: str | None) -> None:
        self._node_changed(node)
        self._dirty_jobs.mark(job_uid)

    def _node_changed(self, node: str | None) -> None:
        self.revision += 1
        if node in self._foreign or self._own_by_node.get(node) or self.assumed.uids_at(node):
            self._revisions[node] = self.revision
        else:
            self._revisions.pop(node, None)
        if node is not None:
            self.mark_refused(node)

    def _entry(self, pod: Pod, before: CountedPod | None) -> CountedPod:
        """The pod as it counts now; `before` is the same pod as it counted until now.

        A user may have written anything into a pod, and an unreadable pod must not spoil the account of all others. If
        the pod is a job's, and has neither ended nor been bound to another node, it counts as before. Any other
        unreadable pod counts as a foreign pod.
        """
        try:
            return self._read(pod, before)
        except Exception:
            log.exception(
                "cannot read a pod; its requests count as used pod=%s/%s", pod.metadata.namespace, pod.metadata.name
            )
            self._on_error()
            is_own = before is not None and before.own is not None and not convert.is_ended(pod)
            if before is not None and is_own and pod.spec.node_name in ("", before.node):
                return before
            load, owner = before.load if before else self._load(quantities_of(pod), EMPTY_SET), controlling_job(pod)
            return CountedPod(
                pod, pod.spec.node_name or None, load, owner.uid if owner else None, None, unreadable=True
            )

    def _read(self, pod: Pod, before: CountedPod | None) -> CountedPod:
        """Read the pod. Raises any error that its content causes. In most changes the pod's spec is unchanged; then its
        requests are kept.
        """
        same = before is not None and not before.unreadable and before.pod.spec == pod.spec
        load = before.load if before and same else self._load_of(pod)
        owner = controlling_job(pod)
        own = self._own(pod, owner, load)
        waits = owner is None and convert.waits_for_node(pod) and load.gpus > 0
        was_own = before is not None and (before.own is not None or before.orphan)
        orphan = was_own and owner is not None and self._job_of(owner.uid) is None
        claims, node = owner.uid if owner else None, convert.node_of(pod)
        nominated = own is None and not waits and not pod.spec.node_name and bool(pod.status.nominated_node_name)
        if nominated:
            node = pod.status.nominated_node_name
        victims = reservation_of(pod).victims if own is None else ()
        return CountedPod(pod, node, load, claims, own, waits, orphan=orphan, nominated=nominated, victims=victims)

    def _load_of(self, pod: Pod) -> Load:
        spec = pod.spec
        parts = spec.containers, spec.init_containers, spec.resources, spec.overhead
        return self._last_load.get(parts, lambda: self._load(convert.requests_of(pod), convert.host_ports_of(pod)))

    def _own(self, pod: Pod, owner: OwnerReference | None, load: Load) -> OwnPod | None:
        """A pod of ours; None for foreign pods, even if they name a job."""
        job = self._job_of(owner.uid) if owner else None
        if job is None or job.metadata.namespace != pod.metadata.namespace:
            return None
        place = self._parse(job.metadata.name, pod.metadata.name)
        return convert.own_pod(pod, load, role=place[0], index=place[1]) if place is not None else None

    def _load(self, requests: Resources, host_ports: frozenset[HostPort]) -> Load:
        """The load, with one object for equal loads, because the allocator adds up thousands of them in each pass."""
        load = Load(requests, count_gpus(requests, self._gpu_resources), host_ports)
        shared: Load = intern((Load, tuple(sorted(requests.items())), load.gpus, host_ports), load)
        return shared


def _will_never_run(pod: OwnPod) -> bool:
    """Whether the pod is being deleted and has no node. The API server binds no such pod, even if a finalizer keeps the
    pod's object (95).
    """
    return pod.deleting_since is not None and not pod.bound
