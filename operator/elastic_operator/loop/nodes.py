"""All nodes with what pods use of them, since when those that are not Ready are so, and whether they are too many."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set

from elastic_operator.cluster import convert, objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.ledger import Ledger
from elastic_operator.cluster.store import Store
from elastic_operator.plan.disruption import BACK_SECONDS, FEW, Disruption, NodeTimes, disruption
from elastic_operator.plan.job import OwnPod
from elastic_operator.plan.model import Node

log = logging.getLogger(__name__)

Unready = Mapping[str, float]
"""Nodes that are not Ready, with since when."""
Down = dict[str, tuple[float, float]]
"""The same: since when as written, and as believed."""
LATE_SECONDS = 60.0
"""Later than this, news of a node is not late: the clock of whoever wrote it is."""
BIRTH_SECONDS = 60.0
"""A node is made some time before it is Ready for the first time; what is so since then is no loss."""


class Nodes:
    """The nodes as last looked at; each is made anew only when something of it changes."""

    def __init__(self, stored: Store[objects.Node], ledger: Ledger, clock: ServerClock) -> None:
        self._stored, self._ledger, self._clock = stored, ledger, clock
        self._down: Down | None = None
        """Nodes that were not Ready at the last look; None before the first."""
        self._unborn: set[str] = set()
        """Those of them that were never Ready."""
        self._back: dict[str, float] = {}
        """Nodes that are Ready again, since when."""
        self.disruption: Disruption | None = None
        """Whether too many were away at the last look for any of them to be given up."""
        self._known: dict[str, tuple[objects.Node, object, Node]] = {}
        self._all: tuple[object, tuple[Node, ...]] = (None, ())

    def look(self, members: Set[str], leaving: Iterable[tuple[str, OwnPod]]) -> tuple[Node, ...]:
        """All nodes with their use; `members` are listed in the snapshot's jobs, `leaving` are about to be deleted.

        `leaving` has the namespace of each; those that are not bound yet hold nothing. A node of which nothing changed
        is the same object as before.
        """
        leaving = tuple(leaving)
        key = (self._ledger.changes, self._stored.revision, members, leaving)
        if key != self._all[0]:
            self._all = key, self._look(members, leaving)
        return self._all[1]

    def _look(self, members: Set[str], leaving: Iterable[tuple[str, OwnPod]]) -> tuple[Node, ...]:
        going: dict[str, tuple[tuple[str, OwnPod], ...]] = {}
        for namespace, pod in leaving:
            if pod.node and pod.bound and pod.deleting_since is None and not pod.ended:
                going[pod.node] = (*going.get(pod.node, ()), (namespace, pod))
        given_up = {pod.uid for _, pod in leaving if pod.deleting_since is None}
        apart = members | given_up if given_up else members
        stored = self._stored.values()
        nodes = tuple(self._node(node, apart, going.get(node.metadata.name, ())) for node in stored)
        if len(self._known) > len(nodes):
            here = {node.name for node in nodes}
            self._known = {name: known for name, known in self._known.items() if name in here}
        return nodes

    def _node(self, stored: objects.Node, apart: Set[str], going: tuple[tuple[str, OwnPod], ...]) -> Node:
        name = stored.metadata.name
        key = (self._ledger.revision(name), self._ledger.outsiders(name, apart), going)
        known = self._known.get(name)
        if known is not None and known[0] is stored and known[1] == key:
            return known[2]
        usage = self._ledger.node_usage(name, apart, leaving=[(space, pod.requests) for space, pod in going])
        node = convert.node(stored, usage)
        if known is not None and known[2] == node:
            node = known[2]
        self._known[name] = (stored, key, node)
        return node

    def unready_since(self, now: float) -> Unready:
        """Since when each node that is not Ready is so.

        Whoever wrote that time may have a clock that is far behind. A node that was Ready at the last look has not been
        away for much longer than that.
        """
        down: Down = {}
        unborn: set[str] = set()
        for node in self._stored.values():
            written = convert.unready_since(node)
            if written is None:
                continue
            name, known = node.metadata.name, self._down
            since = self._clock.current(written, of=node.metadata.uid)
            if known is not None and now - since >= LATE_SECONDS:
                since = known[name][1] if known.get(name, (None,))[0] == written else now
            down[name] = (written, since)
            if convert.age_at(node, written) < BIRTH_SECONDS:
                unborn.add(name)
        self._back = self._came_back(self._down, down, now)
        self._down, self._unborn = down, unborn
        self._judge(now)
        return {name: since for name, (_, since) in down.items()}

    def _came_back(self, before: Down | None, down: Down, now: float) -> dict[str, float]:
        """Those that are Ready again, since this process saw it; at its first look, since it was written."""
        if before is None:
            times = {node.metadata.name: self._ready_since(node, now) for node in self._stored.values()}
        else:
            times = self._back | dict.fromkeys(before.keys() - self._unborn, now)
        return {name: since for name, since in times.items() if since + BACK_SECONDS > now and name not in down}

    def _ready_since(self, node: objects.Node, now: float) -> float:
        written = convert.ready_since(node)
        if convert.age_at(node, written) < BACK_SECONDS:
            return 0.0
        return min(now, self._clock.current(written, of=node.metadata.uid))

    def _judge(self, now: float) -> None:
        """Whether so many went at once that none of them is to be given up."""
        down, was = self._down or {}, self.disruption
        self.disruption = None
        if len(down) + len(self._back) > FEW:
            times = (self._times(node) for node in self._stored.values() if node.metadata.name not in self._unborn)
            self.disruption = disruption(times, now)
        if self.disruption and not was:
            log.warning("nodes are not given up for now: %s", self.disruption.told)
        elif was and not self.disruption:
            log.info("nodes are given up again, one by one")

    def _times(self, node: objects.Node) -> NodeTimes:
        name, down = node.metadata.name, self._down or {}
        since = down[name][1] if name in down else self._back.get(name)
        return NodeTimes(name, name not in down, since, convert.is_out_of_service(node))

    def clock_stepped(self) -> None:
        """What was reckoned on the clock before is reckoned anew."""
        self._down = None
