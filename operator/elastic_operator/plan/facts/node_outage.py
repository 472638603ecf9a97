"""Judges whether so many nodes became not Ready at once that none of them counts as lost (86). In
kube-controller-manager's words: a zone in PartialDisruption.

A machine that dies makes one node not Ready. If many nodes become not Ready within moments, the more likely cause is
that the API server cannot hear them: a load balancer, a switch, the network. Their pods continue to train. If the
operator gave these nodes up, it would end all jobs at once and start a second copy of each beside the first.
Kubernetes' own node controller evicts no pod when all nodes of a zone are not Ready, and slows down when more than 55 %
are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

MIN_OUTAGE_NODES = 2
"""This many nodes may always be lost at once, or a third of all nodes if that is more."""
WINDOW_SECONDS = 120.0
"""Nodes that became not Ready within this time of each other did so at once."""
BACK_SECONDS = 300.0
"""Once most nodes are Ready again, the other nodes have this long to become Ready again."""


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """When one node last stopped being Ready, and when it came back (epoch seconds).

    `not_ready_since` is None for a node that was never seen as not Ready. `ready_again_since` is None for a node that
    did not come back, or not within `BACK_SECONDS`. `out_of_service`: whether the node has the taint
    node.kubernetes.io/out-of-service: somebody has given it up.
    """

    name: str
    not_ready_since: float | None = None
    ready_again_since: float | None = None
    out_of_service: bool = False

    def moved(self, seconds: float) -> NodeTimes:
        """The node with its times moved by that many seconds, as after a step of the clock."""
        went, back = self.not_ready_since, self.ready_again_since
        went, back = None if went is None else went + seconds, None if back is None else back + seconds
        return replace(self, not_ready_since=went, ready_again_since=back)


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """Too many nodes are not Ready at once. The nodes in `kept_nodes` are not given up before `until` (epoch seconds);
    inf: not before most nodes are Ready again.

    A node that became not Ready earlier or later than these is judged alone.
    """

    unready: int
    total: int
    until: float
    kept_nodes: frozenset[str] = frozenset()

    @property
    def message(self) -> str:
        """The event and the remedy, in words."""
        return (
            f"{self.unready} of {self.total} nodes are not Ready. So many machines rarely fail at once, so the operator"
            f" keeps the pods there until most of these nodes have been Ready for {BACK_SECONDS:.0f} s. Look at the"
            " network between nodes and API server; delete a node that is dead, or taint it"
            " node.kubernetes.io/out-of-service."
        )


def node_outage(nodes: Iterable[NodeTimes], now: float) -> NodeOutage | None:
    """The outage at `now`; None if each node is judged alone. `nodes` are all nodes."""
    nodes = tuple(nodes)
    alive = [node for node in nodes if not node.out_of_service]
    most = max(MIN_OUTAGE_NODES, len(alive) // 3)
    away = {n.name: n.not_ready_since for n in alive if n.not_ready_since is not None and n.ready_again_since is None}
    back = [(n.not_ready_since, n.ready_again_since + BACK_SECONDS) for n in alive if n.ready_again_since is not None]
    back = [(went, end) for went, end in back if end > now]
    begin = _busiest([*away.values(), *(went for went, _ in back if went is not None)])
    kept = frozenset(name for name, time in away.items() if _within(begin, time))
    waits = sorted(end for went, end in back if went is None or _within(begin, went))
    too_many = len(kept) + len(waits) - most
    if too_many <= 0:
        return None
    until = inf if len(kept) > most else waits[too_many - 1]
    return NodeOutage(len(away), len(alive), until, kept)


def _within(begin: float, time: float) -> bool:
    return begin <= time <= begin + WINDOW_SECONDS


def _busiest(times: Sequence[float]) -> float:
    """The begin of the window of `WINDOW_SECONDS` that contains most of these times."""
    times = sorted(times)
    counts = (bisect_right(times, time + WINDOW_SECONDS) - index for index, time in enumerate(times))
    return max(zip(counts, times, strict=True), default=(0, 0.0))[1]
