"""What may make way for a pod: the units that go together, what each costs, and who goes first.

Within a team, a minimum may take what other jobs have above theirs, and whole jobs of strictly lower priority, or whose
turn is over. From another team it may take the same, and whole jobs of any priority, as far as it is entitled to
(`entitle`). Growth takes from other teams only, whole jobs less often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from elastic_operator.plan.accounts import Account
from elastic_operator.plan.claim import MASTER, WORKER, Claim, Seat
from elastic_operator.plan.entitle import Taking
from elastic_operator.plan.model import HostPort, Member, Resources
from elastic_operator.plan.table import Table

_LAST = 1 << 30
"""Index of pods that do not exist yet: they go before any that do."""


class Cost(IntEnum):
    """What it takes to displace something, cheapest first."""

    OWN = 0
    """A worker of the taker's own, beyond its minimum (its master is missing)."""
    HELD = 1
    """A seat that is held for a job that has waited too long."""
    SURPLUS = 2
    """A worker above its job's minimum."""
    STUCK = 3
    """A worker of a job below its minimum."""
    STUCK_JOB = 4
    """All pods of a job below its minimum, since its master must go."""
    JOB = 5
    """All pods of a job that runs."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What goes together: `members` and `seats` are those on the node in question, `gpus` is what goes in all, and
    `lost` the part of it that exists already.
    """

    cost: Cost
    claim: Claim
    members: tuple[Member, ...]
    seats: tuple[Seat, ...]
    gpus: int
    lost: int

    @property
    def whole(self) -> bool:
        """Whether it is a whole job."""
        return self.cost in (Cost.STUCK_JOB, Cost.JOB)

    @property
    def loads(self) -> list[tuple[Resources, frozenset[HostPort]]]:
        """What would become free on the node."""
        asks = [self.claim.ask(seat.role) for seat in self.seats]
        return [(m.requests, m.host_ports) for m in self.members] + [(a.shape.requests, a.ports) for a in asks]

    @property
    def weakness(self) -> tuple[int, bool, int]:
        """Later in the order of jobs first (lower priority, younger); then workers, the highest index first."""
        index = _LAST if self.seats else self.members[-1].index
        is_master = bool(self.members) and self.members[-1].role == MASTER
        return -self.claim.rank, is_master, -index


def strength(unit: Unit, taking: Taking | None) -> tuple[float, ...]:
    """Cheap kinds first; then of the team furthest beyond its fair share; then the weakest."""
    excess = taking.excess(unit.claim.account) if taking and unit.claim.account else -1.0
    return unit.cost, -excess, *unit.weakness


