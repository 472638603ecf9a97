"""The free room on each node while a pass is decided, now and soon.

*Soon* is the room that is free once all leaving pods have left; every placement must fit into it. *Now* is the room
that is free already; a placement that also fits into it is ready. Every change can be undone, so the allocation tries
plans and drops them. Other modules decide which pods are placed and which are preempted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from elastic_operator.memory import Changes, drop_older_half
from elastic_operator.plan.allocation.fit import collide, misfit
from elastic_operator.plan.allocation.free_resources import AllBut, FreeResources, PodRequirements, room_left, total_of
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.allocation.pass_memo import KnownInfeasible
from elastic_operator.plan.facts.gpus import count_gpus
from elastic_operator.plan.facts.node import HostPort, Node
from elastic_operator.plan.facts.requirements import Load, PodShape

_FEW_NODES = 16
"""Up to this many suitable nodes are sorted; more are looked up in the index of free GPUs."""


class Placement(NamedTuple):
    """A place for a pod that is to be created: the node's number, and whether its room is free now.

    It is a tuple because the placements of large jobs are compared very often.
    """

    role: str
    node_number: int
    ready: bool


class NodeChange(NamedTuple):
    """A node whose use has changed: its number, and its states before and after."""

    number: int
    before: Node
    after: Node


_MAX_SHAPES = 10_000
"""The most shapes whose requirements are kept. Equal shapes have one requirements object, unless it was dropped because
of this limit: then the allocation does some work twice.
"""


class NodeBoard:
    """Nodes by number, in the order of their names, and their free room."""

    def __init__(self, nodes: tuple[Node, ...], gpu_resources: Sequence[str], journal: Journal) -> None:
        self._changes = Changes[Node](attrgetter("name"))
        self._changes.take(nodes)
        self.nodes = tuple(sorted(nodes, key=lambda n: n.name))
        self.number = {node.name: i for i, node in enumerate(self.nodes)}
        self.gpu_resources = tuple(gpu_resources)
        self.open = tuple(i for i, node in enumerate(self.nodes) if not node.why_closed)
        self.closed = tuple(i for i, node in enumerate(self.nodes) if node.why_closed)
        self._now = [room_left(n.allocatable, n.used, n.leaving) for n in self.nodes]
        self._soon = [room_left(n.allocatable, n.used) for n in self.nodes]
        self._gpus = [count_gpus(room.free, self.gpu_resources) for room in self._soon]
        self.idle_gpus = sum(self._gpus)
        """The GPUs that are free once all leaving pods have left."""
        self._by_gpus: dict[int, list[int]] = {}
        for i in self.open:
            self._by_gpus.setdefault(self._gpus[i], []).append(i)
        self._requirements: dict[PodShape, PodRequirements] = {}
        self._suitable: dict[PodShape, tuple[tuple[int, ...], frozenset[int]]] = {}
        """The suitable nodes for pods that avoid no node, as a tuple and as a set. Its memory is proportional to the
        number of nodes, so the key has only those parts of a shape that decide about nodes (198).
        """
        self._journal = journal
        self._infeasible = KnownInfeasible()
        """Each change makes a new object, so that undoing the change brings the old object back. The object is void
        only when room is freed; a `PassMemo` would be void with each pod that is placed.
        """

    # -- reading -----------------------------------------------------------------------------------------------------

    def requirements(self, shape: PodShape) -> PodRequirements:
        """The requirements of `shape`; equal shapes, whatever makes them unpinnable, have the same object."""
        if shape.unpinned_because:
            shape = replace(shape, unpinned_because="")  # it may name a job's own volume
        requirements = self._requirements.get(shape)
        if requirements is None:
            requirements = self._requirements[shape] = self._find_requirements(shape)
            drop_older_half(self._requirements, _MAX_SHAPES)
        return requirements

    def _find_requirements(self, shape: PodShape) -> PodRequirements:
        anywhere = PodShape(
            {}, node_selector=shape.node_selector, affinity=shape.affinity, tolerations=shape.tolerations
        )
        if anywhere not in self._suitable:
            suitable = tuple(i for i in self.open if not misfit(anywhere, self.nodes[i]))
            self._suitable[anywhere] = suitable, frozenset(suitable)
        nodes, node_set = self._suitable[anywhere]
        needs = tuple(sorted((name, n) for name, n in shape.requests.items() if n > 0))
        scarce = next((need for need in needs if need[0] in self.gpu_resources), ("", 0))
        if not shape.avoided_nodes:
            return PodRequirements(shape, needs, scarce, nodes, node_set)
        avoided = frozenset(self.number[name] for name in shape.avoided_nodes if name in self.number)
        rest = AllBut(nodes, node_set, avoided)
        return PodRequirements(shape, needs, scarce, rest, rest)

    def free_soon(self, node: int) -> Mapping[str, int]:
        """The free room on the node once all leaving pods have left."""
        return self._soon[node].free

    def free_gpus(self, node: int) -> int:
        """The GPUs that are free on the node once all leaving pods have left."""
        return self._gpus[node]

    def ports_soon(self, node: int) -> Collection[HostPort]:
        """The host ports in use on the node once all leaving pods have left."""
        return self._soon[node].ports

    def fits(self, requirements: PodRequirements, node: int) -> bool:
        """Whether one more such pod has room on the node soon."""
        return node in requirements.node_set and self._soon[node].fits(requirements)

    def fits_load(self, load: Load, node: int) -> bool:
        """Whether a pod that is already on the node still has room there, even if the node takes no new pods."""
        room = self._soon[node]
        has_room = all(room.free.get(name, 0) >= n for name, n in load.requests.items() if n > 0)
        return has_room and not collide(load.host_ports, room.ports)

    def fits_without(self, requirements: PodRequirements, node: int, evicted: Iterable[Load]) -> bool:
        """Whether one more such pod would have room on the node without these loads."""
        if node not in requirements.node_set:
            return False
        room = self._soon[node]
        after = FreeResources(dict(room.free), room.ports)
        for load in evicted:
            after.remove(load.requests, load.host_ports)
        return after.fits(requirements)

    def find(self, role: str, requirements: PodRequirements, near: Collection[int] = ()) -> Placement | None:
        """The best placement: free now, then in `near`, then with the fewest free GPUs, then by the node's name."""
        soon = None
        for node in self._in_order(requirements, near):
            if self._soon[node].fits(requirements):
                if self._now[node].fits(requirements):
                    return Placement(role, node, ready=True)
                soon = node if soon is None else soon
        return None if soon is None else Placement(role, soon, ready=False)

    def _in_order(self, requirements: PodRequirements, near: Collection[int]) -> Iterator[int]:
        """Nodes that may have room for such a pod, best first."""
        name, need = requirements.scarce
        roomy = [i for i in near if i in requirements.node_set and self._soon[i].free.get(name, 0) >= need]
        yield from sorted(roomy, key=self._preference)
        if len(requirements.nodes) <= _FEW_NODES:
            yield from sorted((i for i in requirements.nodes if i not in near), key=self._preference)
            return
        for gpus in sorted(self._by_gpus):
            if gpus >= requirements.gpus or not requirements.gpus:
                yield from (i for i in self._by_gpus[gpus] if i in requirements.node_set and i not in near)

    def _preference(self, node: int) -> tuple[int, int]:
        return self._gpus[node], node

    def placements(self, role: str, requirements: PodRequirements, near: Collection[int] = ()) -> list[Placement]:
        """All placements for one such pod, best first."""
        fitting = [i for i in self._in_order(requirements, near) if self._soon[i].fits(requirements)]
        found = [Placement(role, i, ready=self._now[i].fits(requirements)) for i in fitting]
        return sorted(found, key=lambda placement: not placement.ready)

    # -- changing ----------------------------------------------------------------------------------------------------

    def take_changes(self, nodes: tuple[Node, ...]) -> list[NodeChange] | None:
        """The nodes whose use has changed since the last call; None if other nodes, or their other facts, have changed:
        then the board is of no use any more.
        """
        gone, new = self._changes.take(nodes)
        after = {node.name: node for node in new}
        if len(gone) != len(new) or any(
            one.name not in after or not _same_but_use(one, after[one.name]) for one in gone
        ):
            return None
        return [NodeChange(self.number[one.name], one, after[one.name]) for one in gone]

    def renew(self, changes: Sequence[NodeChange]) -> None:
        """Bring the use of these nodes up to date."""
        if not changes:
            return
        self._infeasible = KnownInfeasible()
        renewed = list(self.nodes)
        for number, before, after in changes:
            renewed[number] = after
            for room in (self._soon[number], self._now[number]):
                room.remove(before.used.requests, before.used.ports)
                room.add(after.used.requests, after.used.ports)
            self._now[number].remove(before.leaving.requests, before.leaving.ports)
            self._now[number].add(after.leaving.requests, after.leaving.ports)
            self._reindex(number)
        self.nodes = tuple(renewed)

    def place_members(self, members: Sequence[Load], node: int) -> None:
        """Count loads that are on the node from the start. This cannot be undone."""
        total = total_of(member.requests for member in members)
        ports = [port for member in members for port in member.host_ports]
        for room in (self._soon[node], self._now[node]):
            room.add(total, ports)
        self._reindex(node)

    def remove_member(self, member: Load, node: int) -> None:
        """Stop counting a load that was on the node from the start. This cannot be undone."""
        self._change(member, node, True, -1, KnownInfeasible())

    def change_usage(self, load: Load, node: int, sign: int, *, now: bool) -> None:
        """Count a load on the node (+1), or as leaving it (-1). With `now`, it also uses room that is free already, or
        counts as if it had not been there.
        """
        change, known = partial(self._change, load, node, now), self._infeasible
        self._journal.do(
            partial(change, sign, known if sign > 0 else KnownInfeasible()), undo=partial(change, -sign, known)
        )

    def _change(self, load: Load, node: int, now: bool, sign: int, infeasible: KnownInfeasible) -> None:
        for room in (self._soon[node], self._now[node]) if now else (self._soon[node],):
            (room.add if sign > 0 else room.remove)(load.requests, load.host_ports)
        self._reindex(node)
        self._infeasible = infeasible

    def _reindex(self, node: int) -> None:
        before, after = self._gpus[node], count_gpus(self._soon[node].free, self.gpu_resources)
        if before == after:
            return
        self._gpus[node] = after
        self.idle_gpus += after - before
        row = self._by_gpus.get(before, [])
        at = bisect_left(row, node)
        if at < len(row) and row[at] == node:
            del row[at]
            insort(self._by_gpus.setdefault(after, []), node)
        if not row:
            self._by_gpus.pop(before, None)

    def is_free(self, requirements: PodRequirements, node: int) -> bool:
        """Whether there is room for such a pod now, although leaving pods are still there."""
        return self._now[node].fits(requirements)

    def keep_free(self, requirements: PodRequirements, node: int) -> None:
        """Reserve room for a pod whose room is held: the room that is free now, and room that becomes free, until the
        pod has all of its room.
        """
        room, load = self._now[node], requirements.shape
        self._journal.do(
            partial(room.add, load.requests, load.host_ports), undo=partial(room.remove, load.requests, load.host_ports)
        )

    def has_room(self, requirements: PodRequirements) -> bool:
        """Whether one more such pod has room anywhere soon."""
        if self.is_infeasible(requirements, 1):
            return False
        if any(self._soon[node].fits(requirements) for node in self._in_order(requirements, ())):
            return True
        self.remember_infeasible(requirements, 1)
        return False

    def is_infeasible(self, requirements: PodRequirements, count: int) -> bool:
        """Whether `count` such pods are known not to fit. This is forgotten whenever room becomes free."""
        return self._infeasible.covers(requirements, count)

    def remember_infeasible(self, requirements: PodRequirements, count: int) -> None:
        """Remember that `count` such pods do not fit."""
        self._infeasible = self._infeasible.copy()
        self._infeasible.add(requirements, count)


def _same_but_use(one: Node, other: Node) -> bool:
    before, now = ((it.unschedulable, it.ready, it.taints, it.allocatable, it.labels) for it in (one, other))
    return before == now
