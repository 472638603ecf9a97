"""The options for the pods of one preemptor: the units to preempt on one node, the cheapest option first.

While the preemptor, or an equivalent one, preempts on other nodes, an option hardly ever gets cheaper. So options are
found once for all equivalent preemptors. An option is checked again when pods are preempted on its node, and when it is
the cheapest remaining one by the present share values (44, 192). If no option remains, the search is repeated, provided
that the preemptor's team, or a parent of it, uses less than during the search: the preemptor may now be entitled to
more pods of other teams (189).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.equivalence import equivalence_key
from elastic_operator.plan.allocation.pass_state import UNKNOWN_PRICE, OptionHeap
from elastic_operator.plan.allocation.preemption.candidates import Candidates, UnitKind, VictimUnit, unit_order
from elastic_operator.plan.allocation.preemption.rules import PreemptionCheck
from elastic_operator.plan.allocation.state import AllocationState
from elastic_worker.contract import ROLE_WORKER


@dataclass(frozen=True, slots=True)
class Option:
    """One pod fits onto the node if these units are preempted. `has_no_alternative`: no other unit on the node could be
    chosen instead.
    """

    node: int
    units: tuple[VictimUnit, ...]
    price: tuple[float, ...]
    has_no_alternative: bool


class Options:
    """All options for one preemptor, by the role of its pods."""

    def __init__(
        self, state: AllocationState, preemptor: Entry, candidates: Candidates, *, only: int | None = None
    ) -> None:
        self._state, self._preemptor, self._candidates, self._only = state, preemptor, candidates, only
        self._known: dict[str, OptionHeap] = {}

    def cheapest(self, role: str, need: int) -> Option | None:
        """The cheapest option for one more pod. The preemptor still lacks `need` GPUs, this pod's included."""
        check, only = self._candidates.check(need), self._only
        if only is not None:
            return self._option(role, only, check) if only in self._preemptor.requirements(role).node_set else None
        if role not in self._known:
            victim_jobs = self._candidates.victim_jobs(check)
            if (quick := self._quick_option(role, check, victim_jobs)) is not None:
                return quick
            self._known[role] = self._cached_options(role, need, check, victim_jobs)
        found = self._known[role]
        option = self._pop_cheapest_valid(found, role, check)
        if option is None and any(now < then for now, then in zip(check.use_after, found.use_after, strict=True)):
            found.begin(self._search(role, check, self._candidates.victim_jobs(check)), check.use_after)
            option = self._pop_cheapest_valid(found, role, check)
        return option

    def _cached_options(self, role: str, need: int, check: PreemptionCheck, victim_jobs: Iterable[Entry]) -> OptionHeap:
        """The options of an equivalent preemptor, if the preemptor has no pods of its own to release (44)."""
        preemptor, cached = self._preemptor, self._state.this_pass.options
        own = bool(preemptor.size)
        equivalent = None if own else equivalence_key(self._state, preemptor)
        key = equivalent, preemptor.requirements(role), need, self._candidates.search_kind
        if own or key not in cached:
            cached[key] = OptionHeap()
            cached[key].begin(self._search(role, check, victim_jobs), check.use_after)
        return cached[key]

    def _search(self, role: str, check: PreemptionCheck, victim_jobs: Iterable[Entry]) -> dict[int, Option]:
        """All options, by their nodes."""
        nodes = self._preemptor.requirements(role).node_set & self._candidates.nodes_with_victims(victim_jobs)
        return {node: option for node in nodes if (option := self._option(role, node, check)) is not None}

    def _pop_cheapest_valid(self, options: OptionHeap, role: str, check: PreemptionCheck) -> Option | None:
        heap, options.use_after = options.heap, tuple(map(max, options.use_after, check.use_after))
        while heap:
            price, node = heappop(heap)
            while heap and heap[0] == (price, node):
                heappop(heap)
            present = price if price == UNKNOWN_PRICE else self._present_price(options.by_node[node], check)
            if heap and heap[0] < (present, node):  # the accounts of its units use less than before: it costs more
                heappush(heap, (present, node))
                continue
            option = self._option(role, node, check)
            if option is None:
                continue
            heappush(heap, (option.price, node))
            options.by_node[node] = option
            if option.price <= price or heap[0] == (option.price, node):
                return option
        return None

    def _quick_option(self, role: str, check: PreemptionCheck, victim_jobs: Iterable[Entry]) -> Option | None:
        """The cheapest option among running pods: one worker of the weakest job, with no more GPUs than needed.

        A place on another node that is planned for a stronger job, and that no pod has yet, would cost less. No such
        place is searched for, because all nodes would have to be examined.
        """
        requirements, board = self._preemptor.requirements(role), self._state.board
        if not requirements.gpus:
            return None
        lacking = requirements.gpus - max((board.free_gpus(node) for node in requirements.nodes), default=0)
        for entry in self._candidates.weakest_first(victim_jobs, check, lacking):
            for node in (node for node in _as_they_leave(entry) if node in requirements.node_set):
                has_rest = board.free_gpus(node) >= requirements.gpus - lacking
                option = self._option(role, node, check) if has_rest else None
                unit = option.units[0] if option and len(option.units) == 1 else None
                if unit and unit.entry is entry and unit.gpus <= max(1, lacking):
                    return option if unit.kind is UnitKind.SURPLUS else None
        return None

    def _option(self, role: str, node: int, check: PreemptionCheck) -> Option | None:
        """The option on the node: the weakest units are added until the pod fits; then unneeded ones are dropped."""
        state, preemptor, candidates = self._state, self._preemptor, self._candidates
        if preemptor.is_foreign_pod and _is_promised(state, node, preemptor):
            return None
        units = list(candidates.on_node(node))
        if not units or not _fits_without(state, preemptor, role, node, units):
            return None
        pool, chosen = units, list[VictimUnit]()
        trial = check.copy()
        while not (chosen and _fits_without(state, preemptor, role, node, chosen)):
            able = [unit for unit in pool if candidates.may_be_preempted(unit, trial)]
            if not able:
                return None
            unit = min(able, key=lambda unit: unit_order(unit, trial))
            parts = [part for part in chosen if unit.whole and part.entry is unit.entry]
            chosen = [part for part in chosen if part not in parts] + [unit]
            pool = [other for other in pool if other is not unit and not (unit.whole and other.entry is unit.entry)]
            gpus = unit.gpus - sum(part.gpus for part in parts)
            held = unit.held_gpus - sum(part.held_gpus for part in parts)
            trial.count_victims(unit.entry.account, pods=held, not_yet_held=gpus - held)
        chosen = _needed(state, preemptor, role, node, chosen)
        entries = {unit.entry for unit in chosen if unit.whole}
        has_no_alternative = all(unit.entry in entries for unit in units)
        return Option(node, tuple(chosen), self._price(chosen, node, check), has_no_alternative)

    def _present_price(self, option: Option, check: PreemptionCheck) -> tuple[float, ...]:
        """The option's price by the present share values (192). If other units could be chosen by now, or a victim job
        has lost pods on other nodes, only another examination of the node gives that price; then this is the last
        price.
        """
        changed = self._state.this_pass.changed
        if not option.has_no_alternative or any(unit.entry in changed for unit in option.units):
            return option.price
        return self._price(option.units, option.node, check)

    def _price(self, units: Sequence[VictimUnit], node: int, check: PreemptionCheck) -> tuple[float, ...]:
        """Sort key: cheap kinds first, then few GPUs lost. Among whole jobs first those of the team with the highest
        share value, then those of low priority.

        For a gang, fewest GPUs lost comes first: a gang needs many nodes, and preempting a whole job for one node
        wastes the job's pods on other nodes (144).
        """
        worst = max(units, key=lambda unit: unit_order(unit, check))
        kind, value, *order = unit_order(worst, check)
        lost = sum(unit.held_gpus for unit in units), sum(len(unit.members) for unit in units)
        if worst.kind is UnitKind.JOB:
            weakest = value, worst.entry.demand.priority
            return kind, *((*lost, *weakest) if self._state.this_pass.current_gang else (*weakest, *lost)), *order, node
        return kind, *lost, value, *order, node


