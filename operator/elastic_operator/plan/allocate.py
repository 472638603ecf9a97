"""Decides for all jobs at once how many pods each gets, which go, and where the new ones are placed, and says why.

Teams are served by right and standing (`rounds`), the jobs of a team by (priority, has its minimum or holds its place,
age, uid). Pure, deterministic; the order of the input does not matter, and what was decided, once carried out, is
decided again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from itertools import chain, count
from math import inf

from elastic_operator.api.status import Limit
from elastic_operator.plan.accounts import Accounts
from elastic_operator.plan.braking import Braked
from elastic_operator.plan.claim import MASTER, WORKER, Claim, Seat, keep_order
from elastic_operator.plan.decisions import Eviction, Grant, Reclaim, Share, Slot
from elastic_operator.plan.explain import Explainer, Why
from elastic_operator.plan.gangs import split_gangs
from elastic_operator.plan.model import JobDemand, Member, Snapshot, Taker
from elastic_operator.plan.place import Spot
from elastic_operator.plan.provision import asks, go_on_waiting, new_roles, seats_without_pods, settle_asking
from elastic_operator.plan.rounds import serve
from elastic_operator.plan.staying import staying
from elastic_operator.plan.table import Table
from elastic_operator.plan.team import Team

_KEEPS = "So it keeps what it has, and is decided on again with the next change."
_MOST_TRIES = 4
"""So often a pass is served until no job is broken up in vain."""


class Allocation(Mapping[str, Grant]):
    """What each job gets, by its uid. Why it is not more is put into words when its grant is read, and only then."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._explainer = Explainer(table)
        self._claims = {job.uid: table.roster.of(job.uid) for job in table.snapshot.jobs}
        self._shares: dict[str, Share] = {}
        self._grants: dict[str, Grant] = {}
        self.left_out: Mapping[str, str] = {}
        """The jobs (uids) that get nothing because it would not last, each with why in words (`foresight.py`)."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims)

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, uid: object) -> bool:
        return uid in self._claims

    def __getitem__(self, uid: str) -> Grant:
        if uid not in self._grants:
            claim = self._claims[uid]
            share, why = self.share(uid), self._why(claim)
            takers = claim.takers if share.release else ()
            self._grants[uid] = Grant(
                *share,
                why.limit,
                why.message,
                why.wake_at,
                takers=_names(takers),
                reclaimed=any(_is_other_team(taker, claim) for taker in takers),
                givers=_names(o for o, member in claim.took if member not in o.kept and o.team != claim.team),
            )
        return self._grants[uid]

    def _why(self, claim: Claim) -> Why:
        told = self.left_out.get(claim.job.uid)
        return self._explainer.why(claim) if told is None else Why(Limit.WOULD_NOT_LAST, f"{told} {_KEEPS}")

    @property
    def takes_away(self) -> bool:
        """Whether anybody is to lose a pod."""
        return any(claim.gives for claim in self._table.touched)

    @property
    def accounts(self) -> Accounts:
        """What each team uses, and may use, when all this is carried out."""
        return self._table.accounts

    @cached_property
    def reclaims(self) -> tuple[Reclaim, ...]:
        """The places for foreign pods that wait, as far as they are entitled to one."""
        if not self._table.snapshot.requests:
            return ()
        waiting = [claim for claim in self._table.claims if claim.request and not claim.request.nominated]
        return tuple(_reclaim(self._table, claim) for claim in waiting if claim.seats)

    @cached_property
    def evictions(self) -> tuple[Eviction, ...]:
        """What jobs lose to other teams and to foreign pods."""
        losing = (claim for claim in self._table.touched if claim.gives and claim.takers)
        found = (_eviction(claim, self.share(claim.job.uid)) for claim in sorted(losing, key=lambda c: c.rank))
        return tuple(eviction for eviction in found if eviction.takers and eviction.pods)

    @cached_property
    def taken(self) -> Mapping[str, Taker]:
        """The pods (uids) that other teams lose, or anybody to foreign pods, and for whom they go."""
        return self._table.tally.going

    @cached_property
    def going(self) -> frozenset[str]:
        """All pods (uids) that go for somebody else."""
        return frozenset(uid for uid, _, _ in self._table.going())

    @cached_property
    def _takers(self) -> Mapping[Claim, Mapping[str, Claim]]:
        found: dict[Claim, dict[str, Claim]] = {}
        for uid, owner, taker in self._table.going():
            found.setdefault(owner, {})[uid] = taker
        return found

    @cached_property
    def braked(self) -> tuple[tuple[Claim, Braked], ...]:
        """Those for whom more pods of others would go than may, in the order in which jobs are served."""
        return tuple(sorted(self._table.braked.items(), key=lambda one: one[0].rank))

    @property
    def tried_gangs(self) -> frozenset[str]:
        """The gangs of foreign pods for all of which places were looked for."""
        return frozenset(self._table.tried_gangs)

    def takers(self, uid: str) -> tuple[str, ...]:
        """The jobs (uids) for which pods of that job go, in the order in which jobs are served."""
        found = {taker for taker in self._takers.get(self._claims[uid], {}).values() if taker.request is None}
        return tuple(taker.job.uid for taker in sorted(found, key=lambda taker: taker.rank))

    def staying(self, uid: str, waiting: Set[str]) -> frozenset[str]:
        """Those of the job's released pods (uids) that stay while the jobs `waiting` are to get nothing."""
        claim = self._claims[uid]
        takers = {pod: taker.job.uid for pod, taker in self._takers.get(claim, {}).items()}
        return staying(claim.job, self.share(uid), takers, waiting)

    def is_at_others_cost(self, uid: str) -> bool:
        """Whether pods of others go for the job."""
        return any(member not in owner.kept for owner, member in self._claims[uid].took)

    def rank(self, uid: str) -> int:
        """The job's place in the order in which jobs are served."""
        return self._claims[uid].rank

    def share(self, uid: str) -> Share:
        """The grant without its reasons. Raises KeyError for a job that was not asked about."""
        claim = self._claims[uid]
        if claim not in self._table.touched:
            if claim.at_rest is None:
                claim.at_rest = _share(self._table, claim)
            return claim.at_rest
        if uid not in self._shares:
            self._shares[uid] = _share(self._table, claim)
        return self._shares[uid]


