"""Makes a job's assignment from its entry at the end of a pass, and decides which of its new pods can be created
now.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.node_board import Placement
from elastic_operator.plan.allocation.node_requests import new_roles, placements_without_pods, still_provisioning
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.decisions import Assignment, Slot
from elastic_operator.plan.facts.pod_order import release_order
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER


def mark_ready(state: AllocationState) -> None:
    """Decide which planned pods can be created now. Leaving pods use their room until they are removed.

    Foreign pods with a nomination are first, then jobs in their order. kube-scheduler keeps the room of a nominated pod
    even while only a part of the room is free, so the operator creates no pod in it.
    """
    for entry in sorted(state.this_pass.changed, key=lambda entry: (not entry.held_node, entry.position)):
        if entry.placements:
            placements = [
                placement._replace(ready=_can_be_made_now(state, entry, placement)) for placement in entry.placements
            ]
            state.journal.set(entry, "placements", tuple(placements))


def _can_be_made_now(state: AllocationState, entry: Entry, placement: Placement) -> bool:
    """Whether the pod has room and exceeds no limit although leaving pods have not left yet."""
    requirements = entry.requirements(placement.role)
    if not (placement.ready or state.board.use_now(requirements, placement.node_number)):
        if entry.held_node:
            state.board.keep_free(requirements, placement.node_number)
        return False
    path = entry.account.path if entry.account else ()
    if any(account.used_with_terminating + requirements.gpus > account.limit for account in path):
        return False
    for account in path:
        state.journal.set(account, "used_with_terminating", account.used_with_terminating + requirements.gpus)
    return True


def assignment_of(state: AllocationState, entry: Entry) -> Assignment:
    keep = tuple([member.uid for member in (*entry.kept, *still_provisioning(entry))])
    create = tuple(_slots(state, entry)) if entry.placements or entry.requests_nodes else ()
    return Assignment(
        replicas=len(keep) + len(create),
        keep=keep,
        release=tuple(m.uid for m in release_order(entry.demand.pods) if m.uid not in keep) if _releases(entry) else (),
        create=create,
    )


def _releases(entry: Entry) -> bool:
    return entry.loses_members or bool(entry.demand.provisioning_pods)


def _slots(state: AllocationState, entry: Entry) -> Iterator[Slot]:
    """The pods to create, the master first; workers get the lowest free indices."""
    indices = _free_indices(entry)
    for role in new_roles(entry):
        yield Slot(role, 0 if role == ROLE_MASTER else next(indices), None, ready=True)
    for placement in sorted(placements_without_pods(entry), key=lambda s: s.role != ROLE_MASTER):
        node = (
            state.board.nodes[placement.node_number].name if entry.requirements(placement.role).shape.pinnable else None
        )
        yield Slot(placement.role, 0 if placement.role == ROLE_MASTER else next(indices), node, placement.ready)


def _free_indices(entry: Entry) -> Iterator[int]:
    taken = entry.demand.used_indices | {pod.index for pod in entry.demand.pods if pod.role == ROLE_WORKER}
    return (i for i in count() if i not in taken)
