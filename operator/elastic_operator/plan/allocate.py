"""Decides for all jobs at once how many pods each gets, which go, and where the new ones are placed, and says why.

All jobs are one team. A job is ordered by (priority, has its minimum or holds its place, age, uid). Minima come first,
then growth. Pure, deterministic, in integers; the order of the input does not matter, and what was decided, once
carried out, is decided again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from elastic_operator.plan.claim import MASTER, WORKER, Claim, Seat, Table, keep_order
from elastic_operator.plan.decisions import Grant, Slot
from elastic_operator.plan.explain import Explainer
from elastic_operator.plan.grow import grow_all, settle_sizes, trim
from elastic_operator.plan.minimum import serve_minima
from elastic_operator.plan.model import Member, Snapshot


def allocate(snapshot: Snapshot) -> dict[str, Grant]:
    """What each job gets, by its uid.

    A job without sizes keeps its members and gets nothing new (it is ending).
    """
    table = Table(snapshot)
    trim(table)
    serve_minima(table)
    settle_sizes(table)
    grow_all(table)
    _settle_readiness(table)
    explainer = Explainer(table)
    return {claim.job.uid: _grant(table, claim, explainer) for claim in table.claims}


def _settle_readiness(table: Table) -> None:
    """What became free now while others were moved about goes to the jobs in order."""
    for claim in table.claims:
        claim.seats = tuple(Seat(s.role, table.board.make_ready(claim.ask(s.role), s.spot)) for s in claim.seats)


def _grant(table: Table, claim: Claim, explainer: Explainer) -> Grant:
    kept = {member.uid for member in claim.kept}
    why = explainer.why(claim)
    return Grant(
        replicas=claim.size,
        keep=tuple(member.uid for member in claim.kept),
        release=tuple(m.uid for m in _leaving_order(claim) if m.uid not in kept),
        create=tuple(_slots(table, claim)),
        limit=why.limit,
        message=why.message,
        wake_at=why.wake_at,
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
