"""Gives each job its minimum, in the order of jobs: all of it or nothing.

First from free room, then by displacing others: surplus of any job, then what a job holds that cannot reach its own
minimum, then whole jobs of strictly lower priority. A plan is made per missing pod (the node where the fewest must go,
the weakest first) and dropped as a whole if the last pod finds no place. At the end each pod that was to go is kept
after all if those who took its room fit elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from elastic_operator.plan.claim import MASTER, WORKER, Claim, Seat, Table
from elastic_operator.plan.model import Member
from elastic_operator.plan.place import Ask, Spot


class Cost(IntEnum):
    """What it takes to displace something, cheapest first."""

    OWN = 0
    """A worker of the taker's own, beyond its minimum (its master is missing)."""
    SURPLUS = 1
    """A worker above its job's minimum."""
    STUCK = 2
    """A worker of a job below its minimum."""
    STUCK_JOB = 3
    """All pods of a job below its minimum, since its master must go."""
    JOB = 4
    """All pods of a job of lower priority."""


@dataclass(frozen=True, slots=True)
class Victim:
    """What goes together: `members` are those on the node in question, `pods` how many go in all."""

    cost: Cost
    claim: Claim
    members: tuple[Member, ...]
    pods: int

    @property
    def strength(self) -> tuple[int, int, bool, int]:
        """Cheap and weak first: later in the order of jobs, higher index; the master last."""
        worker, index = self.members[-1].role != MASTER, self.members[-1].index
        return self.cost, -self.claim.rank, not worker, -index


@dataclass(frozen=True, slots=True)
class Way:
    """How one pod gets onto one node: these must go."""

    node: int
    victims: tuple[Victim, ...]

    @property
    def price(self) -> tuple[int, ...]:
        """Cheap kinds first; among whole jobs the lowest priority, then fewest pods; the weakest, then by node."""
        worst = max(self.victims, key=lambda v: v.strength)
        priority = worst.claim.job.priority if worst.cost is Cost.JOB else 0
        pods = sum(v.pods for v in self.victims)
        return worst.cost, priority, pods, *worst.strength[1:], self.node


Hopeless = dict[tuple[Ask | None, Ask], int]
"""For pods of these shapes: so many workers could not be placed even by displacing; true for whoever comes later."""


def serve_minima(table: Table) -> None:
    """Give every job its minimum, or leave it what it has."""
    hopeless: Hopeless = {}
    for claim in table.claims:
        if claim.sizes and claim.job.wants:
            _serve(table, claim, hopeless)
    _give_back(table)


def _serve(table: Table, claim: Claim, hopeless: Hopeless) -> None:
    was_displaced = claim.displaced
    if was_displaced:
        _come_back(table, claim)
    claim.served = claim.complete or _complete(table, claim, hopeless)
    if was_displaced and not claim.served:
        table.release_all(claim)


def _come_back(table: Table, claim: Claim) -> None:
    """A displaced job keeps what of its minimum still has its room."""
    for member in list(table.released(claim)):
        if claim.size < claim.minimum and table.fits_back(claim, member):
            table.restore(claim, member)


def _complete(table: Table, claim: Claim, hopeless: Hopeless) -> bool:
    if claim.failed_at(claim.sizes[0], table.now):
        return False
    master, workers = claim.missing(claim.sizes[0])
    shapes = (claim.master if master else None, claim.worker)
    if workers >= hopeless.get(shapes, workers + 1):
        return False
    if table.seat_all(claim, master=master, workers=workers):
        return True
    if any(_displace(table, claim, roles, most) for most in (Cost.STUCK_JOB, Cost.JOB) for roles in _orders(claim)):
        return True
    if not claim.kept:
        hopeless[shapes] = workers
    return False


def _orders(claim: Claim) -> list[list[str]]:
    """The missing pods in the orders worth trying: a master of another shape may take the place the workers need."""
    master, workers = claim.missing(claim.sizes[0])
    roles = [MASTER] * master + [WORKER] * workers
    return [roles] if claim.master is claim.worker or not (master and workers) else [roles, roles[::-1]]


def _displace(table: Table, taker: Claim, roles: Sequence[str], most: Cost) -> bool:
    """Seat all that is missing, displacing what costs at most `most`; all of it, or nothing and False."""
    mark = table.mark()
    if all(_seat(table, taker, role, most) for role in roles):
        return True
    table.roll_back(mark)
    return False


