"""What each job holds on the board while a pass is decided: members kept, members given up, seats for pods to come.

Every change goes through `Table`, which keeps the board and the jobs in step and can undo both. Who gets and who gives
is decided in `minimum` and `grow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from elastic_operator.plan.model import JobDemand, Member, Snapshot
from elastic_operator.plan.place import Ask, Board, Mark, Spot

MASTER = "master"
WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Seat:
    """A place for a pod to come."""

    role: str
    spot: Spot


@dataclass(slots=True, eq=False)
class Claim:
    """One job in this pass. `rank` is its place in the order of jobs, 0 first.

    `sizes` are the sizes it may reach; `staying` the members it may keep as far as its own limits go, in the order they
    are kept in; `kept` those of them that it keeps. `at` says which node (by number) each member counts on. `served`:
    it has its minimum, or keeps what it has whatever that is. `displaced`: it lost all its pods to a job before it.
    """

    job: JobDemand
    rank: int
    sizes: tuple[int, ...]
    master: Ask
    worker: Ask
    at: dict[str, int] = field(default_factory=dict)
    staying: tuple[Member, ...] = ()
    kept: tuple[Member, ...] = ()
    seats: tuple[Seat, ...] = ()
    served: bool = False
    displaced: bool = False

    @property
    def size(self) -> int:
        """Pods it has and gets."""
        return len(self.kept) + len(self.seats)

    @property
    def gives(self) -> bool:
        """Whether any of its members goes."""
        return len(self.kept) < len(self.job.members)

    @property
    def minimum(self) -> int:
        """The smallest size it may run with; 0 where it has no say (see `JobDemand.sizes`)."""
        return self.job.sizes[0] if self.job.sizes else 0

    @property
    def has_master(self) -> bool:
        """Whether a master is kept or comes."""
        return bool(self.kept and self.kept[0].role == MASTER) or any(s.role == MASTER for s in self.seats)

    @property
    def complete(self) -> bool:
        """Whether it has, or gets, its minimum."""
        return self.size >= self.minimum and self.has_master

    @property
    def spare(self) -> int:
        """Workers that it can lose and still be complete, or still need no other worker (when it has no master)."""
        return max(0, self.size + (not self.has_master) - self.minimum)

    def missing(self, size: int) -> tuple[bool, int]:
        """What `size` still takes: whether the master, and how many workers."""
        no_master = not self.has_master
        return no_master, max(0, size - self.size - no_master)

    @property
    def next_size(self) -> int | None:
        """The next larger size it may reach."""
        return next((n for n in self.sizes if n > self.size), None)

    def failed_at(self, size: int, now: float) -> bool:
        """Whether that size failed and must still wait."""
        failed = self.job.failed_size
        return failed is not None and size >= failed and now < self.job.failed_until

    def delayed_at(self, size: int, now: float) -> bool:
        """Whether that size is growth, and growth must still wait."""
        return size > self.job.free_up_to and now < self.job.grow_after

    def fits_more(self, count: int) -> bool:
        """Whether its largest size leaves room for so many pods, and for its master."""
        return self.size + count + (not self.has_master) <= self.job.sizes[-1]

    def ask(self, role: str) -> Ask:
        """What a pod of that role asks of its node."""
        return self.master if role == MASTER else self.worker

    @property
    def near(self) -> frozenset[int]:
        """The nodes it has pods on, by number."""
        return frozenset(self.at[m.uid] for m in self.kept if m.uid in self.at) | {s.spot.node for s in self.seats}


def keep_order(member: Member) -> tuple[bool, int, str]:
    """Master first, then workers by index: who is kept longest comes first."""
    return member.role != MASTER, member.index, member.uid


class Table:
    """The board, and the claims in the order in which jobs are served."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot.now
        self.board = Board(snapshot.nodes, snapshot.gpu_resources)
        self.claims = tuple(self._claim(job, rank) for rank, job in enumerate(sorted(snapshot.jobs, key=_order)))
        self.residents: list[dict[str, tuple[Claim, Member]]] = [{} for _ in self.board.nodes]
        for claim in self.claims:
            self._note_placed(claim)
        for node, residents in enumerate(self.residents):
            self.board.settle([(member.requests, member.host_ports) for _, member in residents.values()], node)
        for claim in self.claims:
            self._count_unplaced(claim)

    def _claim(self, job: JobDemand, rank: int) -> Claim:
        sizes = job.sizes
        if job.max_new_size is not None:
            ceiling = max(job.max_new_size, len(job.members))
            sizes = tuple(n for n in sizes if n <= ceiling)
        claim = Claim(job, rank, sizes, self.board.ask(job.master), self.board.ask(job.worker))
        claim.staying = claim.kept = tuple(sorted(job.members, key=keep_order))
        return claim

    def _note_placed(self, claim: Claim) -> None:
        for member in claim.kept:
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

    # -- members -----------------------------------------------------------------------------------------------------

    def release(self, claim: Claim, member: Member) -> None:
        """Let a kept member go."""
        before = claim.kept
        claim.kept = tuple(m for m in before if m.uid != member.uid)
        self.board.on_undo(partial(setattr, claim, "kept", before))
        node = claim.at.get(member.uid)
        if node is not None:
            del self.residents[node][member.uid]
            self.board.on_undo(partial(self.residents[node].__setitem__, member.uid, (claim, member)))
            self.board.release(member.requests, member.host_ports, node, now=False)

    def release_all(self, claim: Claim) -> None:
        """Let all its members go."""
        for member in reversed(claim.kept):
            self.release(claim, member)

    def displace(self, claim: Claim) -> None:
        """Let all its members go for another job; it may come back with what room is left."""
        self.board.on_undo(partial(setattr, claim, "displaced", claim.displaced))
        claim.displaced = True
        self.release_all(claim)

    def fits_back(self, claim: Claim, member: Member) -> bool:
        """Whether a released member still has its room."""
        node = claim.at.get(member.uid)
        return node is None or self.board.fits_load(member.requests, member.host_ports, node)

    def restore(self, claim: Claim, member: Member) -> None:
        """Keep a released member after all."""
        before = claim.kept
        claim.kept = tuple(sorted((*before, member), key=keep_order))
        self.board.on_undo(partial(setattr, claim, "kept", before))
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
        claim.seats = (*before, seat)
        self.board.on_undo(partial(setattr, claim, "seats", before))

    def stand(self, claim: Claim, seat: Seat) -> None:
        """Take a seat away again."""
        before = list(claim.seats)
        before.remove(seat)
        self.board.on_undo(partial(setattr, claim, "seats", claim.seats))
        claim.seats = tuple(before)
        self.board.leave(claim.ask(seat.role), seat.spot)

    def find(self, claim: Claim, role: str) -> Seat | None:
        """The best free place for one more pod of the job."""
        spot = self.board.find(claim.ask(role), claim.near)
        return Seat(role, spot) if spot is not None else None

    def mark(self) -> Mark:
        """A point to roll back to."""
        return self.board.mark()

    def roll_back(self, mark: Mark) -> None:
        """Undo every change since `mark`, to jobs and board alike."""
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


def _order(job: JobDemand) -> tuple[int, bool, float, str]:
    at_minimum = bool(job.sizes) and len(job.members) >= job.sizes[0]
    return -job.priority, not (job.holds_place or at_minimum), job.created, job.uid
