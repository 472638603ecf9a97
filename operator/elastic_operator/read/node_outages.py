"""Finds at each refresh whether too many nodes are not Ready at once. If so, none of them is given up (86).

`plan/facts/node_outage.py` decides; this module remembers the earlier states for the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.node import Unready
from elastic_operator.plan.facts.node_outage import BACK_SECONDS, MIN_OUTAGE_NODES, NodeOutage, NodeTimes, node_outage
from elastic_operator.read import convert

log = logging.getLogger(__name__)

BIRTH_SECONDS = 60.0
"""A node is created some time before it is first Ready. A node that has never been Ready is no loss."""


class NodeOutages:
    """Remembers which nodes became Ready again. At its first refresh it believes the times in the nodes' statuses."""

    def __init__(self, stored: Store[objects.Node], clock: ServerClock, gpu_resources: Sequence[str]) -> None:
        self._stored, self._clock, self._gpu_resources = stored, clock, gpu_resources
        self._stepped = clock.stepped
        self.present: NodeOutage | None = None
        """The outage at the last refresh; None if there was none."""
        self._unborn: set[str] = set()
        """Nodes that had never been Ready at the last refresh."""
        self._back: dict[str, NodeTimes] = {}
        """The nodes that are Ready again, by name."""

    def refresh(self, before: Unready | None, unready: Unready, now: float) -> None:
        """Judge again; `before` are the nodes that were not Ready at the last refresh, None at the first refresh."""
        self._step()
        known = (before or {}).items()
        just_back = {name: NodeTimes(name, node.since, now) for name, node in known if name not in self._unborn}
        back = self._back_as_written(now) if before is None else self._back | just_back
        # Only nodes that came back lately count.
        recent = (node for node in back.values() if (node.ready_again_since or 0.0) + BACK_SECONDS > now)
        back = {node.name: node for node in recent if node.name not in unready}
        self._back, was, self.present = back, self.present, None
        self._unborn = {n.metadata.name for n in self._stored.values() if _is_unborn(n, unready)} if unready else set()
        if len(unready) + len(back) > MIN_OUTAGE_NODES:
            nodes = (node for node in self._that_count() if node.metadata.name not in self._unborn)
            self.present = node_outage((self._node_times(node, unready) for node in nodes), now)
        if self.present and not was:
            log.warning("nodes are not given up for now reason=%r", self.present.message)
        elif was and not self.present:
            log.info("nodes are given up again, one by one")

    def _step(self) -> None:
        """Move the times that were found before a step of the clock along with the clock (29)."""
        by, self._stepped = self._clock.stepped - self._stepped, self._clock.stepped
        if by:
            self._back = {name: node.moved(by) for name, node in self._back.items()}

    def _that_count(self) -> Sequence[objects.Node]:
        """The nodes with GPUs, if there are any: an unreachable rack of GPU nodes may be a small part of all nodes."""
        nodes = self._stored.values()
        with_gpus = [n for n in nodes if any(name in (n.status.allocatable or ()) for name in self._gpu_resources)]
        return with_gpus or nodes

    def _back_as_written(self, now: float) -> dict[str, NodeTimes]:
        back: dict[str, NodeTimes] = {}
        for node in self._stored.values():
            written = convert.ready_since(node)
            if convert.age_at(node, written) >= BACK_SECONDS:
                name = node.metadata.name
                back[name] = NodeTimes(name, ready_again_since=min(now, written))
        return back

    def _node_times(self, node: objects.Node, unready: Unready) -> NodeTimes:
        name = node.metadata.name
        dead = convert.is_out_of_service(node)
        if name in unready:
            return NodeTimes(name, unready[name].since, out_of_service=dead)
        return replace(self._back.get(name, NodeTimes(name)), out_of_service=dead)


def _is_unborn(node: objects.Node, unready: Unready) -> bool:
    since = unready.get(node.metadata.name)
    return since is not None and convert.age_at(node, since.written) < BIRTH_SECONDS