class Allocator:
    """Allocates again and again; what did not change since the last time is not worked through again.

    `unsettled` are the uids of those for whom a whole job still goes in vain by the last allocation.
    """

    def __init__(self) -> None:
        self._table: Table | None = None
        self.unsettled = frozenset[str]()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """What each job gets. The allocation before this one is not to be read any more."""
        table = self._table = self._serve(snapshot)
        _settle_readiness(table)
        settle_asking(table)
        return Allocation(table)

    def _serve(self, snapshot: Snapshot) -> Table:
        """The table after a pass in which no whole job goes in vain (112).

        A job goes in vain if its taker has no pod at the end of the pass. Then the pass is served again, and that taker
        has no whole job go. So it is if others took the places of a part of a gang: it gets none then, and before the
        last try no gang gets any (144).
        """
        table, in_vain, split = self._table, frozenset[str](), frozenset[str]()
        for tries in range(_MOST_TRIES):
            table = table.renewed(snapshot) if table else Table(snapshot)
            table.in_vain, table.split_gangs = in_vain, split
            serve(table)
            broken = [claim for claim in table.displaced if claim.displaced and claim.gives]
            more = {taker.job.uid for claim in broken for taker in claim.takers if not taker.size}
            self.unsettled = frozenset(more - in_vain)
            newly_split = split_gangs(table)
            if not self.unsettled and not newly_split:
                break
            in_vain |= self.unsettled
            split |= newly_split if tries < _MOST_TRIES - 2 else table.roster.gangs.keys()
        assert table is not None, "served once at least"
        return table


def allocate(snapshot: Snapshot) -> Allocation:
    """What each job gets.

    A job without sizes is ending: it gets nothing new, and its pods can be reclaimed one by one.
    """
    return Allocator().allocate(snapshot)


def next_change(snapshot: Snapshot) -> float:
    """When, with nothing else changed, the same snapshot at a later time may be allocated otherwise; else infinity."""
    teams = {team.name: team for team in snapshot.teams}

    def team_of(job: JobDemand) -> Team | None:
        return teams.get(snapshot.team_of.get(job.namespace, ""))

    times = (time for job in snapshot.jobs for time in _times(job, team_of(job), snapshot.now))
    waiting = (job for job in snapshot.jobs if job.waiting_since and len(job.members) < min(job.sizes, default=0))
    waits = (job.waiting_since + snapshot.starvation_seconds for job in waiting)
    return min((time for time in chain(times, waits) if time > snapshot.now), default=inf)


