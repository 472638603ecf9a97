"""Who sits at the table: the claims in the order in which jobs are served, by team and by account, and what is known of
each before anything is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from elastic_operator.plan.allocation.accounts import Account, Accounts
from elastic_operator.plan.allocation.board import Board
from elastic_operator.plan.allocation.entry import Claim, keep_order
from elastic_operator.plan.allocation.growers import Growers
from elastic_operator.plan.facts.snapshot import JobDemand, Request, Snapshot

Order = tuple[int, bool, float, str]


class Roster:
    """Claims, kept up with what the snapshot says of their jobs.

    `unserved` wait for their minimum, `growers` may get more, `odd` need a look before anything is decided (members
    to let go, or not bound yet), `partial` have a size that is not allowed. `gangs` are the foreign pods of each gang.
    """

    def __init__(self, snapshot: Snapshot, board: Board, accounts: Accounts) -> None:
        self._board, self._accounts = board, accounts
        self._in_turns = {team.name for team in snapshot.teams if team.quantum_seconds is not None}
        self._by_uid: dict[str, Claim] = {}
        self._order: dict[Claim, Order] = {}
        self.claims: tuple[Claim, ...] = ()
        self.by_account: dict[Account, list[Claim]] = {}
        self.by_team: dict[str, list[Claim]] = {}
        self.unserved: set[Claim] = set()
        self.growers = Growers()
        self.odd: set[Claim] = set()
        self.partial: set[Claim] = set()
        self.gangs: dict[str, set[Claim]] = {}

    def renew(
        self, snapshot: Snapshot, *, leave: Callable[[Claim], None], join: Callable[[Iterable[Claim]], None]
    ) -> None:
        """Drop the claims of jobs that changed (`leave` is told of each) and add those they have now (`join`)."""
        requests = {request.uid: request for request in snapshot.requests if not request.unplannable}
        jobs: dict[str, JobDemand | Request] = {job.uid: job for job in snapshot.jobs} | requests
        known = self._by_uid
        gone = [claim for uid, claim in known.items() if jobs.get(uid) is not (claim.request or claim.job)]
        for claim in gone:
            leave(claim)
            self._forget(claim)
        new = [self._claim(one) for uid, one in jobs.items() if uid not in known]
        if not gone and not new:
            return
        join(new)
        for claim in new:
            self._classify(claim, snapshot.now)
        self.claims = tuple(sorted(known.values(), key=self._order.__getitem__))
        for rank, claim in enumerate(self.claims):
            claim.rank = rank

    def of(self, uid: str) -> Claim:
        """The claim of a job."""
        return self._by_uid[uid]

    def _claim(self, one: JobDemand | Request) -> Claim:
        request = one if isinstance(one, Request) else None
        job = _as_job(one) if isinstance(one, Request) else one
        master, worker = self._board.ask(job.master), self._board.ask(job.worker)
        team = self._accounts.team_of(job.namespace)
        claim = Claim(job, 0, team, job.sizes, master, worker, request=request)
        if job.flavor and job.flavor in self._accounts.capacity and (master.gpus or worker.gpus):
            claim.account = self._accounts.of(job.namespace, job.flavor)
            self.by_account.setdefault(claim.account, []).append(claim)
        claim.sizes = _allowed_sizes(claim)
        claim.staying = claim.kept = tuple(sorted(job.members, key=keep_order))
        self.by_team.setdefault(team, []).append(claim)
        self._by_uid[job.uid] = claim
        if claim.gang:
            self.gangs.setdefault(claim.gang, set()).add(claim)
        self._order[claim] = _order(job, in_turns=team in self._in_turns)
        return claim

    def _forget(self, claim: Claim) -> None:
        del self._by_uid[claim.job.uid], self._order[claim]
        self.by_team[claim.team].remove(claim)
        if claim.account:
            self.by_account[claim.account].remove(claim)
        if claim.gang:
            self.gangs[claim.gang].discard(claim)
            if not self.gangs[claim.gang]:
                del self.gangs[claim.gang]
        self.growers.discard(claim)
        for group in (self.unserved, self.odd, self.partial):
            group.discard(claim)

    def _classify(self, claim: Claim, now: float) -> None:
        job = claim.job
        claim.served = not job.sizes or (bool(claim.sizes) and job.wants and claim.complete)
        if _is_odd(claim):
            self.odd.add(claim)
        if not (job.wants and claim.sizes):
            return
        if not claim.served:
            self.unserved.add(claim)
        elif claim.next_size is not None:
            self.growers.add(claim, now)
        if claim.served and claim.size not in job.sizes:
            self.partial.add(claim)


def over_per_job_limit(claim: Claim, size: int) -> bool:
    """Whether that size has more GPUs than one job of the team may have."""
    most = claim.account.team.max_gpus_per_job if claim.account else None
    return most is not None and claim.gpus_at(size) > most


def _allowed_sizes(claim: Claim) -> tuple[int, ...]:
    """The sizes that a job may have at all, or has already."""
    job, has = claim.job, len(claim.job.members)
    limit = claim.account.team.max_gpus_per_job if claim.account else None
    if job.max_new_size is None and limit is None and not job.flavor_problem:
        return job.sizes
    most = -inf if job.flavor_problem else inf if job.max_new_size is None else job.max_new_size
    return tuple(n for n in job.sizes if n <= has or (n <= most and not over_per_job_limit(claim, n)))


def _is_odd(claim: Claim) -> bool:
    """Whether members must go whatever the others do, or are not bound yet, or a place is promised to it."""
    job = claim.job
    if claim.request is not None:
        return claim.request.promised
    too_many = bool(job.sizes) and len(claim.kept) > job.sizes[-1] - (not claim.has_master)
    return bool(claim.kept) and (not job.wants or too_many or any(member.node is None for member in claim.kept))


def _order(job: JobDemand, *, in_turns: bool) -> Order:
    """Priority, whether it has its minimum, age, uid. Where jobs take turns, whoever waits longest counts as oldest."""
    at_minimum = bool(job.sizes) and len(job.members) >= job.sizes[0]
    holds = job.holds_place or at_minimum
    age = job.waiting_since if in_turns and not holds and job.waiting_since else job.created
    return -job.priority, not holds, age, job.uid


def _as_job(request: Request) -> JobDemand:
    """A foreign pod that waits, as a job of one pod."""
    return JobDemand(
        uid=request.uid,
        namespace=request.namespace,
        name=request.name,
        priority=request.priority,
        created=request.created,
        sizes=(1,),
        master=request.shape,
        worker=request.shape,
        free_up_to=1,
        flavor=request.flavor,
        takes=request.takes,
    )
