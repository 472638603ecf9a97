"""Makes room for a job by preempting others: the cheapest option for each missing pod, for all of them or none.

If a limit is in the way, room is made under the limit first. At the end of a round, each preempted pod is kept after
all if its preemptors fit elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.node_board import Placement
from elastic_operator.plan.allocation.placement import find_placement, place_all
from elastic_operator.plan.allocation.preemption.candidates import Candidates, preempt_units
from elastic_operator.plan.allocation.preemption.options import Options
from elastic_operator.plan.allocation.preemption.victim_queue import VictimQueue
from elastic_operator.plan.allocation.quota_refusal import Rule
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.demand import Member
from elastic_worker.contract import ROLE_MASTER


def preempt(
    state: AllocationState, preemptor: Entry, roles: Sequence[str], candidates: Candidates, *, only: int | None = None
) -> bool:
    """Place pods of all these roles by preempting candidates. Returns False, with nothing changed, if not all fit.

    If `only` is given, pods are preempted on that node only.
    """
    if not candidates.may_exist():
        return False
    mark, took = state.journal.mark(), len(preemptor.victims)
    gpus = [preemptor.requirements(role).gpus for role in roles]
    if _make_room_under_limits(state, preemptor, sum(gpus), candidates):
        options = Options(state, preemptor, candidates, only=only)
        done = all(_place(state, preemptor, role, sum(gpus[i:]), options) for i, role in enumerate(roles))
        done = done and not state.quota_refusal(preemptor, 0, Rule.LENDING)
        went = (one.pod.uid for one in preemptor.victims[took:])
        gang = state.this_pass.current_gang  # is limited as a whole
        if done and (gang or not state.victims.note_if_over_eviction_limit(preemptor, went)):
            return True
    state.undo_preemption(mark)
    return False


def _make_room_under_limits(state: AllocationState, preemptor: Entry, need: int, candidates: Candidates) -> bool:
    """Preempt the weakest units under each limit that `need` more GPUs would pass."""
    if preemptor.is_foreign_pod:
        return True
    while refused := state.quota_refusal(preemptor, need, Rule.LIMIT):
        victim_queue = VictimQueue(candidates, refused.account)
        while state.quota_refusal(preemptor, need, Rule.LIMIT) == refused:
            unit = victim_queue.take_weakest(candidates.check(need))
            if unit is None:
                return False
            preempt_units(state, preemptor, [unit])
    return True


def _place(state: AllocationState, preemptor: Entry, role: str, need: int, options: Options) -> bool:
    """Place one pod. `need` is the number of GPUs that the job still lacks, this pod's included."""
    is_lent = state.quota_refusal(preemptor, preemptor.requirements(role).gpus, Rule.LENDING) is None
    placement = find_placement(state, preemptor, role) if is_lent else None
    if placement is None:
        option = options.cheapest(role, need)
        if option is None:
            return False
        preempt_units(state, preemptor, option.units)
        placement = Placement(role, option.node, ready=False)
    state.place(preemptor, placement)
    return True


def fill_back(state: AllocationState) -> None:
    """Keep each preempted pod after all, the strongest first, if its preemptors fit elsewhere."""
    for entry in sorted(state.this_pass.changed, key=lambda entry: entry.position):
        if len(entry.kept) == len(entry.keepable) or (entry.preempted and not entry.admitted) or not entry.sizes:
            continue
        if entry.placements:
            _keep_own_places(state, entry)
        if not entry.replaces_master:
            _fill_back_more(state, entry)


def _keep_own_places(state: AllocationState, entry: Entry) -> None:
    """Keep own pods instead of as many new ones, where their room is free again. Without the master, no pod is kept."""
    for member in list(state.released(entry)):
        placements = [placement for placement in entry.placements if placement.role == member.role]
        if placements and not _fill_back_by_swap(state, entry, member, placements) and member.role == ROLE_MASTER:
            break
    if not entry.placements:
        state.victims.note_given_back(entry)


def _fill_back_by_swap(state: AllocationState, entry: Entry, member: Member, placements: Sequence[Placement]) -> bool:
    """Keep the pod and give up one planned pod of the job. The planned pod's place goes to the preemptor that took this
    pod's room (149).
    """
    mark, here = state.journal.mark(), entry.node_of.get(member.uid)
    given_up = next((placement for placement in placements if placement.node_number == here), placements[-1])
    state.unplace(entry, given_up)
    moved = _keep_by_moving(state, entry, member)
    if moved is not None:
        new_preemptor = next((other for other in moved if given_up.node_number in other.occupied_nodes), None)
        gpus = entry.requirements(given_up.role).gpus
        if new_preemptor is None or state.victims.pass_on(entry, given_up.node_number, new_preemptor, gpus=gpus):
            return True
    state.journal.roll_back(mark)
    return False


def _fill_back_more(state: AllocationState, entry: Entry) -> None:
    """Keep as many members as may stay. A job that has an allowed size keeps an allowed size."""
    good = state.journal.mark() if entry.size in entry.sizes else None
    for member in list(state.released(entry)):
        if entry.is_below_maximum:
            _keep_by_moving(state, entry, member)
            good = state.journal.mark() if entry.size in entry.sizes else good
    if good is not None:
        state.journal.roll_back(good)


def _keep_by_moving(state: AllocationState, entry: Entry, member: Member) -> list[Entry] | None:
    """Keep the pod if the pods planned for its node fit elsewhere; returns their entries, None if they do not fit."""
    if state.quota_refusal(entry, member.gpus, Rule.LIMIT):
        return None
    node = entry.node_of.get(member.uid)
    here = [] if node is None else [(other, one) for other, one in state.placed[node] if not other.promised_node]
    # Those of the weakest jobs first. They are sorted, because a try that is rolled back changes their order.
    placements = sorted(here, key=lambda pair: (-pair[0].position, pair[1].role, pair[1].ready))
    if not (
        state.has_its_room(entry, member)
        or any(state.board.has_room(o.requirements(placement.role)) for o, placement in placements)
    ):
        return None  # beside the pod there is no room for all planned pods, and none of these fits elsewhere
    mark, moved = state.journal.mark(), list[tuple[Entry, str]]()
    while not state.has_its_room(entry, member):
        if len(moved) == len(placements):
            state.journal.roll_back(mark)
            return None
        other, placement = placements[len(moved)]
        state.unplace(other, placement)
        moved.append((other, placement.role))
    state.fill_back(entry, member)
    if state.journal.keep_if(all(place_all(state, other, [role]) for other, role in moved), mark):
        return [other for other, _ in moved]
    return None