class Victims:
    """What one taker, which lacks `need` GPUs, may displace."""

    def __init__(self, table: Table, taker: Claim, need: int, *, growing: bool = False, most: Cost = Cost.JOB) -> None:
        self._table, self._taker, self._growing, self._most = table, taker, growing, most
        taking = self.taking(need) if table.snapshot.reclaiming else None
        self._givers = taking.givers(table.by_account) if taking else frozenset[Account]()

    @property
    def kind(self) -> tuple[bool, Cost]:
        """Whether they are for growth, and the most that any of them costs."""
        return self._growing, self._most

    def taking(self, need: int) -> Taking | None:
        """A try to take so many GPUs from other teams; None for a taker that asks for none."""
        account = self._taker.account
        return Taking(account, need, growing=self._growing) if account else None

    def any(self) -> bool:
        """Whether there may be something; False is certain."""
        if self._givers:
            return True
        team = [] if self._growing else self._table.by_team[self._taker.team]
        return any(gives_within_team(self._table, claim, self._taker) for claim in team)

    def hosts(self) -> set[int]:
        """The nodes on which something may go."""
        table, accounts = self._table, self._givers
        claims = [claim for account in accounts for claim in table.by_account[account]]
        claims += [] if self._growing else table.by_team[self._taker.team]
        return {node for claim in claims if claim.size and self._may_give(claim) for node in claim.near}

    def weakest_first(self, taking: Taking, gpus: int) -> list[Claim]:
        """Other teams' jobs that can spare a worker with so many GPUs, in the order in which they give."""
        claims = [c for account in self._givers for c in self._table.by_account[account] if c.worker.gpus >= gpus]
        able = [c for c in claims if c.spare and c.complete and c.team != self._taker.team]
        able = [c for c in able if self._may_give(c)]
        return sorted(able, key=lambda c: (-taking.excess(c.account) if c.account else 0.0, -c.rank))

    def on_node(self, node: int) -> Iterator[Unit]:
        """The units on one node, each for itself; what may go together is for the caller to ask again."""
        here: dict[Claim, tuple[list[Member], list[Seat]]] = {}
        for claim, member in self._table.residents[node].values():
            here.setdefault(claim, ([], []))[0].append(member)
        for claim, seat in self._table.seated[node]:
            here.setdefault(claim, ([], []))[1].append(seat)
        for claim, (members, seats) in here.items():
            if self._may_give(claim):
                yield from (unit for unit in self._units(claim, members, seats) if unit.cost <= self._most)

    def under(self, account: Account) -> list[Claim]:
        """The jobs whose GPUs count for that account and that may give something."""
        charged = (c for c in self._table.claims if c.account and account in c.account.path)
        return [claim for claim in charged if claim.size and self._may_give(claim)]

    def singles(self, claim: Claim) -> list[Unit]:
        """The job's pods that go one by one, in the order they go in, wherever they are."""
        units = self._singles(claim, _in_order(claim.kept), claim.seats)
        return [unit for unit in units if unit.cost <= self._most]

    def whole(self, claim: Claim) -> Unit | None:
        """The job as a whole, if it may go."""
        members, seats = _in_order(claim.kept), claim.seats
        unit = self._whole(claim, members, seats, besides=len(self._singles(claim, members, seats)))
        return unit if unit and unit.cost <= self._most else None

    def may_go(self, unit: Unit, taking: Taking | None) -> bool:
        """Whether the taker may take the unit after what it has taken so far."""
        if self._in_team(unit.claim) or unit.claim.account is None or taking is None:
            return True
        held, ends_job = unit.cost is Cost.HELD, unit.cost is Cost.JOB
        return taking.may(unit.claim.account, unit.gpus, held=held, ends_job=ends_job)

    def _in_team(self, claim: Claim) -> bool:
        return claim.team == self._taker.team

    def _may_give(self, claim: Claim) -> bool:
        """Whether anything of that job may go at all."""
        taker = self._taker
        if claim is taker:
            return not self._growing
        if claim.request is not None:
            return bool(claim.seats) and not claim.request.promised and claim.account in self._givers
        if not claim.job.preemptible or (taker.request and not self._table.snapshot.reclaiming):
            return False
        if taker.request and taker.request.preempts and taker.request.priority > min(claim.job.pod_priorities):
            return False
        if self._in_team(claim):
            return not self._growing
        return claim.account in self._givers

    def _units(self, claim: Claim, members: Iterable[Member], seats: Sequence[Seat]) -> Iterator[Unit]:
        """A job's pods among these, in the order they go in."""
        members = _in_order(members)
        singles = self._singles(claim, members, seats)
        yield from singles
        if whole := self._whole(claim, members, seats, besides=len(singles)):
            yield whole

    def _singles(self, claim: Claim, members: Sequence[Member], seats: Sequence[Seat]) -> list[Unit]:
        """Those that go one by one; the same, without the first, once that has gone."""
        workers = [m for m in members if m.role != MASTER]
        singles = [_of_seat(claim, s) for s in seats if s.role == WORKER] + [self._of_member(claim, m) for m in workers]
        if claim is self._taker:
            own = singles[: claim.spare if not claim.has_master else 0]
            return [replace(unit, cost=Cost.OWN) for unit in own if unit.members]
        if claim.complete:
            return singles[: claim.spare]
        if claim.reserves:
            goes = not self._in_team(claim) or claim.job.priority < self._taker.job.priority
            return [replace(_of_seat(claim, seat), cost=Cost.HELD) for seat in seats] if goes else []
        return [] if claim.served else [replace(unit, cost=Cost.STUCK) for unit in singles]

    def _whole(self, claim: Claim, members: Sequence[Member], seats: Sequence[Seat], *, besides: int) -> Unit | None:
        """The job as a whole, if more of it is here than what goes one by one."""
        if claim is self._taker or besides >= len(members) + len(seats):
            return None
        if claim.complete:
            return self._of_all(Cost.JOB, claim, members, seats) if self._may_go_whole(claim) else None
        return None if claim.reserves or claim.served else self._of_all(Cost.STUCK_JOB, claim, members, seats)

    def _may_go_whole(self, claim: Claim) -> bool:
        if self._in_team(claim):
            return _yields_to(self._table, claim, self._taker)
        if self._table.spares_whole_jobs(self._taker):
            return False
        least = claim.account.team.min_runtime_seconds if claim.account and claim.kept else 0
        return not claim.job.running_since or self._table.now >= claim.job.running_since + least

    def _of_member(self, claim: Claim, member: Member) -> Unit:
        gpus = self._table.gpus_of(member.requests)
        return Unit(Cost.SURPLUS, claim, (member,), (), gpus, gpus)

    def _of_all(self, cost: Cost, claim: Claim, members: Sequence[Member], seats: Sequence[Seat]) -> Unit:
        held = sum(self._table.gpus_of(member.requests) for member in claim.kept)
        coming = sum(claim.ask(seat.role).gpus for seat in claim.seats)
        return Unit(cost, claim, tuple(members), tuple(seats), held + coming, held)