def _seat(table: Table, taker: Claim, role: str, most: Cost) -> bool:
    seat = table.find(taker, role)
    if seat is None:
        ways = (_way(table, taker, role, node, most) for node in taker.ask(role).hosts)
        way = min((w for w in ways if w is not None), key=lambda w: w.price, default=None)
        if way is None:
            return False
        _clear(table, way)
        seat = Seat(role, Spot(way.node, ready=False))
    table.sit(taker, seat)
    return True


def _clear(table: Table, way: Way) -> None:
    for victim in way.victims:
        if victim.cost in (Cost.STUCK_JOB, Cost.JOB):
            table.displace(victim.claim)
        else:
            for member in victim.members:
                table.release(victim.claim, member)


def _way(table: Table, taker: Claim, role: str, node: int, most: Cost) -> Way | None:
    """The cheapest way onto the node: the weakest go until the pod fits, then none of them goes needlessly."""
    candidates = sorted(_victims(table, taker, node, most), key=lambda v: v.strength)
    chosen: list[Victim] = []
    while not (chosen and _fits_without(table, taker.ask(role), node, chosen)):
        if len(chosen) == len(candidates):
            return None
        chosen = candidates[: len(chosen) + 1]
    chosen = _without_parts(chosen)
    for victim in reversed(chosen[:]):
        fewer = [v for v in chosen if v is not victim]
        if fewer and _fits_without(table, taker.ask(role), node, fewer):
            chosen = fewer
    return Way(node, tuple(chosen))


def _without_parts(chosen: list[Victim]) -> list[Victim]:
    """A job that goes whole takes along those of its workers that were chosen before it."""
    whole = {v.claim.rank for v in chosen if v.cost in (Cost.STUCK_JOB, Cost.JOB)}
    return [v for v in chosen if v.cost in (Cost.STUCK_JOB, Cost.JOB) or v.claim.rank not in whole]


def _fits_without(table: Table, ask: Ask, node: int, victims: Sequence[Victim]) -> bool:
    going = {m.uid: m for victim in victims for m in victim.members}
    return table.board.fits_without(ask, node, [(m.requests, m.host_ports) for m in going.values()])


def _victims(table: Table, taker: Claim, node: int, most: Cost) -> Iterator[Victim]:
    by_claim: dict[Claim, list[Member]] = {}
    for claim, member in table.residents[node].values():
        by_claim.setdefault(claim, []).append(member)
    for claim, members in by_claim.items():
        members.sort(key=lambda m: (m.role == MASTER, -m.index))
        yield from (v for v in _victims_of(claim, members, taker) if v.cost <= most)


def _victims_of(claim: Claim, members: Sequence[Member], taker: Claim) -> Iterator[Victim]:
    """What of a job's pods on one node (the last to go last) the taker may displace."""
    workers = [m for m in members if m.role != MASTER]
    if not claim.job.sizes:
        return
    if claim is taker:
        yield from (Victim(Cost.OWN, claim, (m,), 1) for m in workers[: claim.spare if not claim.has_master else 0])
    elif claim.complete:
        surplus = workers[: claim.spare]
        yield from (Victim(Cost.SURPLUS, claim, (m,), 1) for m in surplus)
        if claim.job.priority < taker.job.priority and len(surplus) < len(members):
            yield Victim(Cost.JOB, claim, tuple(members), claim.size)
    elif not claim.served:
        yield from (Victim(Cost.STUCK, claim, (m,), 1) for m in workers)
        if len(workers) < len(members):
            yield Victim(Cost.STUCK_JOB, claim, tuple(members), claim.size)


def _give_back(table: Table) -> None:
    """Keep each pod that was to go after all, the strongest first, if those who took its room fit elsewhere."""
    for claim in table.claims:
        if claim.displaced and not claim.served:
            continue
        for member in list(table.released(claim)):
            if claim.fits_more(1):
                _try_to_keep(table, claim, member)


def _try_to_keep(table: Table, claim: Claim, member: Member) -> None:
    mark = table.mark()
    moved = []
    for owner, seat in _seats_on(table, claim.at.get(member.uid)):
        if table.fits_back(claim, member):
            break
        table.stand(owner, seat)
        moved.append((owner, seat.role))
    if table.fits_back(claim, member):
        table.restore(claim, member)
        if all(table.seat_all(owner, master=role == MASTER, workers=int(role != MASTER)) for owner, role in moved):
            return
    table.roll_back(mark)


def _seats_on(table: Table, node: int | None) -> list[tuple[Claim, Seat]]:
    """Seats on the node, those of the weakest jobs first."""
    return [(claim, s) for claim in reversed(table.claims) for s in reversed(claim.seats) if s.spot.node == node]
