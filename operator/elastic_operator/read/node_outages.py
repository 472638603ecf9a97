"""Finds at each refresh whether too many nodes are away at once: then none of them is given up (86).

`plan/facts/node_outage.py` decides; this module remembers the earlier states that the decision needs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.node_outage import BACK_SECONDS, MIN_OUTAGE_NODES, NodeOutage, NodeTimes, node_outage
from elastic_operator.read import convert

log = logging.getLogger(__name__)

Down = Mapping[str, tuple[float, float]]
"""Nodes that are not Ready: since when by their status, and since when by our judgment."""
BIRTH_SECONDS = 60.0
"""A node is created some time before it is first Ready. A node that has never been Ready is no loss."""


class NodeOutages:
    """Remembers which nodes came back. At its first refresh it believes the nodes' own reports."""

    def __init__(self, stored: Store[objects.Node], clock: ServerClock, gpu_resources: Sequence[str]) -> None:
        self._stored, self._clock, self._gpu_resources = stored, clock, gpu_resources
        self._stepped = clock.stepped
        self.present: NodeOutage | None = None
        """The outage at the last refresh; None if there was none."""
        self._unborn: set[str] = set()
        """Nodes that had never been Ready at the last refresh."""
        self._back: dict[str, tuple[float | None, float]] = {}
        """Nodes that are Ready again: since when they were away (None if unknown), and since when they are back."""

    def refresh(self, before: Down | None, down: Down, now: float) -> None:
        """Judge again; `before` are the nodes that were down at the last refresh, None at the first refresh."""
        self._step()
        back = self._back_as_written(now) if before is None else self._back | self._just_back(before, now)
        back = {name: times for name, times in back.items() if times[1] + BACK_SECONDS > now and name not in down}
        self._back, was, self.present = back, self.present, None
        self._unborn = {n.metadata.name for n in self._stored.values() if _is_unborn(n, down)} if down else set()
        if len(down) + len(back) > MIN_OUTAGE_NODES:
            nodes = (node for node in self._that_count() if node.metadata.name not in self._unborn)
            self.present = node_outage((self._node_times(node, down) for node in nodes), now)
        if self.present and not was:
            log.warning("nodes are not given up for now: %s", self.present.message)
        elif was and not self.present:
            log.info("nodes are given up again, one by one")

    def _step(self) -> None:
        """Move the times that were found before a step of the clock along with it (29)."""
        by, self._stepped = self._clock.stepped - self._stepped, self._clock.stepped
        if by:
            self._back = {name: (went and went + by, since + by) for name, (went, since) in self._back.items()}

    def _that_count(self) -> Sequence[objects.Node]:
        """The nodes with GPUs, if there are any: a rack of them that is out of reach may be a small part of all
        nodes.
        """
        nodes = self._stored.values()
        with_gpus = [n for n in nodes if any(name in (n.status.allocatable or ()) for name in self._gpu_resources)]
        return with_gpus or nodes

    def _just_back(self, before: Down, now: float) -> dict[str, tuple[float | None, float]]:
        return {name: (went, now) for name, (_, went) in before.items() if name not in self._unborn}

    def _back_as_written(self, now: float) -> dict[str, tuple[float | None, float]]:
        back: dict[str, tuple[float | None, float]] = {}
        for node in self._stored.values():
            written = convert.ready_since(node)
            if convert.age_at(node, written) >= BACK_SECONDS:
                back[node.metadata.name] = None, min(now, written)
        return back

    def _node_times(self, node: objects.Node, down: Down) -> NodeTimes:
        name = node.metadata.name
        dead = convert.is_out_of_service(node)
        if name in down:
            return NodeTimes(name, ready=False, since=down[name][1], out_of_service=dead)
        went, since = self._back.get(name, (None, None))
        return NodeTimes(name, ready=True, since=since, went=went, out_of_service=dead)


def _is_unborn(node: objects.Node, down: Down) -> bool:
    times = down.get(node.metadata.name)
    return times is not None and convert.age_at(node, times[0]) < BIRTH_SECONDS
