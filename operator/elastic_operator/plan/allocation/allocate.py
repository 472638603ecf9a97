"""Decides for all jobs at once how many pods each gets, which pods go, and where new ones are placed, and says why.

Teams are served by right and standing (`rounds`). Within a team the order is: priority, has its minimum or holds its
place, age, uid. The decision is pure and deterministic, and does not depend on the order of the input. Once it is
carried out, the same is decided again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from itertools import chain, count
from math import inf

from elastic_api.status import Limit
from elastic_operator.plan.allocation.accounts import Accounts
from elastic_operator.plan.allocation.brakes import Braked
from elastic_operator.plan.allocation.entry import JobEntry, Seat, keep_order
from elastic_operator.plan.allocation.explain import Explainer, Why
from elastic_operator.plan.allocation.gangs import split_gangs
from elastic_operator.plan.allocation.node_requests import (
    ask_for_nodes,
    go_on_waiting,
    new_roles,
    seats_without_pods,
)
from elastic_operator.plan.allocation.rounds import serve
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.allocation.staying import staying
from elastic_operator.plan.facts.decisions import Assignment, Eviction, Grant, Nomination, Slot
from elastic_operator.plan.facts.roles import MASTER, WORKER
from elastic_operator.plan.facts.snapshot import JobDemand, Member, Snapshot, Taker
from elastic_operator.plan.facts.team import Team

_KEEPS = "So it keeps what it has, and is decided on again with the next change."
_MOST_TRIES = 3
"""A pass is served at most this often, until no job is broken up in vain (112), and then once more without gangs if one
of them has only a part of its places.
"""


class Allocation(Mapping[str, Grant]):
    """What each job gets, by its uid. Reasons are put into words only when a grant is read (23)."""

    def __init__(self, state: AllocationState) -> None:
        self._state = state
        self._explainer = Explainer(state)
        self._entries = {job.uid: state.roster.of(job.uid) for job in state.snapshot.jobs}
        self._shares: dict[str, Assignment] = {}
        self._grants: dict[str, Grant] = {}
        self.left_out: Mapping[str, str] = {}
        """The jobs (uids) that get nothing because it would not last, each with the reason in words (143)."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: object) -> bool:
        return uid in self._entries

    def __getitem__(self, uid: str) -> Grant:
        if uid not in self._grants:
            entry = self._entries[uid]
            share, why = self.share(uid), self._why(entry)
            takers = entry.takers if share.release else ()
            self._grants[uid] = Grant(
                *share,
                why.limit,
                why.message,
                why.wake_at,
                takers=_names(takers),
                reclaimed=any(_is_other_team(taker, entry) for taker in takers),
                givers=_names(o for o, member in entry.took if member not in o.kept and o.team != entry.team),
            )
        return self._grants[uid]

    def _why(self, entry: JobEntry) -> Why:
        told = self.left_out.get(entry.job.uid)
        return self._explainer.why(entry) if told is None else Why(Limit.WOULD_NOT_LAST, f"{told} {_KEEPS}")

    @property
    def snapshot(self) -> Snapshot:
        """What it was made from."""
        return self._state.snapshot

    @property
    def takes_away(self) -> bool:
        """Whether any job loses a pod."""
        return any(entry.gives for entry in self._state.touched)

    @property
    def accounts(self) -> Accounts:
        """What each team uses, and may use, once this allocation is carried out."""
        return self._state.accounts

    @cached_property
    def reclaims(self) -> tuple[Nomination, ...]:
        """The nominations: places for pending pods that have none yet, where their team is entitled to one (41)."""
        if not self._state.snapshot.requests:
            return ()
        waiting = [entry for entry in self._state.entries if entry.request and not entry.request.nominated]
        return tuple(_reclaim(self._state, entry) for entry in waiting if entry.seats)

    @cached_property
    def evictions(self) -> tuple[Eviction, ...]:
        """What jobs lose to other teams and to pending pods of others."""
        losing = (entry for entry in self._state.touched if entry.gives and entry.takers)
        found = (_eviction(entry, self.share(entry.job.uid)) for entry in sorted(losing, key=lambda c: c.rank))
        return tuple(eviction for eviction in found if eviction.takers and eviction.pods)

    @cached_property
    def taken(self) -> Mapping[str, Taker]:
        """The pods (uids) that go to another team or to a pending pod of others, each with its taker."""
        return self._state.taken.tally.going

    @cached_property
    def going(self) -> frozenset[str]:
        """All pods (uids) that go for somebody else."""
        return frozenset(uid for uid, _, _ in self._state.taken.going())

    @cached_property
    def _takers(self) -> Mapping[JobEntry, Mapping[str, JobEntry]]:
        found: dict[JobEntry, dict[str, JobEntry]] = {}
        for uid, owner, taker in self._state.taken.going():
            found.setdefault(owner, {})[uid] = taker
        return found

    @cached_property
    def braked(self) -> tuple[tuple[JobEntry, Braked], ...]:
        """The entries that a brake kept from taking, in the order in which jobs are served (138)."""
        return tuple(sorted(self._state.taken.braked.items(), key=lambda one: one[0].rank))

    @property
    def tried_gangs(self) -> frozenset[str]:
        """The gangs of pending pods for which the pass looked for places."""
        return frozenset(self._state.tried_gangs)

    def takers(self, uid: str) -> tuple[str, ...]:
        """The jobs (uids) for which pods of that job go, in the order in which jobs are served."""
        found = {taker for taker in self._takers.get(self._entries[uid], {}).values() if taker.request is None}
        return tuple(taker.job.uid for taker in sorted(found, key=lambda taker: taker.rank))

    def has_pending_takers(self, uid: str) -> bool:
        """Whether pods of that job go for pending pods of others."""
        return any(taker.request for taker in self._takers.get(self._entries[uid], {}).values())

    def staying(self, uid: str, waiting: Set[str]) -> frozenset[str]:
        """The released pods (uids) of the job that stay while the jobs `waiting` are to get nothing (139)."""
        entry = self._entries[uid]
        takers = {pod: taker.job.uid for pod, taker in self._takers.get(entry, {}).items()}
        return staying(entry.job, self.share(uid), takers, waiting)

    def is_at_others_cost(self, uid: str) -> bool:
        """Whether pods of others go for the job."""
        return any(member not in owner.kept for owner, member in self._entries[uid].took)

    def gpus_taken_for(self, uid: str) -> int:
        """The GPUs of the pods that go for the job, of its own team and of others."""
        names = self._state.snapshot.gpu_resources
        gone = (member for owner, member in self._entries[uid].took if member not in owner.kept)
        return sum(member.requests.get(name, 0) for member in gone for name in names)

    def rank(self, uid: str) -> int:
        """The job's position in the order in which jobs are served."""
        return self._entries[uid].rank

    def share(self, uid: str) -> Assignment:
        """The grant without its reasons. Raises KeyError for a job that is not in the snapshot."""
        entry = self._entries[uid]
        if entry not in self._state.touched:
            if entry.at_rest is None:
                entry.at_rest = _share(self._state, entry)
            return entry.at_rest
        if uid not in self._shares:
            self._shares[uid] = _share(self._state, entry)
        return self._shares[uid]


