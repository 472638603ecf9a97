"""The table at which a pass is decided: the board, the accounts, and the claims.

Every change goes through `Table`, which keeps the three in step and can undo all of it; so one table serves pass after
pass, each of which only costs what changed since the last. Who gets and who gives is decided in `minimum` and `grow`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from functools import partial

from elastic_operator.plan.accounts import Account, Accounts
from elastic_operator.plan.braking import Braked, Tally, braked, taker_of
from elastic_operator.plan.claim import MASTER, Claim, Seat, keep_order
from elastic_operator.plan.model import Member, Resources, Snapshot
from elastic_operator.plan.place import Board, Mark, Spot
from elastic_operator.plan.roster import Roster


class Table:
    """Board, accounts and roster of a snapshot.

    `touched` are the claims that this pass changed, or tried to, `displaced` those that lost everything meanwhile, and
    `given` and `ways` what `victims` and `ways` remember. `in_vain` are the uids of those who had a whole job go when
    this pass was served before, and nothing in the end, and `split_gangs` the gangs that get nothing, as only a part of
    each had places then. `new_places` is how many foreign pods got a place by having others go that had none before.
    `serving` is the gang that is served now, and `tried_gangs` are those that were, with how many pods together in
    `tried_pods`. `taken` are the pods (uids) that were taken: from whom, and who was the last to.
    `braked` are those who get less than they would take, `going_on` the takers (uids) for whom pods were told to go in
    the last minute.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.board = Board(snapshot.nodes, snapshot.gpu_resources)
        self.accounts = Accounts(snapshot, self.board)
        self.roster = Roster(snapshot, self.board, self.accounts)
        self.residents: list[dict[str, tuple[Claim, Member]]] = [{} for _ in self.board.nodes]
        self.seated: list[list[tuple[Claim, Seat]]] = [[] for _ in self.board.nodes]
        self.touched: set[Claim] = set()
        self.displaced: set[Claim] = set()
        self.given: dict[Hashable, tuple[int, int]] = {}
        self.ways: dict[Hashable, list[tuple[tuple[float, ...], int]]] = {}
        self.in_vain = frozenset[str]()
        self.split_gangs = frozenset[str]()
        self.tried_gangs: set[str] = set()
        self.taken: dict[str, tuple[Claim, Member, Claim]] = {}
        self.tally = Tally({})
        self.braked: dict[Claim, Braked] = {}
        self.going_on = frozenset[str]()
        self._gpus_of: dict[int, tuple[Resources, int]] = {}
        self._start(snapshot)

    def renewed(self, snapshot: Snapshot) -> Table:
        """A table of another snapshot: this one, as far as the cluster is built the same; else a new one."""
        if not _same_frame(self.snapshot, snapshot) or not self.board.has_same_nodes(snapshot.nodes):
            return Table(snapshot)
        self.board.undo_all()
        self.snapshot = snapshot
        for number, before, after in self.board.renew(snapshot.nodes):
            self.accounts.renew_node(number, before, after, is_open=number in self.board.open_set)
        self._start(snapshot)
        return self

    def _start(self, snapshot: Snapshot) -> None:
        """From what the snapshot says, before anything is decided."""
        self.roster.renew(snapshot, leave=self._leave, join=self._join)
        self.touched, self.displaced, self.given, self.ways = set(), set(), {}, {}
        self.new_places, self.taken, self.braked = 0, {}, {}
        self.serving, self.tried_pods, self.tried_gangs = "", 0, set()
        self.tally = Tally(snapshot.brakes.gone)
        self.going_on = frozenset(taker.uid for taker in snapshot.brakes.gone.values())
        odd = sorted(self.roster.odd, key=lambda claim: claim.rank)
        for claim in odd:
            self._count_unplaced(claim)
        self.accounts.note_use()
        for claim in odd:
            self._trim(claim)
        self.divide()
        for claim in odd:
            self._hold_promised(claim)

    @property
    def now(self) -> float:
        """The snapshot's time."""
        return self.snapshot.now

    @property
    def claims(self) -> tuple[Claim, ...]:
        """All claims, in the order in which jobs are served."""
        return self.roster.claims

    @property
    def by_account(self) -> dict[Account, list[Claim]]:
        """The claims that are charged to each account."""
        return self.roster.by_account

    @property
    def by_team(self) -> dict[str, list[Claim]]:
        """The claims of each team."""
        return self.roster.by_team

    # -- what the snapshot says ----------------------------------------------------------------------------------------

    def _join(self, claims: Iterable[Claim]) -> None:
        """Put the members of new claims on the board."""
        loads: dict[int, list[Member]] = {}
        for claim in claims:
            for member in claim.kept:
                self._charge_member(claim, member, +1)
                node = self.board.number.get(member.node) if member.node is not None else None
                if node is not None:
                    claim.at[member.uid] = node
                    self.residents[node][member.uid] = (claim, member)
                    loads.setdefault(node, []).append(member)
            self._want(claim, +1)
        for node, members in loads.items():
            self.board.settle([(member.requests, member.host_ports) for member in members], node)

    def _leave(self, claim: Claim) -> None:
        for member in claim.kept:
            self._charge_member(claim, member, -1)
            node = claim.at.get(member.uid)
            if node is not None:
                del self.residents[node][member.uid]
                self.board.unsettle(member.requests, member.host_ports, node)
        self._want(claim, -1)

    def _want(self, claim: Claim, sign: int) -> None:
        if claim.account and claim.job.wants:
            most = claim.job.sizes[-1] if claim.job.sizes else len(claim.kept)
            held = sum([self.gpus_of(member.requests) for member in claim.kept[:most]])
            claim.account.wanted += sign * max(claim.largest_gpus, held)

    def _count_unplaced(self, claim: Claim) -> None:
        """Count unbound, unpinned members where they would fit best, so that their room is not given away."""
        for member in claim.kept:
            spot = self.board.find(claim.ask(member.role), claim.near) if member.node is None else None
            if spot is not None:
                claim.at[member.uid] = spot.node
                self.residents[spot.node][member.uid] = (claim, member)
                self.board.on_undo(partial(self._uncount, claim, member.uid, spot.node))
                self.board.hold(member.requests, member.host_ports, spot.node, now=True)

    def _uncount(self, claim: Claim, uid: str, node: int) -> None:
        del claim.at[uid], self.residents[node][uid]

    def _trim(self, claim: Claim) -> None:
        """Let go what a job must not have at all: everything, or what is beyond its largest size."""
        if not claim.job.wants:
            self.release_all(claim)
        elif claim.job.sizes:
            self.shrink(claim, claim.job.sizes[-1] - (not claim.has_master))
        self.board.on_undo(partial(setattr, claim, "staying", claim.staying))
        claim.staying = claim.kept

    def divide(self) -> None:
        """Reckon the fair shares, from what there is and what everybody wants.

        A node that takes no new pods counts with what is used on it, so what jobs keep there is counted as it stands.
        """
        self.accounts.begin_division()
        for node in self.board.closed:
            for claim, member in self.residents[node].values():
                if claim.account:
                    self.accounts.capacity[claim.job.flavor] += self.gpus_of(member.requests)
        self.accounts.divide()

    def _hold_promised(self, claim: Claim) -> None:
        """A pod that was nominated for a node has its place there: by somebody else, whatever room there is; by the
        operator, once there is room or will be. Until then those who must go for it go.
        """
        request = claim.request
        node = self.board.number.get(request.reserved or request.nominated) if request else None
        if request is None or node is None or (request.reserved and not self.board.fits(claim.master, node)):
            return
        self.sit(claim, Seat(MASTER, Spot(node, ready=self.board.is_free(claim.master, node))))
        self.set_served(claim, True)

    def gpus_of(self, requests: Resources) -> int:
        """GPUs among these requests."""
        known = self._gpus_of.get(id(requests))
        if known is None:
            known = requests, sum(requests.get(name, 0) for name in self.board.gpu_resources)
            self._gpus_of[id(requests)] = known
        return known[1]

    def charge(self, claim: Claim, requests: Resources, sign: int) -> None:
        """Count the GPUs of one pod of the job as used by its team (+1), or as not (-1)."""
        if claim.account:
            claim.account.charge(sign * self.gpus_of(requests), fixed=not claim.job.preemptible)

    def _charge_member(self, claim: Claim, member: Member, sign: int) -> None:
        """A pod on a node that is gone holds nothing, for as long as it still has an object."""
        if member.node is None or member.node in self.board.number:
            self.charge(claim, member.requests, sign)

    # -- members -----------------------------------------------------------------------------------------------------

    def set_served(self, claim: Claim, served: bool) -> None:
        """Note whether it has its minimum, or keeps what it has whatever that is."""
        if claim.served is not served:
            self.board.on_undo(partial(setattr, claim, "served", claim.served))
            claim.served = served

    def set_reserves(self, claim: Claim, reserves: bool) -> None:
        """Note whether its seats are only held for it."""
        if claim.reserves is not reserves:
            self._set_reserves(claim, reserves)
            self.board.on_undo(partial(self._set_reserves, claim, not reserves))

    def _set_reserves(self, claim: Claim, reserves: bool) -> None:
        claim.reserves = reserves
        seated = sum(claim.ask(seat.role).gpus for seat in claim.seats)
        self._count_held(claim, seated if reserves else -seated)

    def _count_held(self, claim: Claim, gpus: int) -> None:
        for account in claim.account.path if claim.account else ():
            account.held += gpus

    def release(self, claim: Claim, member: Member) -> None:
        """Let a kept member go."""
        before = claim.kept
        self._keep(claim, member, tuple([m for m in before if m.uid != member.uid]), -1)
        self.board.on_undo(partial(self._keep, claim, member, before, +1))
        node = claim.at.get(member.uid)
        if node is not None:
            del self.residents[node][member.uid]
            self.board.on_undo(partial(self.residents[node].__setitem__, member.uid, (claim, member)))
            self.board.release(member.requests, member.host_ports, node, now=False)

    def restore(self, claim: Claim, member: Member) -> None:
        """Keep a released member after all."""
        before = claim.kept
        at = bisect_right(before, keep_order(member), key=keep_order)
        self._keep(claim, member, (*before[:at], member, *before[at:]), +1)
        self.board.on_undo(partial(self._keep, claim, member, before, -1))
        node = claim.at.get(member.uid)
        if node is not None:
            self.residents[node][member.uid] = (claim, member)
            self.board.on_undo(partial(self.residents[node].pop, member.uid))
            self.board.hold(member.requests, member.host_ports, node, now=False)

    def _keep(self, claim: Claim, member: Member, kept: tuple[Member, ...], sign: int) -> None:
        claim.kept = kept
        if member.uid in self.taken:
            self._count_taken(member.uid, goes=sign < 0)
        self._charge_member(claim, member, sign)
        self.touched.add(claim)

    def release_all(self, claim: Claim) -> None:
        """Let all its members go."""
        for member in reversed(claim.kept):
            self.release(claim, member)

    def displace(self, claim: Claim) -> None:
        """Take all its members and seats for another job; it may come back with what room is left."""
        self.board.on_undo(partial(setattr, claim, "displaced", claim.displaced))
        claim.displaced = True
        self.displaced.add(claim)
        self.set_served(claim, False)
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

    def note_taken(self, claim: Claim, members: Iterable[Member], taker: Claim) -> None:
        """Remember who took what from whom."""
        if claim is taker:
            return
        self._note(claim, "losses", claim.losses + (claim.team != taker.team))
        self._note(claim, "takers", tuple(dict.fromkeys((*claim.takers, taker))))
        more = tuple((claim, member) for member in members)
        self._note(taker, "took", (*taker.took, *more))
        for _, member in more:
            self._attribute(claim, member, taker)

    def _attribute(self, owner: Claim, member: Member, taker: Claim) -> None:
        self.board.on_undo(partial(self._put_back, member.uid, self.taken.get(member.uid)))
        self.taken[member.uid] = owner, member, taker
        self._count_taken(member.uid, goes=not self._keeps(owner, member))

    def _put_back(self, uid: str, taken: tuple[Claim, Member, Claim] | None) -> None:
        if taken is None:
            del self.taken[uid]
            self.tally.put(uid, None)
            return
        self.taken[uid] = taken
        self._count_taken(uid, goes=not self._keeps(taken[0], taken[1]))

    def _count_taken(self, uid: str, *, goes: bool) -> None:
        """Count what is an eviction: jobs of a team make way for each other without."""
        owner, _, taker = self.taken[uid]
        is_eviction = owner.team != taker.team or taker.request is not None
        self.tally.put(uid, taker_of(taker) if goes and is_eviction else None)

    def going(self) -> Iterator[tuple[str, Claim, Claim]]:
        """The pods (uids) that go for somebody else, with whose they are and who gets the room."""
        for uid, (owner, member, taker) in self.taken.items():
            if not self._keeps(owner, member):
                yield uid, owner, taker

    def _keeps(self, owner: Claim, member: Member) -> bool:
        node = owner.at.get(member.uid)
        return member.uid in self.residents[node] if node is not None else member in owner.kept

    def brake(self, taker: Claim, *, since: int) -> bool:
        """Whether what it took after its first `since` pods is too much; remembered until it has all the same."""
        return self.brake_taken(taker, (member.uid for _, member in taker.took[since:]))

    def brake_taken(self, taker: Claim, pods: Iterable[str]) -> bool:
        """Whether it is too much that these pods (uids) go for it."""
        wanted = len(self.tally.going.keys() & set(pods))
        if not wanted:
            return False
        found = braked(self.snapshot.brakes, taker, self.tally, wanted, waits=self._waits_behind(taker))
        if found is not None:
            self.braked[taker] = found
        return found is not None

    def _waits_behind(self, taker: Claim) -> bool:
        """Whether one of its team that goes before it waits for its turn: else small ones would keep it from that."""
        ahead = (claim for claim, one in self.braked.items() if not one.waits_for_a_person)
        team = taker_of(taker).team
        return any(not c.served and c.rank < taker.rank and taker_of(c).team == team for c in ahead)

    def spares_whole_jobs(self, claim: Claim) -> bool:
        """Whether it has none go in this pass, since it would lose its room again."""
        return claim.job.uid in self.in_vain

    def note_given_back(self, claim: Claim) -> None:
        """Remember that it has what it had: what it took for that went to those who took from it."""
        took = claim.took
        self._note(claim, "took", ())
        for owner, member in took:
            there = [taker for taker in claim.takers if owner.at.get(member.uid) in taker.near] or claim.takers
            others = [taker for taker in owner.takers if taker is not claim]
            self._note(owner, "takers", tuple(dict.fromkeys((*others, *there))))
            for taker in there:
                self._note(taker, "took", (*taker.took, (owner, member)))
                self._attribute(owner, member, taker)

    def pass_on(self, claim: Claim, seat: Seat, heir: Claim) -> bool:
        """Have those who made way for a seat that the claim has given up go for the heir, which sits there now.

        False if the brakes do not let so many go for it; then this is to be undone.
        """
        lacking, passed, rest = claim.ask(seat.role).gpus, [], []
        for owner, member in claim.took:
            is_there = owner.at.get(member.uid) == seat.spot.node and owner is not heir
            if is_there and lacking > 0 and not self._keeps(owner, member):
                passed.append((owner, member))
                lacking -= self.gpus_of(member.requests)
            else:
                rest.append((owner, member))
        self._note(claim, "took", tuple(rest))
        for owner, member in passed:
            others = [taker for taker in owner.takers if taker is not claim or any(one is owner for one, _ in rest)]
            self._note(owner, "takers", tuple(dict.fromkeys((*others, heir))))
            self._note(heir, "took", (*heir.took, (owner, member)))
            self._attribute(owner, member, heir)
        return braked(self.snapshot.brakes, heir, self.tally, len(passed), waits=False) is None

    def _note(self, claim: Claim, what: str, value: object) -> None:
        self.board.on_undo(partial(setattr, claim, what, getattr(claim, what)))
        setattr(claim, what, value)

    def fits_back(self, claim: Claim, member: Member) -> bool:
        """Whether a released member still has its room, and its team may still use it."""
        node = claim.at.get(member.uid)
        if claim.account and claim.account.over(self.gpus_of(member.requests)):
            return False
        return node is None or self.board.fits_load(member.requests, member.host_ports, node)

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
        if claim.reserves:
            self._count_held(claim, sign * claim.ask(seat.role).gpus)
        self.touched.add(claim)

    def mark(self) -> Mark:
        """A point to roll back to."""
        return self.board.mark()

    def roll_back(self, mark: Mark) -> None:
        """Undo every change since `mark`, to jobs, accounts and board alike."""
        self.board.roll_back(mark)


def _same_frame(before: Snapshot, after: Snapshot) -> bool:
    """Whether teams, flavors and what counts as a GPU are the same."""
    return (
        before.gpu_resources == after.gpu_resources
        and (before.flavors is after.flavors or before.flavors == after.flavors)
        and (before.teams is after.teams or before.teams == after.teams)
        and (before.team_of is after.team_of or before.team_of == after.team_of)
        and before.default_team == after.default_team
        and before.reclaiming is after.reclaiming
    )
