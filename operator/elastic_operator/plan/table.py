"""The table at which a pass is decided: the board, the accounts, and the claims in the order in which jobs are served.

Every change goes through `Table`, which keeps the three in step and can undo all of it. Who gets and who gives is
decided in `minimum` and `grow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from elastic_operator.plan.accounts import Account, Accounts
from elastic_operator.plan.claim import MASTER, WORKER, Claim, Seat, keep_order
from elastic_operator.plan.model import JobDemand, Member, Request, Resources, Snapshot
from elastic_operator.plan.place import Board, Mark, Spot


class Table:
    """Board, accounts and claims."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.now
        self.snapshot = snapshot
        self.board = Board(snapshot.nodes, snapshot.gpu_resources)
        self.accounts = Accounts(snapshot, self.board)
        self._gpus_of: dict[int, int] = {}
        requests = {r.uid: r for r in snapshot.requests if not r.unplannable}
        demands = [*snapshot.jobs, *map(_as_job, requests.values())]
        turns = {team.name for team in snapshot.teams if team.quantum_seconds is not None}
        ordered = sorted(demands, key=lambda job: _order(job, in_turns=snapshot.team_of.get(job.namespace) in turns))
        self.claims = tuple(self._claim(job, rank, requests.get(job.uid)) for rank, job in enumerate(ordered))
        self.by_account: dict[Account, list[Claim]] = {}
        for claim in self.claims:
            if claim.account:
                self.by_account.setdefault(claim.account, []).append(claim)
        self.residents: list[dict[str, tuple[Claim, Member]]] = [{} for _ in self.board.nodes]
        self.seated: list[list[tuple[Claim, Seat]]] = [[] for _ in self.board.nodes]
        for claim in self.claims:
            self._note_placed(claim)
        for node, residents in enumerate(self.residents):
            self.board.settle([(member.requests, member.host_ports) for _, member in residents.values()], node)
        for claim in self.claims:
            self._count_unplaced(claim)
        self.accounts.note_use()
        for claim in self.claims:
            self._trim(claim)
        self.divide()
        for claim in self.claims:
            self._hold_nominated(claim)

    def _claim(self, job: JobDemand, rank: int, request: Request | None) -> Claim:
        master, worker = self.board.ask(job.master), self.board.ask(job.worker)
        team = self.accounts.team_of(job.namespace)
        claim = Claim(job, rank, team, job.sizes, master, worker, request=request)
        if job.flavor and job.flavor in self.accounts.capacity and (claim.master.gpus or claim.worker.gpus):
            claim.account = self.accounts.of(job.namespace, job.flavor)
        claim.sizes = tuple(n for n in job.sizes if self._allowed(claim, n))
        claim.staying = claim.kept = tuple(sorted(job.members, key=keep_order))
        return claim

    def _allowed(self, claim: Claim, size: int) -> bool:
        """Whether a job may have that size at all, or has it already."""
        job = claim.job
        if size <= len(job.members):
            return True
        if job.max_new_size is not None and size > job.max_new_size:
            return False
        return not (job.flavor_problem or over_per_job_limit(claim, size))

    def _note_placed(self, claim: Claim) -> None:
        for member in claim.kept:
            self.charge(claim, member.requests, +1)
            node = self.board.number.get(member.node) if member.node is not None else None
            if node is not None:
                claim.at[member.uid] = node
                self.residents[node][member.uid] = (claim, member)

    def _count_unplaced(self, claim: Claim) -> None:
        """Count unbound, unpinned members where they would fit best, so that their room is not given away."""
        for member in claim.kept:
            spot = self.board.find(claim.ask(member.role), claim.near) if member.node is None else None
            if spot is not None:
                claim.at[member.uid] = spot.node
                self.residents[spot.node][member.uid] = (claim, member)
                self.board.hold(member.requests, member.host_ports, spot.node, now=True)

    def _trim(self, claim: Claim) -> None:
        """Let go what a job must not have at all: everything, or what is beyond its largest size."""
        if not claim.job.wants:
            self.release_all(claim)
        elif claim.job.sizes:
            self.shrink(claim, claim.job.sizes[-1] - (not claim.has_master))
        else:
            claim.served = True
        claim.staying = claim.kept

    def divide(self) -> None:
        """Reckon the fair shares, from what there is and what everybody wants.

        A node that takes no new pods counts with what is used on it, so what jobs keep there is counted as it stands.
        """
        accounts, board = self.accounts, self.board
        accounts.begin_division()
        for claim in self.claims:
            if claim.account and claim.job.wants:
                held = sum([self.gpus_of(m.requests) for m in claim.kept])
                claim.account.requested += max(claim.largest_gpus, held)
        for node in board.closed:
            for claim, member in self.residents[node].values():
                if claim.account:
                    accounts.capacity[claim.job.flavor] += self.gpus_of(member.requests)
        accounts.divide()

    def _hold_nominated(self, claim: Claim) -> None:
        """A pod that was nominated for a node has its place there, whoever gave it."""
        node = self.board.number.get(claim.request.nominated) if claim.request else None
        if node is not None:
            self.sit(claim, Seat(MASTER, Spot(node, ready=False)))
            claim.served = True

    def gpus_of(self, requests: Resources) -> int:
        """GPUs among these requests."""
        known = self._gpus_of.get(id(requests))
        if known is None:
            known = self._gpus_of[id(requests)] = sum(requests.get(name, 0) for name in self.board.gpu_resources)
        return known

    def charge(self, claim: Claim, requests: Resources, sign: int) -> None:
        """Count the GPUs of one pod of the job as used by its team (+1), or as not (-1)."""
        if claim.account:
            claim.account.charge(sign * self.gpus_of(requests), fixed=not claim.job.preemptible)

    # -- members -----------------------------------------------------------------------------------------------------

    def release(self, claim: Claim, member: Member) -> None:
        """Let a kept member go."""
        before = claim.kept
        claim.kept = tuple(m for m in before if m.uid != member.uid)
        self.charge(claim, member.requests, -1)
        self.board.on_undo(partial(self._take_back, claim, member, before, -1))
        node = claim.at.get(member.uid)
        if node is not None:
            del self.residents[node][member.uid]
            self.board.on_undo(partial(self.residents[node].__setitem__, member.uid, (claim, member)))
            self.board.release(member.requests, member.host_ports, node, now=False)

    def _take_back(self, claim: Claim, member: Member, kept: tuple[Member, ...], sign: int) -> None:
        claim.kept = kept
        self.charge(claim, member.requests, -sign)

    def release_all(self, claim: Claim) -> None:
        """Let all its members go."""
        for member in reversed(claim.kept):
            self.release(claim, member)

    def displace(self, claim: Claim) -> None:
        """Take all its members and seats for another job; it may come back with what room is left."""
        self.board.on_undo(partial(setattr, claim, "displaced", claim.displaced))
        self.board.on_undo(partial(setattr, claim, "served", claim.served))
        claim.displaced, claim.served = True, False
        for seat in claim.seats[::-1]:
            self.stand(claim, seat)
        self.release_all(claim)

    def shrink(self, claim: Claim, size: int) -> None:
        """Let workers go until the job has that size, the highest indices first."""
        for seat in claim.seats[::-1]:
            if claim.size > size and seat.role != MASTER:
                self.stand(claim, seat)
        for member in claim.kept[::-1]:
            if claim.size <= size or member.role == MASTER:
                return
            self.release(claim, member)

    def note_taker(self, claim: Claim, taker: Claim) -> None:
        """Remember who took from whom."""
        if taker not in claim.takers and claim is not taker:
            self.board.on_undo(partial(setattr, claim, "takers", claim.takers))
            claim.takers = (*claim.takers, taker)

    def fits_back(self, claim: Claim, member: Member) -> bool:
        """Whether a released member still has its room, and its team may still use it."""
        node = claim.at.get(member.uid)
        if claim.account and claim.account.over(self.gpus_of(member.requests)):
            return False
        return node is None or self.board.fits_load(member.requests, member.host_ports, node)

    def restore(self, claim: Claim, member: Member) -> None:
        """Keep a released member after all."""
        before = claim.kept
        claim.kept = tuple(sorted((*before, member), key=keep_order))
        self.charge(claim, member.requests, +1)
        self.board.on_undo(partial(self._take_back, claim, member, before, +1))
        node = claim.at.get(member.uid)
        if node is not None:
            self.residents[node][member.uid] = (claim, member)
            self.board.on_undo(partial(self.residents[node].pop, member.uid))
            self.board.hold(member.requests, member.host_ports, node, now=False)

    def released(self, claim: Claim) -> Iterator[Member]:
        """Members that it could keep by its own limits but does not, those to be kept longest first."""
        kept = {m.uid for m in claim.kept}
        return (m for m in claim.staying if m.uid not in kept)

    # -- seats -------------------------------------------------------------------------------------------------------

    def sit(self, claim: Claim, seat: Seat) -> None:
        """Give the job a seat; its room is held from here on."""
        before = claim.seats
        self.board.take(claim.ask(seat.role), seat.spot)
        self._seat(claim, seat, (*before, seat), +1)
        self.board.on_undo(partial(self._seat, claim, seat, before, -1))

    def stand(self, claim: Claim, seat: Seat) -> None:
        """Take a seat away again."""
        before, after = claim.seats, list(claim.seats)
        after.remove(seat)
        self.board.leave(claim.ask(seat.role), seat.spot)
        self._seat(claim, seat, tuple(after), -1)
        self.board.on_undo(partial(self._seat, claim, seat, before, +1))

    def _seat(self, claim: Claim, seat: Seat, seats: tuple[Seat, ...], sign: int) -> None:
        claim.seats = seats
        if sign > 0:
            self.seated[seat.spot.node].append((claim, seat))
        else:
            self.seated[seat.spot.node].remove((claim, seat))
        self.charge(claim, claim.ask(seat.role).shape.requests, sign)

    def find(self, claim: Claim, role: str) -> Seat | None:
        """The best free place for one more pod of the job."""
        spot = self.board.find(claim.ask(role), claim.near)
        return Seat(role, spot) if spot is not None else None

    def mark(self) -> Mark:
        """A point to roll back to."""
        return self.board.mark()

    def roll_back(self, mark: Mark) -> None:
        """Undo every change since `mark`, to jobs, accounts and board alike."""
        self.board.roll_back(mark)

    def seat_all(self, claim: Claim, *, master: bool, workers: int) -> bool:
        """Seat a master (if asked for) and so many workers in free room: all of them, or none and False."""
        if not master:
            return self._seat_alike(claim, [WORKER] * workers)
        if self.board.known_short(claim.master, 1):
            return False
        if claim.master is claim.worker:
            return self._seat_alike(claim, [MASTER, *[WORKER] * workers])
        return any(self._seat_around(claim, spot, workers) for spot in self._master_spots(claim, workers))

    def _master_spots(self, claim: Claim, workers: int) -> Sequence[Spot]:
        """Where the master may go: anywhere if workers need room too, as its best place may be the one they need."""
        if workers and self.board.known_short(claim.worker, workers):
            return []
        if workers:
            return self.board.spots(claim.master, claim.near)
        spot = self.board.find(claim.master, claim.near)
        return [spot] if spot else []

    def _seat_around(self, claim: Claim, spot: Spot, workers: int) -> bool:
        mark = self.mark()
        self.sit(claim, Seat(MASTER, spot))
        if self._seat_roles(claim, [WORKER] * workers):
            return True
        self.roll_back(mark)
        return False

    def _seat_alike(self, claim: Claim, roles: Sequence[str]) -> bool:
        """As many pods of one shape, with a memory for what did not fit."""
        if not roles or self.board.known_short(claim.worker, len(roles)):
            return not roles
        mark = self.mark()
        if self._seat_roles(claim, roles):
            return True
        self.roll_back(mark)
        self.board.remember_short(claim.worker, len(roles))
        return False

    def _seat_roles(self, claim: Claim, roles: Iterable[str]) -> bool:
        for role in roles:
            seat = self.find(claim, role)
            if seat is None:
                return False
            self.sit(claim, seat)
        return True


def over_per_job_limit(claim: Claim, size: int) -> bool:
    """Whether that size has more GPUs than one job of the team may have."""
    most = claim.account.team.max_gpus_per_job if claim.account else None
    return most is not None and claim.master.gpus + claim.worker.gpus * (size - 1) > most


def _order(job: JobDemand, *, in_turns: bool) -> tuple[int, bool, float, str]:
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
    )
