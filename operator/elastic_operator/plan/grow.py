"""Brings jobs to allowed sizes and grows them into the room that no minimum needs; growth never displaces anybody.

First jobs whose size lies between two allowed ones are completed to the upper one or shrunk to the lower one, in the
order of jobs. Then the job that has least beyond its minimum takes its next allowed size, again and again.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from elastic_operator.plan.claim import MASTER, Claim, Table


def trim(table: Table) -> None:
    """Let go what a job must not have at all: everything, or what is beyond its largest size; highest indices first."""
    for claim in table.claims:
        if not claim.job.wants:
            table.release_all(claim)
        elif claim.job.sizes:
            _shrink(table, claim, claim.job.sizes[-1] - (not claim.has_master))
        else:
            claim.served = True
        claim.staying = claim.kept


def settle_sizes(table: Table) -> None:
    """Complete each job that lies between two allowed sizes, or shrink it to the lower one."""
    for claim in table.claims:
        if claim.served and claim.sizes and claim.size not in claim.sizes and not _grow(table, claim):
            _shrink(table, claim, max(n for n in claim.sizes if n < claim.size))


def _shrink(table: Table, claim: Claim, size: int) -> None:
    for member in reversed(claim.kept):
        if claim.size <= size or member.role == MASTER:
            return
        table.release(claim, member)


def grow_all(table: Table) -> None:
    """Hand out what is left: one allowed size at a time to the job with least beyond its minimum."""
    waiting = [_turn(claim) for claim in table.claims if claim.served and claim.sizes]
    heapify(waiting)
    while waiting:
        claim = table.claims[heappop(waiting)[-1]]
        if _grow(table, claim):
            heappush(waiting, _turn(claim))


def _turn(claim: Claim) -> tuple[int, int, float, str, int]:
    """Least beyond its minimum first; ties do not depend on who runs already: a start in progress shifts none."""
    return claim.size - claim.minimum, -claim.job.priority, claim.job.created, claim.job.uid, claim.rank


def _grow(table: Table, claim: Claim) -> bool:
    """Take the next allowed size if the job may and all its pods fit; pods that were to go are kept first."""
    size = claim.next_size
    if size is None or claim.failed_at(size, table.now) or claim.delayed_at(size, table.now):
        return False
    if not claim.gives:
        master, workers = claim.missing(size)
        return table.seat_all(claim, master=master, workers=workers)
    mark = table.mark()
    for member in list(table.released(claim)):
        if claim.size < size and table.fits_back(claim, member):
            table.restore(claim, member)
    master, workers = claim.missing(size)
    if table.seat_all(claim, master=master, workers=workers):
        return True
    table.roll_back(mark)
    return False
