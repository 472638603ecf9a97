"""Whether so many nodes went away at once that none of them is taken for lost.

One machine that dies is one node that is not Ready. When many go within moments, it is more likely that they cannot be
heard: a load balancer, a switch, the network to the API server. What runs on them runs on, and whoever gave it up would
end all jobs at once and start a second copy of each beside the first. Kubernetes' own node controller evicts nobody
when all nodes of a zone are away, and slows down when more than 55 % are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

FEW = 2
"""So many nodes may always be lost at once, and a third of all where that is more."""
WINDOW_SECONDS = 120.0
"""Nodes that went within so long of each other went at once."""
BACK_SECONDS = 300.0
"""When most are back, the others get so long."""


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """A node and since when it is as it is: away if it is not Ready, else back, or None if it did not come back lately.

    `went` is since when one that is back was away, None where that is not known. `out_of_service`: somebody has tainted
    it so, and by that has given it up.
    """

    name: str
    ready: bool
    since: float | None
    went: float | None = None
    out_of_service: bool = False


@dataclass(frozen=True, slots=True)
class Disruption:
    """So many of the nodes are away; until then (inf: until most are back) those in `kept` are not given up.

    A node that went before or after them is judged by itself.
    """

    away: int
    of: int
    until: float
    kept: frozenset[str] = frozenset()

    @property
    def told(self) -> str:
        """What is so, and what can be done about it."""
        return (
            f"{self.away} of {self.of} nodes are not Ready: too many at once for machines that died, so pods there are"
            f" not given up before most nodes have been back for {BACK_SECONDS:.0f} s. Look at the network between"
            " nodes and API server; delete a node that is dead, or taint it node.kubernetes.io/out-of-service."
        )


def disruption(nodes: Iterable[NodeTimes], now: float) -> Disruption | None:
    """What `nodes` (all there are) come to at `now`; None where each is judged by itself."""
    nodes = tuple(nodes)
    alive = [node for node in nodes if not node.out_of_service]
    most = max(FEW, len(alive) // 3)
    away = [node.since for node in alive if not node.ready and node.since is not None]
    back = [(node.went, node.since + BACK_SECONDS) for node in alive if node.ready and node.since is not None]
    back = [(went, end) for went, end in back if end > now]
    begin = _busiest([*away, *(went for went, _ in back if went is not None)])
    at_once = sum(_within(begin, time) for time in away)
    waits = sorted(end for went, end in back if went is None or _within(begin, went))
    too_many = at_once + len(waits) - most
    if too_many <= 0:
        return None
    until = inf if at_once > most else waits[too_many - 1]
    kept = (n.name for n in alive if not n.ready and n.since is not None and _within(begin, n.since))
    return Disruption(len(away), len(alive), until, frozenset(kept))


def _within(begin: float, time: float) -> bool:
    return begin <= time <= begin + WINDOW_SECONDS


def _busiest(times: Sequence[float]) -> float:
    """When the window begins that has the most of these times."""
    times = sorted(times)
    counts = (bisect_right(times, time + WINDOW_SECONDS) - index for index, time in enumerate(times))
    return max(zip(counts, times, strict=True), default=(0, 0.0))[1]