def _times(job: JobDemand, team: Team | None, now: float) -> Iterator[float]:
    yield job.failed_until
    yield job.next_growth(now)
    yield job.takes_from
    if job.nodes_from is not None:
        yield job.nodes_from
    if team and job.running_since:
        yield job.running_since + team.min_runtime_seconds
        if team.quantum_seconds is not None:
            yield job.running_since + team.quantum_seconds


def _reclaim(table: Table, claim: Claim) -> Reclaim:
    assert claim.request is not None, "asked for foreign pods only"
    node = claim.seats[0].spot.node
    gone = [(owner, member) for owner, member in claim.took if member not in owner.kept]
    request = claim.request
    return Reclaim(
        uid=request.uid,
        namespace=request.namespace,
        name=request.name,
        node=table.board.nodes[node].name,
        victims=tuple(member.uid for _, member in gone),
        losers={owner.job.uid: _name(owner) for owner, _ in gone},
        reserved=request.reserved,
    )


def _eviction(claim: Claim, share: Share) -> Eviction:
    takers = [taker for taker in claim.takers if _is_other_team(taker, claim)]
    return Eviction(claim.job.uid, share.release, _names(takers))


def _is_other_team(taker: Claim, claim: Claim) -> bool:
    """Whether it is of another team, or no elastic job at all."""
    return taker.team != claim.team or taker.request is not None


def _names(claims: Iterable[Claim]) -> tuple[str, ...]:
    return tuple(sorted({_name(claim) for claim in claims}))


def _name(claim: Claim) -> str:
    return f"{claim.job.namespace}/{claim.job.name}"


def _settle_readiness(table: Table) -> None:
    """Decide which planned pods can be made now. Pods that leave use their room until they are gone.

    Foreign pods that a node was promised to come first, then jobs in their order.
    """
    for claim in sorted(table.touched, key=lambda c: (not (c.request and c.request.promised), c.rank)):
        if claim.seats:
            seats = [Seat(s.role, table.board.make_ready(claim.ask(s.role), s.spot)) for s in claim.seats]
            claim.seats = tuple(seat if _may_use_now(claim, seat) else _unready(seat) for seat in seats)


def _may_use_now(claim: Claim, seat: Seat) -> bool:
    """Whether the pod would pass no limit even though what leaves has not left."""
    if claim.account is None or not seat.spot.ready:
        return True
    gpus = claim.ask(seat.role).gpus
    if any(account.used_now + gpus > account.limit for account in claim.account.path):
        return False
    for account in claim.account.path:
        account.used_now += gpus
    return True


def _unready(seat: Seat) -> Seat:
    return Seat(seat.role, Spot(seat.spot.node, ready=False))


def _share(table: Table, claim: Claim) -> Share:
    keep = tuple([member.uid for member in (*claim.kept, *go_on_waiting(claim))])
    create = tuple(_slots(table, claim)) if claim.seats or asks(claim) else ()
    return Share(
        replicas=len(keep) + len(create),
        keep=keep,
        release=tuple(m.uid for m in _leaving_order(claim) if m.uid not in keep) if _lets_go(claim) else (),
        create=create,
    )


def _lets_go(claim: Claim) -> bool:
    return claim.gives or bool(claim.job.waiting)


def _leaving_order(claim: Claim) -> list[Member]:
    return sorted((*claim.job.members, *claim.job.waiting), key=keep_order, reverse=True)


def _slots(table: Table, claim: Claim) -> Iterator[Slot]:
    """The pods to create, the master first; workers take the lowest indices that no pod has."""
    indices = _free_indices(claim)
    for role in new_roles(claim):
        yield Slot(role, 0 if role == MASTER else next(indices), None, ready=True)
    for seat in sorted(seats_without_pods(claim), key=lambda s: s.role != MASTER):
        node = table.board.nodes[seat.spot.node].name if claim.ask(seat.role).shape.pinnable else None
        yield Slot(seat.role, 0 if seat.role == MASTER else next(indices), node, seat.spot.ready)


def _free_indices(claim: Claim) -> Iterator[int]:
    pods = (*claim.job.members, *claim.job.waiting)
    taken = claim.job.taken_indices | {pod.index for pod in pods if pod.role == WORKER}
    return (i for i in count() if i not in taken)