def _is_promised(state: AllocationState, node: int, preemptor: Entry) -> bool:
    """Whether pods on the node are preempted already for another foreign pod (46).

    kube-scheduler counts a nominated pod as if it were on its node. So if two pods were nominated for one node, each
    would keep the other out until the room of both is free. The pods of one gang are the exception: they wait until all
    the room of the gang is free anyway.
    """
    gang = state.this_pass.current_gang
    others = (entry for entry, _ in state.placed[node] if entry is not preemptor and entry.is_foreign_pod)
    return any(other.promised_node or other.victims for other in others if not gang or other.gang != gang)


def _as_they_leave(entry: Entry) -> Iterable[int]:
    """The nodes of a job's workers, in the order of preemption."""
    planned = [placement.node_number for placement in entry.placements[::-1] if placement.role == ROLE_WORKER]
    workers = [member.uid for member in entry.kept[::-1] if member.role == ROLE_WORKER]
    return dict.fromkeys(planned + [entry.node_of[uid] for uid in workers if uid in entry.node_of])


def _needed(
    state: AllocationState, preemptor: Entry, role: str, node: int, chosen: list[VictimUnit]
) -> list[VictimUnit]:
    for unit in chosen[::-1]:
        fewer = [other for other in chosen if other is not unit]
        if fewer and _fits_without(state, preemptor, role, node, fewer):
            chosen = fewer
    return chosen


def _fits_without(state: AllocationState, preemptor: Entry, role: str, node: int, units: Sequence[VictimUnit]) -> bool:
    whole = {unit.entry for unit in units if unit.whole}
    loads = [load for unit in units if unit.whole or unit.entry not in whole for load in unit.loads]
    return state.board.fits_without(preemptor.requirements(role), node, loads)
