"""The order in which everybody is served: by right, then by standing, then by the order inside each team.

What teams are guaranteed goes first, then what is within their fair shares, then what nobody else uses. In each of
these rounds minima come before growth, and the team that stands lowest relative to its fair share is served next, one
job or one step at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from elastic_operator.plan.allocation.accounts import Account, Tier
from elastic_operator.plan.allocation.entry import Claim
from elastic_operator.plan.allocation.gangs import serve_gang
from elastic_operator.plan.allocation.grow import Growth, TooMany, grow, may_borrow_again, settle_sizes
from elastic_operator.plan.allocation.growers import Queue
from elastic_operator.plan.allocation.minimum import Hopeless, reserve, serve_minimum, starves
from elastic_operator.plan.allocation.preemption.preempt import give_back
from elastic_operator.plan.allocation.preemption.victims import given_within_team, gives_within_team
from elastic_operator.plan.allocation.state import Table
from elastic_operator.plan.allocation.turn_order import lowest_first

_MOST_REPETITIONS = 8


def serve(table: Table) -> None:
    """Give everybody what is theirs.

    Rounds are repeated while they change anything: what one team borrowed in the last of them may be what makes it
    stand so high that another is entitled to it.
    """
    for _ in range(_MOST_REPETITIONS):
        before = table.board.changes
        minima = Minima(table)
        for tier in Tier:
            minima.serve(tier)
            give_back(table)
            _grow_all(table, tier)
            give_back(table)
        settle_sizes(table)
        if table.board.changes == before:
            break
        table.divide()
    for claim in table.touched:
        if claim.reserves:
            claim.seats = ()  # the room stays held until the end of the pass


class Minima:
    """Minima that are not served yet, each tried once per round."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._tried: set[Claim] = set()
        self._hopeless: Hopeless = {}
        self._reserved: set[tuple[str, str]] = set()
        self._in_vain: dict[Hashable, int] = {}
        """Of those that are alike: after how many moves on the board one of them got nothing."""

    def serve(self, tier: Tier) -> None:
        """One round: first who runs or was told to start, and who goes before them in their teams, then the others.

        Who is displaced meanwhile tries again.
        """
        table, self._tried = self._table, set()
        table.ways.clear()
        self._in_vain.clear()
        while waiting := [c for c in (table.roster.unserved | table.touched) - self._tried if _waits(c)]:
            last: dict[str, int] = {}
            for claim in waiting:
                if claim.job.holds_place:
                    last[claim.team] = max(claim.rank, last.get(claim.team, -1))
            for first in (True, False):
                some = [claim for claim in waiting if (claim.rank <= last.get(claim.team, -1)) is first]
                _take_turns(table, some, lambda claim: self._serve(claim, tier))

    def _serve(self, claim: Claim, tier: Tier) -> None:
        """Once in this round, whatever comes of it; who was displaced and goes before it in its team is next."""
        if claim in self._tried:
            return
        self._tried.add(claim)
        for other in sorted(self._table.displaced, key=lambda other: other.rank):
            if other.team == claim.team and other.rank < claim.rank and _waits(other):
                self._serve(other, tier)
        if claim.gang:
            self._serve_gang(claim.gang, tier)
        else:
            self._serve_alone(claim, tier)

    def _serve_alone(self, claim: Claim, tier: Tier) -> None:
        alike = _alike(self._table, claim)
        if alike is not None and self._in_vain.get(alike) == self._table.board.moves:
            return
        right = _right(self._table, claim, claim.gpus_missing(claim.minimum))
        if right <= tier and (may_borrow_again(claim, right) or self._makes_do(claim)):
            serve_minimum(self._table, claim, self._hopeless)
            if not claim.served and right == tier:
                self._reserve(claim)
        if alike is not None and not claim.served:
            self._in_vain[alike] = self._table.board.moves

    def _serve_gang(self, name: str, tier: Tier) -> None:
        """All pods of the gang that wait, by the right that their team has to all of them together.

        One that may be split is served pod by pod where that is no guarantee, or there is no room for all of it.
        """
        table = self._table
        gang = sorted((claim for claim in table.roster.gangs[name] if _waits(claim)), key=lambda claim: claim.rank)
        self._tried.update(gang)
        if name in table.split_gangs:
            return
        kinds = Counter(_alike(table, claim) for claim in gang)
        alike = None if None in kinds else frozenset(kinds.items())
        if alike is not None and self._in_vain.get(alike) == table.board.moves:
            return
        need = Counter[Account | None]()
        for claim in gang:
            need[claim.account] += claim.gpus_missing(claim.minimum)
        right = max(_right(table, claim, need[claim.account]) for claim in gang)
        may_be_split = all(claim.request and claim.request.may_be_split for claim in gang)
        if right is Tier.GUARANTEED or not may_be_split:
            if right <= tier and may_borrow_again(gang[0], right):
                serve_gang(table, gang, self._hopeless)
            may_be_split &= name in table.tried_gangs
        if may_be_split and not gang[0].served:
            for claim in gang:
                self._serve_alone(claim, tier)
        elif alike is not None and not gang[0].served:
            self._in_vain[alike] = table.board.moves

    def _makes_do(self, claim: Claim) -> bool:
        """Whether its minimum takes no more than it has."""
        return gives_within_team(self._table, claim, claim) >= claim.gpus_missing(claim.minimum)

    def _reserve(self, claim: Claim) -> None:
        """The first of its team that waits holds what becomes free, once it has waited too long."""
        key = (claim.team, claim.job.flavor)
        if key not in self._reserved:
            self._reserved.add(key)
            if starves(self._table, claim):
                reserve(self._table, claim)


