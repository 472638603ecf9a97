"""Makes a job's assignment at the end of a pass, and decides which of its new pods can be created now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.node_board import Placement
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.decisions import Assignment, Slot
from elastic_operator.plan.facts.demand import Member
from elastic_operator.plan.facts.pod_order import keep_order, release_order
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER


def mark_ready(state: AllocationState) -> None:
    """Decide which planned pods can be created now. Leaving pods use their room until they are removed.

    Foreign pods with a nomination are first, then jobs in their order. kube-scheduler keeps the room of a nominated pod
    even while only a part of the room is free, so the operator creates no pod in it.
    """
    for entry in sorted(state.this_pass.changed, key=lambda entry: (not entry.promised_node, entry.position)):
        if entry.placements:
            placements = [
                placement._replace(ready=_can_be_made_now(state, entry, placement)) for placement in entry.placements
            ]
            state.journal.set(entry, "placements", tuple(placements))


def _can_be_made_now(state: AllocationState, entry: Entry, placement: Placement) -> bool:
    """Whether the pod has room and exceeds no limit although leaving pods have not left yet."""
    requirements = entry.requirements(placement.role)
    if not placement.ready:
        is_free = state.board.is_free(requirements, placement.node_number)
        if is_free or entry.promised_node:
            state.board.keep_free(requirements, placement.node_number)
        if not is_free:
            return False
    path = entry.account.path if entry.account else ()
    if any(account.used_with_terminating + requirements.gpus > account.limit for account in path):
        return False
    for account in path:
        state.journal.set(account, "used_with_terminating", account.used_with_terminating + requirements.gpus)
    return True


def assignment_of(state: AllocationState, entry: Entry) -> Assignment:
    waiting, to_create = _pods_to_come(entry)
    keep = tuple([member.uid for member in (*entry.kept, *waiting)])
    create = tuple(_slots(state, entry, to_create)) if to_create else ()
    releases = entry.loses_members or entry.demand.provisioning_pods
    return Assignment(
        keep=keep,
        release=tuple(m.uid for m in release_order(entry.demand.pods) if m.uid not in keep) if releases else (),
        create=create,
    )


def _pods_to_come(entry: Entry) -> tuple[list[Member], list[tuple[str, Placement | None]]]:
    """The provisioning pods to keep, and the role and placement of each pod to create, the master first. A pod that
    requests a new node has no placement (49).

    Where the entry has placements, the scheduler binds provisioning pods to them, so fewer pods are to be created.
    """
    to_come: Iterable[tuple[str, Placement | None]] = [(placement.role, placement) for placement in entry.placements]
    if entry.requests_nodes:
        to_come = [(role, None) for role in entry.missing_roles(entry.demand.minimum)]
    waiting = {ROLE_MASTER: list[Member](), ROLE_WORKER: list[Member]()}
    for pod in release_order(entry.demand.provisioning_pods):
        waiting[pod.role].append(pod)
    kept, to_create = list[Member](), list[tuple[str, Placement | None]]()
    for role, placement in to_come:
        if waiting[role]:
            kept.append(waiting[role].pop())
        else:
            to_create.append((role, placement))
    return sorted(kept, key=keep_order), sorted(to_create, key=lambda one: one[0] != ROLE_MASTER)


def _slots(state: AllocationState, entry: Entry, to_create: Iterable[tuple[str, Placement | None]]) -> Iterator[Slot]:
    """The pods to create; workers get the lowest free indices."""
    taken = entry.demand.used_indices | {pod.index for pod in entry.demand.pods if pod.role == ROLE_WORKER}
    indices = (i for i in count() if i not in taken)
    for role, placement in to_create:
        node = state.board.nodes[placement.node_number].name if placement else None
        pinned = node if entry.requirements(role).shape.pinnable else None
        yield Slot(role, 0 if role == ROLE_MASTER else next(indices), pinned, placement is None or placement.ready)