class Allocator:
    """Allocates again and again, and keeps the state so that unchanged parts are not worked through again (38).

    `unsettled` are the uids of takers for which a whole job still goes in vain in the last allocation (112).
    """

    def __init__(self) -> None:
        self._state: AllocationState | None = None
        self.unsettled = frozenset[str]()

    def allocate(self, snapshot: Snapshot) -> Allocation:
        """What each job gets. The allocation returned before must not be read any more."""
        state = self._state = self._serve(snapshot)
        _settle_readiness(state)
        ask_for_nodes(state)
        return Allocation(state)

    def _serve(self, snapshot: Snapshot) -> AllocationState:
        """The state after a pass in which no whole job goes in vain (112) and no gang has a part of its places (144).

        A job goes in vain if a taker of it has no pods at the end of the pass, or if each of its takers has just the
        pods that it had. Then the pass is served again, and these takers may take no whole job. If others took the
        places of a part of a gang, the pass is served again, and the gang gets none. If that still happens in the last
        try, no gang gets any.
        """
        state, in_vain, split = self._state, frozenset[str](), frozenset[str]()
        for tries in count(1):
            state = state.renewed(snapshot) if state else AllocationState(snapshot)
            state.in_vain, state.split_gangs = in_vain, split
            serve(state)
            self.unsettled = _took_in_vain(state) - in_vain
            newly_split = split_gangs(state)
            if not newly_split and (not self.unsettled or tries >= _MOST_TRIES):
                break
            in_vain |= self.unsettled
            split |= newly_split if tries < _MOST_TRIES else state.roster.gangs.keys()
        assert state is not None, "served once at least"
        return state


def _took_in_vain(state: AllocationState) -> frozenset[str]:
    """The takers (uids) for which a whole job goes in vain."""
    found = set[JobEntry]()
    for entry in (entry for entry in state.displaced if entry.displaced and entry.gives):
        as_before = not any(taker.seats or taker.gives for taker in entry.takers)
        found.update(taker for taker in entry.takers if as_before or not taker.size)
    return frozenset(taker.job.uid for taker in found)


