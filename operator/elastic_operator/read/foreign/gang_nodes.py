"""Treats the places of a gang as one pool (167).

kube-scheduler does not keep to nominations: once a node is free, it binds the first pod of the gang that it tries. The
pod for which that node was kept then gets the node that was kept for the bound pod. One event shows both facts. So no
node of the gang ever looks free for others, even while watch events are late.
"""

from __future__ import annotations

from collections.abc import Set


class GangNodes:
    """Remembers which pods of a gang use a place that was kept for another pod of the gang."""

    def __init__(self) -> None:
        self._taken: dict[str, dict[str, tuple[str, float]]] = {}
        """By gang and used node: the node that was kept for the pod that uses it, and when that was seen."""

    def note_bound(self, gang: str, node: str, kept: str, now: float) -> None:
        """Note that a pod of the gang is seen bound to that node at `now` (epoch seconds); the node `kept` was kept for
        it.
        """
        if node != kept:
            self._taken.setdefault(gang, {})[node] = kept, now

    def present_node(self, gang: str, kept: str, since: float) -> str:
        """The present node of a waiting pod of the gang. The node `kept` has been kept for it since `since` (epoch
        seconds).
        """
        taken, seen = self._taken.get(gang, {}), {kept}
        while kept in taken and taken[kept][1] >= since and taken[kept][0] not in seen:
            kept = taken[kept][0]
            seen.add(kept)
        return kept

    def keep_only(self, gangs: Set[str]) -> None:
        """Forget all other gangs: no pod of theirs waits any more."""
        if self._taken.keys() - gangs:
            self._taken = {gang: nodes for gang, nodes in self._taken.items() if gang in gangs}
