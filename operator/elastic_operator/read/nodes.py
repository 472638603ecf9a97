"""Reads all nodes with their use by pods, and when nodes stopped being Ready."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple, TypeVar

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.memory import KeyedCache, SingleCache
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.node import Node, Unready, UnreadyNode
from elastic_operator.quarantine import Quarantine
from elastic_operator.read import convert
from elastic_operator.read.first_seen import FirstSeen
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.node_outages import NodeOutages

log = logging.getLogger(__name__)

T = TypeVar("T")


class NodeAvailability(NamedTuple):
    """The names of all nodes, and for each closed node the reason why no new pod starts there, in words."""

    names: frozenset[str] = frozenset()
    closed: Mapping[str, str] = {}

    def why_closed(self, name: str) -> str:
        """Why the node takes no new pods, in words; "" if it takes new pods."""
        return self.closed.get(name, "") if name in self.names else "gone"


class Nodes:
    """The nodes at the last refresh. A node is read again only when a part of it changes.

    A node at which the operator raises an error is closed: no pod is placed there, and pods that run there stay and
    count (88).
    """

    def __init__(
        self,
        stored: Store[objects.Node],
        ledger: Ledger,
        first_seen: FirstSeen,
        quarantine: Quarantine,
        gpu_resources: Sequence[str],
    ) -> None:
        self._stored, self._ledger, self._first_seen, self._quarantine = stored, ledger, first_seen, quarantine
        self.availability = NodeAvailability()
        """The names of the nodes at the last refresh, and the closed ones among them. A quarantined node does not count
        as closed here: the scheduler decides about pods that wait for it.
        """
        self._last_revision: object = None
        self._last_unready: Unready | None = None
        """The nodes that were not Ready at the last refresh; None before the first one."""
        self.outages = NodeOutages(stored, first_seen.clock, gpu_resources)
        self._known: KeyedCache[tuple[object, ...], Node] = KeyedCache()
        self._all: SingleCache[object, tuple[Node, ...]] = SingleCache()

    def refresh(self, now: float) -> Unready:
        """Read which nodes take new pods, and which are not Ready; returns the latter.

        The clock that wrote a node's time may be far behind. If a node was Ready at the last refresh, it stopped being
        Ready hardly before that refresh, so `FirstSeen` corrects the time. A quarantined node keeps its last state.
        """
        before, revision = self._last_unready, self._revision()
        has_news = revision != self._last_revision
        availability = self._find_availability() if has_news else self.availability
        unready = self._find_unready() if has_news or before != {} else {}
        self.outages.refresh(before, unready, now)
        # All at once: if a part has raised an error, the next refresh does everything again.
        self._last_revision, self.availability, self._last_unready = revision, availability, unready
        return unready

    def _find_availability(self) -> NodeAvailability:
        """Judge the nodes that have changed, and those whose judgement has failed. Mark the jobs with refused pods on
        these nodes (142).
        """
        reasons: dict[str, str | None] = {}
        for node in self._stored.values():
            name, known = node.metadata.name, self._known.peek(node.metadata.name)
            if known is not None and known[0][:2] == (node, convert.node_facts):
                reasons[name] = known[1].why_closed
            else:
                self._ledger.mark_refused(name)
                fact = self._attempt(node, partial(convert.node_facts, node))
                reasons[name] = fact.why_closed if fact is not None else None  # it is quarantined
        return NodeAvailability(frozenset(reasons), {name: why for name, why in reasons.items() if why})

    def unready_of(self, pods: tuple[OwnPod, ...]) -> Unready:
        """The nodes of these pods that were not Ready at the last refresh."""
        unready = self._last_unready
        found = {pod.node: unready.get(pod.node) for pod in pods if pod.node} if unready else {}
        return {name: node for name, node in found.items() if node is not None}

    def misplaced(self, pods: tuple[OwnPod, ...]) -> dict[str, str]:
        """The unbound pods (uids) that are pinned to a node which accepts them no more, each with the reason."""
        pinned = [(pod, pod.node) for pod in pods if not pod.bound and pod.node and pod.active]
        return {pod.uid: why for pod, node in pinned if (why := self._why_shut_out(pod, node))}

    def _why_shut_out(self, pod: OwnPod, node: str) -> str:
        """Why a pod that is pinned to that node, and not bound, will not start there, in words; "" if it may start
        (142).

        A lack of room counts only after kube-scheduler has reported it: before, kube-scheduler may have placed the pod
        already. The use of the node is no key of the job's facts. When the use or the node changes,
        `Ledger.mark_refused` marks the jobs for which the answer may differ.
        """
        if why := self.availability.why_closed(node):
            return f"node {node} accepts no more pods ({why})"
        stored = self._stored.named(node) if pod.unschedulable else None
        if stored is None:
            return ""
        fact = self._attempt(stored, lambda: convert.node_facts(stored))
        if fact is None:
            return ""
        has, used = fact.allocatable, self._ledger.bound_use(node)
        lacking = [name for name, amount in pod.requests.items() if used.get(name, 0) + amount > has.get(name, 0)]
        return f"other pods use the {lacking[0]} of node {node}" if lacking else ""

    def _revision(self) -> object:
        """A value that changes whenever a node changes, is quarantined, or is due for another try."""
        return self._stored.revision, self._quarantine.revision()

    def _attempt(self, node: objects.Node, work: Callable[[], T]) -> T | None:
        return self._quarantine.attempt("node", node.metadata.uid, node.metadata.name, work)

    def all_with_use(self, members: Set[str], to_delete: Sequence[OwnPod]) -> tuple[Node, ...]:
        """All nodes with their use. `members` are the pods in the allocation's input, `to_delete` are about to be
        deleted.

        Pods that are not bound yet hold nothing. An unchanged node is the same object as before.
        """
        seen = self._revision(), self._ledger.revision, members, to_delete
        return self._all.get(seen, self._read_all, members, to_delete)

    def _read_all(self, members: Set[str], to_delete: Sequence[OwnPod]) -> tuple[Node, ...]:
        by_node: dict[str, tuple[OwnPod, ...]] = {}
        for pod in to_delete:
            if pod.node and pod.bound and pod.active:
                by_node[pod.node] = (*by_node.get(pod.node, ()), pod)
        given_up = {pod.uid for pod in to_delete if pod.deleting_since is None}
        counted_elsewhere = members | given_up if given_up else members
        nodes = list[Node]()
        for stored in self._stored.values():
            args = stored, counted_elsewhere, by_node.get(stored.metadata.name, ())
            node = self._attempt(stored, partial(self._with_use, convert.node_facts, *args)) or self._closed(*args)
            nodes += [node] if node is not None else []
        if len(self._known.items()) > len(nodes):
            self._known.drop_absent({node.name for node in nodes})
        return tuple(nodes)

    def _closed(self, stored: objects.Node, counted_elsewhere: Set[str], to_delete: tuple[OwnPod, ...]) -> Node | None:
        """A quarantined node: its use by pods counts for their teams. None if even that cannot be read."""
        try:
            return self._with_use(convert.closed_node, stored, counted_elsewhere, to_delete)
        except Exception:
            log.exception("cannot compute what the pods of a node use node=%s", stored.metadata.name)
            return None

    def _with_use(
        self,
        as_fact: Callable[[objects.Node], Node],
        stored: objects.Node,
        counted_elsewhere: Set[str],
        to_delete: tuple[OwnPod, ...],
    ) -> Node:
        """The node as the function `as_fact` reads it, with its use by pods. While neither changes, it is the same
        object.
        """
        name, ledger = stored.metadata.name, self._ledger
        key = stored, as_fact, ledger.node_revision(name), ledger.own_pods_except(name, counted_elsewhere), to_delete
        return self._known.get(
            name, key, lambda: ledger.with_use(as_fact(stored), counted_elsewhere, leaving=to_delete)
        )

    def _find_unready(self) -> Unready:
        unready: dict[str, UnreadyNode] = {}
        previous = self._last_unready or {}
        for node in self._stored.values():
            name, noted = node.metadata.name, self._attempt(node, partial(self._note_if_unready, node, unready))
            if noted is None and name in previous:
                unready[name] = previous[name]
            if name in unready:
                unready[name] = unready[name]._replace(out_of_service=convert.is_out_of_service(node))
        return unready

    def _note_if_unready(self, node: objects.Node, unready: dict[str, UnreadyNode]) -> bool:
        """Note the node if it is not Ready; returns whether it is."""
        written = convert.unready_since(node)
        if written is None:
            return False
        unready[node.metadata.name] = UnreadyNode(written, self._first_seen.since(node.metadata.uid, written))
        return True
