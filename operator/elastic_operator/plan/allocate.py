"""Decides for all jobs at once how many pods each gets, which go, and where the new ones are placed, and says why.

All jobs are one team. A job is ordered by (priority, has its minimum or holds its place, age, uid). Minima come first,
then growth. Pure, deterministic, in integers; the order of the input does not matter, and what was decided, once
carried out, is decided again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from math import inf

from elastic_operator.plan.claim import MASTER, WORKER, Claim, Seat, Table, keep_order
from elastic_operator.plan.decisions import Grant, Share, Slot
from elastic_operator.plan.explain import Explainer
from elastic_operator.plan.grow import grow_all, settle_sizes, trim
from elastic_operator.plan.minimum import serve_minima
from elastic_operator.plan.model import Member, Snapshot


class Allocation(Mapping[str, Grant]):
    """What each job gets, by its uid. Why it is not more is put into words when its grant is read, and only then."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._explainer = Explainer(table)
        self._claims = {claim.job.uid: claim for claim in table.claims}
        self._shares: dict[str, Share] = {}
        self._grants: dict[str, Grant] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims)

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, uid: object) -> bool:
        return uid in self._claims

    def __getitem__(self, uid: str) -> Grant:
        if uid not in self._grants:
            share, why = self.share(uid), self._explainer.why(self._claims[uid])
            self._grants[uid] = Grant(*share, limit=why.limit, message=why.message, wake_at=why.wake_at)
        return self._grants[uid]

    def share(self, uid: str) -> Share:
        """The grant without its reasons. Raises KeyError for a job that was not asked about."""
        if uid not in self._shares:
            self._shares[uid] = _share(self._table, self._claims[uid])
        return self._shares[uid]


def allocate(snapshot: Snapshot) -> Allocation:
    """What each job gets.

    A job without sizes keeps its members and gets nothing new (it is ending).
    """
    table = Table(snapshot)
    trim(table)
    serve_minima(table)
    settle_sizes(table)
    grow_all(table)
    _settle_readiness(table)
    table.board.keep()
    return Allocation(table)


def next_change(snapshot: Snapshot) -> float:
    """When, with nothing else changed, the same snapshot at a later time may be allocated otherwise; else infinity."""
    times = (time for job in snapshot.jobs for time in (job.failed_until, job.grow_after) if time > snapshot.now)
    return min(times, default=inf)


def _settle_readiness(table: Table) -> None:
    """What became free now while others were moved about goes to the jobs in order."""
    for claim in table.claims:
        if claim.seats:
            claim.seats = tuple(Seat(s.role, table.board.make_ready(claim.ask(s.role), s.spot)) for s in claim.seats)


def _share(table: Table, claim: Claim) -> Share:
    keep = tuple([member.uid for member in claim.kept])
    return Share(
        replicas=claim.size,
        keep=keep,
        release=tuple(m.uid for m in _leaving_order(claim) if m.uid not in keep) if claim.gives else (),
        create=tuple(_slots(table, claim)) if claim.seats else (),
    )


def _leaving_order(claim: Claim) -> list[Member]:
    return sorted(claim.job.members, key=keep_order, reverse=True)


def _slots(table: Table, claim: Claim) -> Iterator[Slot]:
    """The pods to create, the master first; workers take the lowest indices that no pod has."""
    indices = _free_indices(claim)
    for seat in sorted(claim.seats, key=lambda s: s.role != MASTER):
        node = table.board.nodes[seat.spot.node].name if claim.ask(seat.role).shape.pinnable else None
        yield Slot(seat.role, 0 if seat.role == MASTER else next(indices), node, seat.spot.ready)


def _free_indices(claim: Claim) -> Iterator[int]:
    taken = claim.job.taken_indices | {m.index for m in claim.job.members if m.role == WORKER}
    return (i for i in count() if i not in taken)
