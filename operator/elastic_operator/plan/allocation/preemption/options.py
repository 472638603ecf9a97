"""The ways onto nodes for the pods of one taker: who would have to go where, the cheapest first.

A way becomes dearer, not cheaper, while the taker, or another one like it, takes elsewhere. So the ways are looked for
once for all who are alike, and each is only looked at again when it is the cheapest left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from elastic_operator.plan.allocation.entry import WORKER, Claim
from elastic_operator.plan.allocation.preemption.rules import Taking
from elastic_operator.plan.allocation.preemption.victims import Cost, Unit, Victims, strength
from elastic_operator.plan.allocation.state import Table

Found = list[tuple[tuple[float, ...], int]]
"""A heap of ways that were found, as prices and nodes."""


@dataclass(frozen=True, slots=True)
class Way:
    """How one pod gets onto one node: these must go."""

    node: int
    units: tuple[Unit, ...]
    price: tuple[float, ...]


class Ways:
    """All ways for one taker, by the role of its pods."""

    def __init__(self, table: Table, taker: Claim, victims: Victims, *, only: int | None = None) -> None:
        self._table, self._taker, self._victims, self._only = table, taker, victims, only
        self._known: dict[str, Found] = {}

    def cheapest(self, role: str, need: int) -> Way | None:
        """The cheapest way for one more pod; `need` are the GPUs that the taker still lacks, this pod's included."""
        taking = self._victims.taking(need)
        if role not in self._known:
            quick = self._at_first_sight(role, taking) if self._only is None else None
            if quick is not None:
                return quick
            self._known[role] = self._known_to_its_like(role, need, taking)
        return self._first_that_still_is(self._known[role], role, taking)

    def _known_to_its_like(self, role: str, need: int, taking: Taking | None) -> Found:
        """What a taker of the same team and rank found, if this one has nothing of its own to give either."""
        taker = self._taker
        if taker.size or self._only is not None:
            return self._look(role, taking)
        request = taker.request and (taker.request.preempts, taker.request.priority)
        spares = self._table.spares_whole_jobs(taker)
        key = (taker.team, taker.job.priority, request, taker.ask(role), need, self._victims.kind, spares)
        if key not in self._table.ways:
            self._table.ways[key] = self._look(role, taking)
        return self._table.ways[key]

    def _look(self, role: str, taking: Taking | None) -> Found:
        nodes = self._taker.ask(role).host_set & (self._victims.hosts() if self._only is None else {self._only})
        ways = (self._way(role, node, taking) for node in nodes)
        found = [(way.price, way.node) for way in ways if way is not None]
        heapify(found)
        return found

    def _first_that_still_is(self, known: Found, role: str, taking: Taking | None) -> Way | None:
        while known:
            price, node = heappop(known)
            way = self._way(role, node, taking)
            if way is None:
                continue
            heappush(known, (way.price, node))
            if way.price <= price or known[0] == (way.price, node):
                return way
        return None

    def _at_first_sight(self, role: str, taking: Taking | None) -> Way | None:
        """A way that no other can be cheaper than: one worker goes, of the weakest, and not a GPU more than needed."""
        ask, board = self._taker.ask(role), self._table.board
        if not ask.gpus or taking is None:
            return None
        lacking = ask.gpus - max((board.free_gpus(node) for node in ask.hosts), default=0)
        for claim in self._victims.weakest_first(taking, lacking):
            for node in (node for node in _as_they_leave(claim) if node in ask.host_set):
                way = self._way(role, node, taking) if board.free_gpus(node) >= ask.gpus - lacking else None
                if way and len(way.units) == 1 and way.units[0].claim is claim and way.units[0].gpus <= max(1, lacking):
                    return way if way.units[0].cost is Cost.SURPLUS else None
        return None

    def _way(self, role: str, node: int, taking: Taking | None) -> Way | None:
        """The cheapest way onto the node: the weakest go until the pod fits, then none of them goes needlessly."""
        table, taker, victims = self._table, self._taker, self._victims
        if taker.request and _is_promised(table, node, taker):
            return None
        pool, chosen = list(victims.on_node(node)), list[Unit]()
        if not pool or not _fits_without(table, taker, role, node, pool):
            return None
        trial = taking.copy() if taking else None
        while not (chosen and _fits_without(table, taker, role, node, chosen)):
            able = [unit for unit in pool if victims.may_go(unit, trial)]
            if not able:
                return None
            unit = min(able, key=lambda unit: strength(unit, trial))
            parts = [part for part in chosen if unit.whole and part.claim is unit.claim]
            chosen = [one for one in chosen if one not in parts] + [unit]
            pool = [one for one in pool if one is not unit and not (unit.whole and one.claim is unit.claim)]
            if trial and unit.claim.account:
                trial.take(unit.claim.account, unit.gpus - sum(part.gpus for part in parts))
        chosen = _needed(table, taker, role, node, chosen)
        return Way(node, tuple(chosen), _price(chosen, node, taking, gang=bool(table.serving)))


def _is_promised(table: Table, node: int, taker: Claim) -> bool:
    """Whether somebody makes way there for another foreign pod already.

    kube-scheduler counts a pod that is nominated for a node as if it were there: two of them would keep each other out
    until the room of both is free. Those of one gang wait for all of it anyway.
    """
    others = (claim for claim, _ in table.seated[node] if claim is not taker and claim.request)
    others = (claim for claim in others if not table.serving or claim.gang != table.serving)
    return any((other.request and other.request.promised) or other.took for other in others)


def _as_they_leave(claim: Claim) -> Iterable[int]:
    """The nodes of a job's workers, in the order in which these go."""
    seats = [seat.spot.node for seat in claim.seats[::-1] if seat.role == WORKER]
    return dict.fromkeys(seats + [claim.at[m.uid] for m in claim.kept[::-1] if m.role == WORKER and m.uid in claim.at])


def _needed(table: Table, taker: Claim, role: str, node: int, chosen: list[Unit]) -> list[Unit]:
    for unit in chosen[::-1]:
        fewer = [one for one in chosen if one is not unit]
        if fewer and _fits_without(table, taker, role, node, fewer):
            chosen = fewer
    return chosen


def _price(units: Sequence[Unit], node: int, taking: Taking | None, *, gang: bool) -> tuple[float, ...]:
    """Cheap kinds first, then few GPUs lost; of whole jobs first those of the team furthest beyond, of low priority.

    For a gang, few GPUs lost come before that: it takes many nodes, and parts of jobs elsewhere that end with it would
    be lost in vain (144).
    """
    worst = max(units, key=lambda unit: strength(unit, taking))
    cost, excess, *weakness = strength(worst, taking)
    lost = sum(unit.lost for unit in units), sum(len(unit.members) for unit in units)
    if worst.cost is Cost.JOB:
        first, then = (lost, (excess, worst.claim.job.priority)) if gang else ((excess, worst.claim.job.priority), lost)
        return cost, *first, *then, *weakness, node
    return cost, *lost, excess, *weakness, node


def _fits_without(table: Table, taker: Claim, role: str, node: int, units: Sequence[Unit]) -> bool:
    whole = {unit.claim for unit in units if unit.whole}
    loads = [load for unit in units if unit.whole or unit.claim not in whole for load in unit.loads]
    return table.board.fits_without(taker.ask(role), node, loads)
