"""Counts how many pods of a shape fit on the nodes: as they are, by GPUs alone, and without other jobs' pods.

The numbers are counted once per shape on the final board; `explain` makes its sentences from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.fit import collide, misfit
from elastic_operator.plan.allocation.free_resources import PodRequirements, total_of
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.node import Node, Resources

UNBOUNDED = 1 << 30
"""The number for a shape that requests nothing of a kind: more pods than any cluster holds."""


@dataclass(frozen=True, slots=True)
class Supply:
    """Numbers about the nodes that suit pods of one shape (`requirements.nodes`), and about suitable nodes that are
    closed now.

    `fitting` pods fit as things are, `by_gpus` if only GPUs mattered. `lacking` are the resources that nodes with
    enough GPUs lack. `largest` is, by resource, the largest amount on one node. `closed` are the suitable nodes that
    take no new pods.
    """

    requirements: PodRequirements
    fitting: int
    by_gpus: int
    free_gpus: int
    all_gpus: int
    lacking: tuple[str, ...]
    largest: Mapping[str, int]
    closed: tuple[Node, ...]


class Supplies:
    """Supplies by shape, each counted when it is first needed."""

    def __init__(self, state: AllocationState) -> None:
        self._state = state
        self._known: dict[PodRequirements, Supply] = {}
        self._misfits: dict[PodRequirements, list[tuple[str, int]]] = {}
        self._fitting_alone: dict[tuple[str | None, PodRequirements], dict[int, int]] = {}

    def supply_for(self, requirements: PodRequirements) -> Supply:
        if requirements not in self._known:
            self._known[requirements] = self._count(requirements)
        return self._known[requirements]

    def on_empty_nodes(self, requirements: PodRequirements) -> int:
        """How many such pods would fit if the nodes open to them were empty."""
        return sum(
            self._count_that_fit(requirements, self._state.board.nodes[node].allocatable) for node in requirements.nodes
        )

    def fit_without_others(
        self, entry: Entry, requirements: PodRequirements, count: int, *, team: str | None = None
    ) -> bool:
        """Whether that many such pods would fit without the pods of all other jobs, or of the other jobs of that team.

        It counts node by node until they fit. The numbers of nodes without pods of the entry are cached for all
        entries.
        """
        known, own = self._fitting_alone.setdefault((team, requirements), {}), _usage_of(entry)
        if not own and len(known) == len(requirements.nodes):
            return sum(known.values()) >= count
        fitting = 0
        for node in requirements.nodes:
            if node in own:
                fitting += self._count_that_fit(requirements, self._freed(team, node, own[node]))
            else:
                if node not in known:
                    known[node] = self._count_that_fit(requirements, self._freed(team, node, {}))
                fitting += known[node]
            if fitting >= count:
                return True
        return fitting >= count

    def misfits(self, requirements: PodRequirements) -> list[tuple[str, int]]:
        """The reasons why nodes are unsuitable for such pods, with the numbers of these nodes."""
        if requirements not in self._misfits:
            reasons = Counter(misfit(requirements.shape, node) for node in self._state.board.nodes)
            self._misfits[requirements] = sorted((reason, n) for reason, n in reasons.items() if reason)
        return self._misfits[requirements]

    def _count(self, requirements: PodRequirements) -> Supply:
        board = self._state.board
        gpu_needs = tuple(need for need in requirements.needs if need[0] in board.gpu_resources)
        others = tuple(need for need in requirements.needs if need[0] not in board.gpu_resources)
        free = {node: board.free_soon(node) for node in requirements.nodes}
        roomy = [node for node in requirements.nodes if _times_that_fit(gpu_needs, free[node])]
        lacking = {name for node in roomy for name, need in others if free[node].get(name, 0) < need}
        if any(collide(requirements.shape.host_ports, board.ports_soon(node)) for node in roomy):
            lacking.add("host ports")
        return Supply(
            requirements=requirements,
            fitting=sum(
                self._count_that_fit(requirements, free[n]) for n in requirements.nodes if board.fits(requirements, n)
            ),
            by_gpus=sum(_times_that_fit(gpu_needs, free[node]) for node in requirements.nodes),
            free_gpus=sum(max(0, free[node].get(name, 0)) for node in requirements.nodes for name, _ in gpu_needs),
            all_gpus=sum(
                board.nodes[node].allocatable.get(name, 0) for node in requirements.nodes for name, _ in gpu_needs
            ),
            lacking=tuple(sorted(lacking)),
            largest={
                name: max((board.nodes[i].allocatable.get(name, 0) for i in requirements.nodes), default=0)
                for name, _ in requirements.needs
            },
            closed=tuple(board.nodes[i] for i in board.closed if not misfit(requirements.shape, board.nodes[i])),
        )

    def _freed(self, team: str | None, node: int, own: Mapping[str, int]) -> Mapping[str, int]:
        """The free room on the node if all jobs, or all jobs of that team, had only the pods `own` there."""
        held = total_of(load for holder, load in self._loads(node) if team is None or holder.team == team)
        free = self._state.board.free_soon(node)
        return {name: amount + held.get(name, 0) - own.get(name, 0) for name, amount in free.items()}

    def _loads(self, node: int) -> Iterator[tuple[Entry, Resources]]:
        """The requests of all jobs' pods on the node, including those that the pass places there."""
        for holder, member in self._state.residents[node].values():
            yield holder, member.requests
        yield from self._placed.get(node, ())

    @cached_property
    def _placed(self) -> Mapping[int, list[tuple[Entry, Resources]]]:
        found: dict[int, list[tuple[Entry, Resources]]] = {}
        for entry in self._state.this_pass.changed:
            for node, load in _placements_of(entry):
                found.setdefault(node, []).append((entry, load))
        return found

    def _count_that_fit(self, requirements: PodRequirements, free: Mapping[str, int]) -> int:
        times = _times_that_fit(requirements.needs, free)
        return min(times, 1) if requirements.shape.host_ports else times


def _times_that_fit(needs: tuple[tuple[str, int], ...], free: Mapping[str, int]) -> int:
    """How many pods with these needs fit into the free room."""
    return max(0, min((free.get(name, 0) // need for name, need in needs), default=UNBOUNDED))


def _usage_of(entry: Entry) -> Mapping[int, Mapping[str, int]]:
    """The amount of each resource that the job's pods hold, by node."""
    loads: dict[int, list[Resources]] = {}
    for member in entry.kept:
        if member.uid in entry.node_of:
            loads.setdefault(entry.node_of[member.uid], []).append(member.requests)
    for node, load in _placements_of(entry):
        loads.setdefault(node, []).append(load)
    return {node: total_of(held) for node, held in loads.items()}


def _placements_of(entry: Entry) -> Iterator[tuple[int, Resources]]:
    """The nodes of the pods that the job gets in this pass, with their requests."""
    for placement in entry.placements:
        yield placement.node_number, entry.requirements(placement.role).shape.requests