def gives_within_team(table: Table, claim: Claim, taker: Claim) -> int:
    """How many GPUs a job has to give for the minimum of a job of its team: another one, or its own."""
    if claim is taker:
        return 0 if claim.has_master else claim.spare * claim.worker.gpus
    if not claim.job.preemptible or not claim.size:
        return 0
    if claim.reserves and claim.job.priority >= taker.job.priority:
        return 0
    if not claim.complete:
        return 0 if claim.served else claim.gpus
    return claim.gpus if _yields_to(table, claim, taker) else claim.spare * claim.worker.gpus


def given_within_team(table: Table, taker: Claim) -> int:
    """How many GPUs all jobs of its team have to give for its minimum.

    For those who have nothing the answer is the same until something changes; thousands of them may wait.
    """
    account = taker.account
    assert account is not None, "asked for those who are charged for GPUs"
    key, now = (account, taker.job.priority, table.spares_whole_jobs(taker)), table.board.moves
    known = table.given.get(key)
    if taker.size or known is None or known[0] != now:
        given = sum(gives_within_team(table, claim, taker) for claim in table.by_account[account] if claim.size)
        if taker.size:
            return given
        known = table.given[key] = now, given
    return known[1]


def _yields_to(table: Table, claim: Claim, taker: Claim) -> bool:
    """Whether a job goes as a whole for another one of its team: of higher priority, or if its own turn is over."""
    if table.spares_whole_jobs(taker):
        return False
    if claim.job.priority != taker.job.priority:
        return claim.job.priority < taker.job.priority
    quantum = claim.account.team.quantum_seconds if claim.account else None
    if quantum is None or not claim.job.running_since or taker.kept:
        return False
    return table.now >= claim.job.running_since + quantum


def _in_order(members: Iterable[Member]) -> list[Member]:
    """Those that go first come first."""
    return sorted(members, key=lambda m: (m.role == MASTER, -m.index))


def _of_seat(claim: Claim, seat: Seat) -> Unit:
    return Unit(Cost.SURPLUS, claim, (), (seat,), claim.ask(seat.role).gpus, 0)


def clear(table: Table, taker: Claim, units: Iterable[Unit]) -> None:
    """Have the units go."""
    for unit in units:
        table.note_taken(unit.claim, unit.claim.kept if unit.whole else unit.members, taker)
        if unit.whole:
            table.displace(unit.claim)
            continue
        for seat in unit.seats:
            table.stand(unit.claim, seat)
        for member in unit.members:
            table.release(unit.claim, member)