def allocate(snapshot: Snapshot) -> Allocation:
    """What each job gets.

    A job without sizes is ending: it gets nothing new, and its pods can be reclaimed one by one.
    """
    return Allocator().allocate(snapshot)


def next_change(snapshot: Snapshot) -> float:
    """The next time at which the same snapshot may be allocated otherwise; infinity if there is none."""
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


def _reclaim(state: AllocationState, entry: JobEntry) -> Nomination:
    assert entry.request is not None, "asked for foreign pods only"
    node = entry.seats[0].node
    gone = [(owner, member) for owner, member in entry.took if member not in owner.kept]
    request = entry.request
    return Nomination(
        uid=request.uid,
        namespace=request.namespace,
        name=request.name,
        node=state.board.nodes[node].name,
        victims=tuple(member.uid for _, member in gone),
        losers={owner.job.uid: _name(owner) for owner, _ in gone},
        reserved=request.reserved,
    )


def _eviction(entry: JobEntry, share: Assignment) -> Eviction:
    takers = [taker for taker in entry.takers if _is_other_team(taker, entry)]
    return Eviction(entry.job.uid, share.release, _names(takers))


def _is_other_team(taker: JobEntry, entry: JobEntry) -> bool:
    """Whether it is of another team, or a pending pod of others."""
    return taker.team != entry.team or taker.request is not None


def _names(entries: Iterable[JobEntry]) -> tuple[str, ...]:
    return tuple(sorted({_name(entry) for entry in entries}))


def _name(entry: JobEntry) -> str:
    return f"{entry.job.namespace}/{entry.job.name}"


def _settle_readiness(state: AllocationState) -> None:
    """Decide which planned pods can be created now. Pods that leave use their room until they are gone.

    Pending pods with a nomination come first, then jobs in their order. kube-scheduler places nothing in a part of the
    room that it keeps for a nominated pod, so no pod is created there either.
    """
    for entry in sorted(state.touched, key=lambda c: (not c.promised, c.rank)):
        if entry.seats:
            seats = [seat._replace(ready=_can_be_made_now(state, entry, seat)) for seat in entry.seats]
            state.journal.set(entry, "seats", tuple(seats))


def _can_be_made_now(state: AllocationState, entry: JobEntry, seat: Seat) -> bool:
    """Whether there is room for the pod, and it would pass no limit, even though what leaves has not left."""
    ask = entry.ask(seat.role)
    if not (seat.ready or state.board.use_now(ask, seat.node)):
        if entry.promised:
            state.board.keep_free(ask, seat.node)
        return False
    path = entry.account.path if entry.account else ()
    if any(account.used_now + ask.gpus > account.limit for account in path):
        return False
    for account in path:
        state.journal.set(account, "used_now", account.used_now + ask.gpus)
    return True


def _share(state: AllocationState, entry: JobEntry) -> Assignment:
    keep = tuple([member.uid for member in (*entry.kept, *go_on_waiting(entry))])
    create = tuple(_slots(state, entry)) if entry.seats or entry.asks else ()
    return Assignment(
        replicas=len(keep) + len(create),
        keep=keep,
        release=tuple(m.uid for m in _leaving_order(entry) if m.uid not in keep) if _lets_go(entry) else (),
        create=create,
    )


def _lets_go(entry: JobEntry) -> bool:
    return entry.gives or bool(entry.job.waiting)


def _leaving_order(entry: JobEntry) -> list[Member]:
    return sorted((*entry.job.members, *entry.job.waiting), key=keep_order, reverse=True)


def _slots(state: AllocationState, entry: JobEntry) -> Iterator[Slot]:
    """The pods to create, the master first; workers get the lowest free indices."""
    indices = _free_indices(entry)
    for role in new_roles(entry):
        yield Slot(role, 0 if role == MASTER else next(indices), None, ready=True)
    for seat in sorted(seats_without_pods(entry), key=lambda s: s.role != MASTER):
        node = state.board.nodes[seat.node].name if entry.ask(seat.role).shape.pinnable else None
        yield Slot(seat.role, 0 if seat.role == MASTER else next(indices), node, seat.ready)


def _free_indices(entry: JobEntry) -> Iterator[int]:
    pods = (*entry.job.members, *entry.job.waiting)
    taken = entry.job.taken_indices | {pod.index for pod in pods if pod.role == WORKER}
    return (i for i in count() if i not in taken)
