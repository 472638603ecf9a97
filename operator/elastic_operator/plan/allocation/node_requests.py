"""Autoscaled pools: which jobs ask for new nodes, by pods without a node that wait for kube-scheduler (49).

A job asks for what its minimum lacks, once it was tried and only room was missing. Such pods hold no room, and no pod
goes for them. They count under their team's limit, so that the team may use the nodes when they come. Once there is
room for the minimum, on a new node or an old one, the job counts as having it, and the scheduler binds the pods there.

The scheduler would bind such pods to any room that appears. So while room is made for others that they would fit into,
they are withdrawn or not created.
"""

from __future__ import annotations

from collections.abc import Iterator

from elastic_operator.plan.allocation.entry import JobEntry, Seat, keep_order
from elastic_operator.plan.allocation.free import PodRequirements
from elastic_operator.plan.allocation.refusal import Rule
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.roles import MASTER, WORKER
from elastic_operator.plan.facts.snapshot import Member

Promised = dict[int, list[tuple[PodRequirements, bool]]]
"""By node: the requirements of pods to come there, and whether their places must be held for a while."""


def step_aside(state: AllocationState, entry: JobEntry) -> None:
    """Before the job is served, drop its own node requests, and those of lower-priority jobs that block it
    by a limit.
    """
    state.set_asked(entry, None)
    refused = state.refusal(entry, entry.gpus_missing(entry.minimum), Rule.ASKED)
    for other in state.by_account[entry.account] if entry.account and refused else ():
        if other.job.priority < entry.job.priority:
            state.set_asked(other, None)


def ask_for_nodes(state: AllocationState, entry: JobEntry) -> None:
    """Have the job ask for nodes if it is not served and may ask; else drop its request."""
    state.set_asked(entry, entry.gpus_missing(entry.minimum) if _may_ask(state, entry) else None)


def _may_ask(state: AllocationState, entry: JobEntry) -> bool:
    job = entry.job
    if job.nodes_from is None or not job.wants or entry.served or entry.seats:
        return False
    if entry.failed_at(entry.minimum, state.now) or not (job.waiting or state.now >= job.nodes_from):
        return False
    return _is_within_quota(state, entry)


def _is_within_quota(state: AllocationState, entry: JobEntry) -> bool:
    """New nodes may be used even where what is idle is kept for its owners, unless the pods would be put there."""
    refused = state.refusal(entry, entry.gpus_missing(entry.minimum))
    return refused is None or (refused.rule is Rule.LENDING and not _fits_anywhere(state, entry))


def _fits_anywhere(state: AllocationState, entry: JobEntry) -> bool:
    """Whether any of the missing pods fits on an existing node, where GPUs are kept for their owners."""
    return any(state.board.fits(ask, node) for ask, _ in _missing(entry) for node in ask.hosts)


def _missing(entry: JobEntry) -> Iterator[tuple[PodRequirements, int]]:
    master, workers = entry.missing(entry.minimum)
    if master:
        yield entry.master, 1
    if workers:
        yield entry.worker, workers


def settle_asking(state: AllocationState) -> None:
    """Drop node requests that no longer fit the quota, lowest rank first; hold back those whose pods would take held
    room.
    """
    asking = [entry for entry in state.touched if entry.asked is not None]
    promised = _promised(state) if asking else {}
    for entry in sorted(asking, key=lambda entry: -entry.rank):
        if not _is_within_quota(state, entry):
            state.set_asked(entry, None)
        elif _would_rob(state, entry, promised):
            state.journal.set(entry, "withheld", True)


def _would_rob(state: AllocationState, entry: JobEntry, promised: Promised) -> bool:
    """Whether its new pods would fit into room that is held for others. Pods that wait already left that room alone."""
    for node, places in promised.items():
        loads = [(ask.shape.requests, ask.ports) for ask, lasts in places if lasts or not entry.job.waiting]
        if loads and any(state.board.fits_without(ask, node, loads) for ask, _ in _missing(entry)):
            return True
    return False


def _promised(state: AllocationState) -> Promised:
    """The places that are held for pods to come, by node."""
    found: Promised = {}
    for other in state.touched:
        for seat in other.seats:
            lasts = not seat.ready or other.request is not None
            found.setdefault(seat.node, []).append((other.ask(seat.role), lasts))
    for node, seated in enumerate(state.seated):
        held = [(other.ask(seat.role), True) for other, seat in seated if other.reserves]
        if held:
            found.setdefault(node, []).extend(held)
    return found


# -- what comes of it --------------------------------------------------------------------------------------------------


def asks(entry: JobEntry) -> bool:
    """Whether its pods ask for nodes now."""
    return entry.asked is not None and not entry.withheld


def go_on_waiting(entry: JobEntry) -> tuple[Member, ...]:
    """The waiting pods that stay: the number that is asked for, or for which there is room now."""
    if not entry.job.waiting:
        return ()
    if asks(entry):
        master, workers = entry.missing(entry.minimum)
    else:
        roles = [seat.role for seat in entry.seats]
        master, workers = MASTER in roles, roles.count(WORKER)
    waiting = sorted(entry.job.waiting, key=keep_order)
    of_role = {role: [pod for pod in waiting if pod.role == role] for role in (MASTER, WORKER)}
    return (*of_role[MASTER][: int(master)], *of_role[WORKER][:workers])


def new_roles(entry: JobEntry) -> list[str]:
    """The roles of the pods to create without a node, the master first."""
    if not asks(entry):
        return []
    master, workers = entry.missing(entry.minimum)
    there = [pod.role for pod in go_on_waiting(entry)]
    return [MASTER] * (master - there.count(MASTER)) + [WORKER] * (workers - there.count(WORKER))


def seats_without_pods(entry: JobEntry) -> list[Seat]:
    """The seats for which pods are to be created. The scheduler binds waiting pods to the other seats."""
    there = [] if asks(entry) else [pod.role for pod in go_on_waiting(entry)]
    left = []
    for seat in entry.seats:
        if seat.role in there:
            there.remove(seat.role)
        else:
            left.append(seat)
    return left
