"""Reads the foreign pods that the operator makes room for: they have no node because GPUs are in use, and their
scheduler honours nominations.

A pod is read again (`foreign_pod`) only when the pod or its context changes, or when a time in it comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf

import msgspec

from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.decisions import Nomination
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.quarantine import Quarantine
from elastic_operator.read import convert
from elastic_operator.read.foreign.foreign_pod import (
    PodContext,
    Volumes,
    claims_of,
    foreign_pod_of,
    may_evict,
)
from elastic_operator.read.foreign.gang_key import gang_of
from elastic_operator.read.foreign.gang_nodes import GangNodes
from elastic_operator.read.foreign.nomination_backoffs import NominationBackoffs
from elastic_operator.read.foreign.reservation import Reservation, is_renewable, reservation_of
from elastic_operator.read.foreign.whole_gangs import WholeGangs
from elastic_operator.read.ledger import Ledger
from elastic_operator.settings import Settings

MAX_PROLONGED_SECONDS = 600.0
"""After this long, evicted pods that still exist do not prolong a foreign pod's reservation any more (145)."""
FEW_PODS = 100
"""Up to this many new or changed pods are read in one go (91)."""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A waiting pod with its reservation, as `written` and as in force (`reservation`), and the foreign pod made from
    these (None: the operator makes no room for the pod). A reservation in force may be longer than the written one
    (145), or on another node of the gang (167).

    The record is valid until `until` (epoch seconds), as long as `key` stays the same.
    """

    pod: objects.Pod
    written: Reservation
    reservation: Reservation
    key: object
    foreign_pod: ForeignPod | None
    until: float
    gang: str
    waits: bool
    """Whether pods that are deleted for the reservation still exist."""


class ForeignPods:
    """The foreign pods at the last refresh.

    `expired` are pods whose reservation has run out and must be removed. `renewable` are pods whose reservation must be
    written again. `again_at_epoch` is when any of this changes without an event.

    `backoffs` has the pods that could not be nominated.
    """

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        *,
        nodes: Store[objects.Node],
        clock: ServerClock,
        volumes: Volumes,
        quarantine: Quarantine,
        backoffs: NominationBackoffs,
    ) -> None:
        self._ledger, self._nodes, self._quarantine = ledger, nodes, quarantine
        self._settings, self._clock, self._volumes, self._backoffs = settings, clock, volumes, backoffs
        self._waiting: dict[str, WaitingPod] = {}
        self._gangs, self._places = WholeGangs(), GangNodes()
        self._cleared_nodes: Set[str] = frozenset()
        """The nodes on which pods are about to be evicted for a foreign pod, by the last pass."""
        self._all: tuple[ForeignPod, ...] = ()
        self.expired: tuple[WaitingPod, ...] = ()
        self.renewable: tuple[WaitingPod, ...] = ()
        self.again_at_epoch = inf

    def refresh(self, now: float) -> tuple[ForeignPod, ...]:
        """All foreign pods at `now` (epoch seconds). Unchanged pods are the same objects as before (23)."""
        pods = self._ledger.waiting_foreign_pods()
        if not pods and not self._waiting:
            return self._all
        previous, self._waiting = self._waiting, {}
        self._note_bound(previous, {pod.metadata.uid for pod in pods}, now)
        for pod in pods:
            if (waiting := self._guarded(pod, previous.get(pod.metadata.uid), now)) is not None:
                self._waiting[pod.metadata.uid] = waiting
        gangs: dict[str, dict[str, ForeignPod | None]] = {}
        for uid, waiting in self._waiting.items():
            if waiting.gang:
                gangs.setdefault(waiting.gang, {})[uid] = waiting.foreign_pod
        self._places.keep_only(gangs.keys())
        in_gangs = {uid: waiting.pod for uid, waiting in self._waiting.items() if waiting.gang}
        untried = {uid for uid, pod in in_gangs.items() if convert.is_untried(pod)}
        instead = self._gangs.without_unsettled(gangs, untried, now)
        self.again_at_epoch = min((waiting.until for waiting in self._waiting.values()), default=inf)
        self.again_at_epoch = min(self.again_at_epoch, self._gangs.again_at_epoch)
        self.expired = tuple(each for each in self._waiting.values() if each.reservation.has_run_out(now))
        self.renewable = self._renewable(now)
        last = {pod.uid: pod for pod in self._all}
        ours = (instead.get(uid, waiting.foreign_pod) for uid, waiting in self._waiting.items())
        foreign_pods = tuple(
            known if (known := last.get(pod.uid, pod)) == pod else pod for pod in ours if pod is not None
        )
        if foreign_pods != self._all:
            self._all = foreign_pods
        return self._all

    def _note_bound(self, before: Mapping[str, WaitingPod], uids: Set[str], now: float) -> None:
        """Note the pods of gangs that were bound since the last refresh, each with the node that was kept for it.
        `before` are the pods that waited then, `uids` those that still wait.
        """
        for uid in before.keys() - uids:
            waiting, node = before[uid], self._ledger.bound_to(uid)
            if waiting.gang and waiting.reservation.node and node:
                self._places.note_bound(waiting.gang, node, waiting.reservation.node, now)

    def _renewable(self, now: float) -> tuple[WaitingPod, ...]:
        """The pods whose nomination must be renewed now.

        kube-scheduler removes the nomination of a pod at each failed try, and then tries all other pods again (45). So
        while pods still leave the node, each renewed nomination would cause another failed try. Meanwhile a nomination
        is renewed only if it protects something: if another pod without a node could take the room, or if
        kube-scheduler could preempt on another node for this pod.
        """
        rivals = any(not waiting.reservation.node for waiting in self._waiting.values())
        return tuple(
            waiting
            for waiting in self._waiting.values()
            if is_renewable(waiting.pod, waiting.reservation, now)
            and (rivals or not waiting.waits or may_evict(waiting.pod))
        )

    def note_served(
        self, nominations: Sequence[Nomination], over_limit: Set[str], tried: Set[str], now: float
    ) -> list[frozenset[str]]:
        """Note the nominations of a pass, and the pods (uids) that wait for a limit on evictions. For `tried` and the
        result see `WholeGangs.note_served`.
        """
        self._cleared_nodes = frozenset(nomination.node for nomination in nominations if nomination.evicts_from)
        served = over_limit | {nomination.uid for nomination in nominations}
        first_backoffs = self._gangs.note_served(served, tried, now)
        self.again_at_epoch = min(self.again_at_epoch, self._gangs.again_at_epoch)
        return first_backoffs

    def read_ahead(self, now: float) -> Iterator[None]:
        """If many pods are new or changed, read one of them per step (91). The next refresh uses the results."""
        known = {uid: waiting.pod for uid, waiting in self._waiting.items()}
        pods = self._ledger.waiting_foreign_pods()
        changed = [pod for pod in pods if known.get(pod.metadata.uid) is not pod]  # unchanged means identical (23)
        for pod in changed if len(changed) > FEW_PODS else ():
            if (waiting := self._guarded(pod, self._waiting.get(pod.metadata.uid), now)) is not None:
                self._waiting[pod.metadata.uid] = waiting
            yield

    def _guarded(self, pod: objects.Pod, before: WaitingPod | None, now: float) -> WaitingPod | None:
        """The pod as read now. None while it is quarantined: the operator does nothing for it, and its reservation
        stays (88).
        """
        meta = pod.metadata
        name = f"{meta.namespace}/{meta.name}"
        return self._quarantine.attempt("pod", meta.uid, name, lambda: self._read_pod(pod, before, now))

    def _read_pod(self, pod: objects.Pod, before: WaitingPod | None, now: float) -> WaitingPod:
        meta, nominated = pod.metadata, pod.status.nominated_node_name
        there = nominated if nominated and self._nodes.named(nominated) is not None else ""
        volumes = self._volumes(meta.namespace, claims_of(pod))
        context = PodContext(there, self._backoffs.backoff(meta.uid), volumes)
        seen = before if before is not None and before.pod is pod else None
        written, gang = (seen.written, seen.gang) if seen else (reservation_of(pod), gang_of(pod))
        node = self._places.present_node(gang, written.node, written.since)  # the one that is left for it (167)
        reservation = written if node == written.node else msgspec.structs.replace(written, node=node)
        waits = bool(node) and (self._ledger.has_terminating_pods(node) or node in self._cleared_nodes)
        key = (context, self._clock.stepped, waits, node)
        if seen and seen.key == key and now < seen.until:
            return seen
        reservation = self._prolonged(reservation, before, now, waits=waits, moved=reservation is not written)
        foreign_pod, until = foreign_pod_of(pod, gang, reservation, context, self._settings, now)
        return WaitingPod(pod, written, reservation, key, foreign_pod, until, gang, waits)

    def _prolonged(
        self, reservation: Reservation, before: WaitingPod | None, now: float, *, waits: bool, moved: bool
    ) -> Reservation:
        """The reservation with its present end. Its time begins when the pods that make room are deleted (145), and
        again when the reservation moves to another node of the gang (167).

        It ends at the latest when one of these leaving pods is overdue, because the room of such a pod counts as used
        again (40).
        """
        last, since = before.reservation if before is not None else Reservation(), reservation.since
        same = before is not None and (last.node, last.since) == (reservation.node, since)
        until = last.until if same else 0.0
        waited = before is not None and same and before.waits
        if (waits or waited or (moved and not same)) and since <= now < since + MAX_PROLONGED_SECONDS:
            until = now + min(self._settings.reclaim.reservation_seconds, self._ledger.overdue_within(reservation.node))
        return msgspec.structs.replace(reservation, until=until) if until > reservation.until else reservation
