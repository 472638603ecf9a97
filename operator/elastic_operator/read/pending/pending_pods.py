"""Pending pods of others: GPU pods without a node because GPUs are taken, of a scheduler that heeds nominations.

Each is read (`pending_pod`) again only when something of it or around it changes, or its time has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from math import inf

import msgspec

from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.reservation import Reservation, is_annotated, is_renewable, reservation_of
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.snapshot import PendingPod
from elastic_operator.read.bulkhead import Bulkhead
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.pending.gang_key import gang_of
from elastic_operator.read.pending.gang_places import GangPlaces
from elastic_operator.read.pending.pending_pod import Around, Barred, Volumes, claims_of, may_evict, pending_pod_of
from elastic_operator.read.pending.whole_gangs import WholeGangs
from elastic_operator.settings import Settings

MAX_PROLONGED_SECONDS = 600.0
"""Pods that have not gone after this long hold no place for a pending pod any more (145)."""
FEW_PODS = 100
"""Up to this many new or changed pods are read in one go (91)."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A waiting pod with its reservation, as it is written and as it holds, and the pending pod made from both (None:
    not ours to help).

    It stays the same until `until` (epoch seconds), while `key` does.
    """

    pod: objects.Pod
    written: Reservation
    reserved: Reservation
    key: object
    pending: PendingPod | None
    until: float
    gang: str
    waits: bool
    """Whether the pods that make room for it have not gone yet."""


class PendingPods:
    """The pending pods at the last look.

    `expired` are pods whose reservation has run out and must be taken back. `renewable` are pods whose reservation must
    be written again. `again_at` is when (epoch seconds) any of this changes without any other change.

    Args:
        barred: Until when (epoch seconds) nothing is tried for a pod (uid), and why; None to try.
        makes_way: Whether pods on that node are about to be deleted for a pending pod.
    """

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        *,
        nodes: Store[objects.Node],
        clock: ServerClock,
        volumes: Volumes,
        bulkhead: Bulkhead,
        barred: Callable[[str], Barred | None] = lambda _: None,
        makes_way: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._ledger, self._settings, self._nodes, self._bulkhead = ledger, settings, nodes, bulkhead
        self._clock, self._volumes, self._barred, self._makes_way = clock, volumes, barred, makes_way
        self._known: dict[str, _Known] = {}
        self._gangs, self._places = WholeGangs(), GangPlaces()
        self._all: tuple[PendingPod, ...] = ()
        self.expired: tuple[objects.Pod, ...] = ()
        self.renewable: tuple[tuple[objects.Pod, Reservation], ...] = ()
        self.again_at = inf

    def look(self, now: float) -> tuple[PendingPod, ...]:
        """All pending pods at `now` (epoch seconds); the same object while nothing of them changes."""
        waiting = self._ledger.pending()
        if not waiting and not self._known:
            return self._all
        known, self._known = self._known, {}
        self._note_bound(known, {pod.metadata.uid for pod in waiting}, now)
        for pod in waiting:
            if (one := self._guarded(pod, known.get(pod.metadata.uid), now)) is not None:
                self._known[pod.metadata.uid] = one
        gangs: dict[str, dict[str, PendingPod | None]] = {}
        for uid, one in self._known.items():
            if one.gang:
                gangs.setdefault(one.gang, {})[uid] = one.pending
        self._places.keep_only(gangs.keys())
        instead = self._gangs.without_unsettled(gangs, now)
        self.again_at = min((one.until for one in self._known.values()), default=inf)
        self.again_at = min(self.again_at, self._gangs.again_at)
        self.expired = tuple(one.pod for one in self._known.values() if one.reserved.has_run_out(now))
        self.renewable = self._renewable(now)
        ours = ((uid, one.pending) for uid, one in self._known.items() if one.pending is not None)
        found = tuple(instead.get(uid, pending) for uid, pending in ours)
        if found != self._all:
            self._all = found
        return self._all

    def _note_bound(self, known: Mapping[str, _Known], waiting: Set[str], now: float) -> None:
        """Note which pods of gangs have a node since the last look, and which node was kept for them."""
        for uid in known.keys() - waiting:
            one, node = known[uid], self._ledger.bound_to(uid)
            if one.gang and one.reserved.node and node:
                self._places.note_bound(one.gang, node, one.reserved.node, now)

    def _in_its_gang(self, gang: str, written: Reservation) -> Reservation:
        """The reservation of a pod, for the node that is left for it in its gang (167)."""
        node = self._places.place(gang, written.node, written.since)
        return written if node == written.node else msgspec.structs.replace(written, node=node)

    def _renewable(self, now: float) -> tuple[tuple[objects.Pod, Reservation], ...]:
        """The pods whose nomination is needed now.

        kube-scheduler takes a nomination away at each try in vain, and then tries all other pods again (45). While pods
        have to leave the node, such tries follow each other: only a pod that has no place yet could take the room, or
        kube-scheduler make other room by itself for a pod that is above others.
        """
        rivals = any(not one.reserved.node for one in self._known.values())
        renewable = (one for one in self._known.values() if is_renewable(one.pod, one.reserved, now))
        return tuple(
            (one.pod, one.reserved)
            for one in renewable
            if rivals or not one.waits or is_annotated(one.pod) or may_evict(one.pod)
        )

    def note_served(self, uids: Set[str], tried: Set[str], now: float) -> list[frozenset[str]]:
        """After a pass in which these pods (uids) got places; see `WholeGangs.note_served`."""
        rest_first = self._gangs.note_served(uids, tried, now)
        self.again_at = min(self.again_at, self._gangs.again_at)
        return rest_first

    def read_ahead(self, now: float) -> Iterator[None]:
        """Read new or changed pods, one at a step, if there are many of them (91). The next look remembers them."""
        changed = [pod for pod in self._ledger.pending() if not self._knows(pod)]
        for pod in changed if len(changed) > FEW_PODS else ():
            if (one := self._guarded(pod, self._known.get(pod.metadata.uid), now)) is not None:
                self._known[pod.metadata.uid] = one
            yield

    def _knows(self, pod: objects.Pod) -> bool:
        known = self._known.get(pod.metadata.uid)
        return known is not None and known.pod is pod

    def _guarded(self, pod: objects.Pod, known: _Known | None, now: float) -> _Known | None:
        """The pod at the last look; None while it is set aside: nothing is done for it, and nothing is
        taken back (88).
        """
        meta = pod.metadata
        name = f"{meta.namespace}/{meta.name}"
        return self._bulkhead.attempt("pod", meta.uid, name, lambda: self._look_at(pod, known, now))

    def _look_at(self, pod: objects.Pod, known: _Known | None, now: float) -> _Known:
        around = self._around(pod)
        seen = known if known is not None and known.pod is pod else None
        written, gang = (seen.written, seen.gang) if seen else (reservation_of(pod), gang_of(pod))
        reserved = self._in_its_gang(gang, written)
        waits = bool(reserved.node) and (self._ledger.is_left(reserved.node) or self._makes_way(reserved.node))
        key = (around, self._clock.stepped, waits, reserved.node)
        if seen and seen.key == key and now < seen.until:
            return seen
        reserved = self._prolonged(reserved, known, now, waits=waits, moved=reserved is not written)
        pending, until = pending_pod_of(pod, gang, reserved, around, self._settings, now)
        if known is not None and known.pending == pending:
            pending = known.pending
        return _Known(pod, written, reserved, key, pending, until, gang, waits)

    def _around(self, pod: objects.Pod) -> Around:
        meta, nominated = pod.metadata, pod.status.nominated_node_name
        is_there = bool(nominated) and self._nodes.named(nominated) is not None
        return Around(
            nominated if is_there else "", self._barred(meta.uid), self._volumes(meta.namespace, claims_of(pod))
        )

    def _prolonged(
        self, reserved: Reservation, known: _Known | None, now: float, *, waits: bool, moved: bool
    ) -> Reservation:
        """The reservation as it holds: its time begins when the pods that make room for it have gone (145), and anew
        when it moves to another node of its gang (167).

        It ends at the latest when one of them is overdue: from then on that pod's room is used again (40).
        """
        same = known is not None and known.reserved.node == reserved.node and known.reserved.since == reserved.since
        until = known.reserved.until if known is not None and same else 0.0
        waited = known is not None and same and known.waits
        if (waits or waited or (moved and not same)) and reserved.since <= now < reserved.since + MAX_PROLONGED_SECONDS:
            seconds = self._settings.reclaim.reservation_seconds
            until = now + min(seconds, self._ledger.overdue_within(reserved.node))
        return msgspec.structs.replace(reserved, until=until) if until > reserved.until else reserved