def _right(table: Table, claim: Claim, need: int) -> Tier:
    """By what right the team could use so many more GPUs, if its other jobs gave what they must for the claim."""
    if claim.account is None:
        return Tier.GUARANTEED
    right = claim.account.tier(need)
    if right is Tier.GUARANTEED:
        return right
    if starves(table, claim):  # what its team's jobs hold becomes free one day, and is held for it then
        return claim.account.tier(need - (claim.account.used - claim.account.foreign))
    given = given_within_team(table, claim)
    return claim.account.tier(need - given) if given else right


def _alike(table: Table, claim: Claim) -> Hashable | None:
    """Equal for those that are tried in the same way while nothing moves; None for who has anything of its own."""
    job, request = claim.job, claim.request
    if claim.size or claim.displaced or (request and request.reserved) or claim.taker in table.going_on:
        return None
    waits_for_nodes = job.waiting or job.nodes_from is not None or claim.asked is not None
    if waits_for_nodes or not job.preemptible or job.failed_size is not None or starves(table, claim):
        return None
    asks = claim.master, claim.worker, claim.minimum
    takes = claim.takes(table.now), request and request.preempts, table.spares_whole_jobs(claim)
    return claim.account, claim.team, job.flavor, *asks, job.priority, *takes, claim.losses


def _waits(claim: Claim) -> bool:
    return bool(claim.sizes) and claim.job.wants and not claim.served


def _grow_all(table: Table, tier: Tier) -> None:
    """One round of growth; each job goes on for as long as it grows."""
    too_many: TooMany = {}
    queues = {
        account: table.roster.growers.queue(account, table.touched) for account in table.roster.growers.accounts()
    }
    for claim in table.touched:
        queues.setdefault(claim.account, Queue({}, table.touched)).add(claim)
    lowest_first(queues, lambda account: _grow_one(table, tier, queues[account], too_many))


def _grow_one(table: Table, tier: Tier, queue: Queue, too_many: TooMany) -> bool:
    """One step of the first job that can take one; tells whether there was any."""
    while head := queue.first():
        group, claim = head
        if grow(table, claim, tier, too_many) is Growth.DONE:
            table.braked.pop(claim, None)
            queue.grew(group, claim)
            return True
        queue.give_up(group)
    return False


def _take_turns(table: Table, claims: Iterable[Claim], serve_one: Callable[[Claim], None]) -> None:
    """The team that stands lowest is served next, with its first job; while nothing moves, it stands lowest still."""
    queues: dict[Account | None, list[Claim]] = {}
    for claim in sorted(claims, key=lambda claim: -claim.rank):
        queues.setdefault(claim.account, []).append(claim)

    def serve_some(account: Account | None) -> bool:
        moves = table.board.moves
        while queues[account] and table.board.moves == moves:
            serve_one(queues[account].pop())
        return bool(queues[account])

    lowest_first(queues, serve_some)
