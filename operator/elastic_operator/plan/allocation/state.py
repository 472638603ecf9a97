"""The state of one pass: the board, the accounts, and the entries of all jobs and foreign pods.

`AllocationState` makes every change. It keeps the three consistent and can undo any change, so one state serves pass
after pass, and the cost of a pass grows with the changes since the last pass (38). `admit` and `grow` decide which
members and placements a job gets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial

from elastic_operator.plan.allocation.accounts import Accounts
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.allocation.node_board import NodeBoard, Placement
from elastic_operator.plan.allocation.pass_state import PassState
from elastic_operator.plan.allocation.queues import Queues
from elastic_operator.plan.allocation.quota_refusal import QuotaRefusal, Rule, quota_refusal
from elastic_operator.plan.allocation.victims import Victims
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.demand import Member, PreemptionBar
from elastic_operator.plan.facts.pod_order import keep_order
from elastic_operator.plan.facts.requirements import Load
from elastic_worker.contract import ROLE_MASTER


class AllocationState:
    """Board, accounts and queues of an allocation.

    `this_pass` is new in each pass; all other parts are renewed.

    Findings of an earlier try of the same pass:
        futile_preemptors  the entries (uids) whose preemption was futile (112, 219)
        futile_in_team     those of them for which their own team, or a parent of it, would be short of GPUs (219)
        split_gangs        the gangs that get nothing, because only a part of each had places (144)

    `revision` is the number of times that the state was renewed. Values read from the state before are stale.
    """

    def __init__(self, inputs: AllocationInputs) -> None:
        self.inputs, self.revision = inputs, 0
        self.journal = Journal()
        self.board = NodeBoard(inputs.nodes, inputs.settings.gpu_resources, self.journal)
        self.accounts = Accounts(inputs, self.board)
        self.queues = Queues(self.board, self.accounts)
        self.residents: list[dict[str, tuple[Entry, Member]]] = [{} for _ in self.board.nodes]
        self.placed: list[list[tuple[Entry, Placement]]] = [[] for _ in self.board.nodes]
        self._reassigned: set[Entry] = set()
        self.futile_preemptors = self.futile_in_team = frozenset[str]()
        self.split_gangs = frozenset[str]()
        self._start(inputs)

    def renewed(self, inputs: AllocationInputs) -> AllocationState:
        """The state for other inputs: this state brought up to date, or a new one if teams or nodes have changed."""
        before, after = ((it.settings, it.teams, it.reclaim_stopped) for it in (self.inputs, inputs))
        changes = self.board.take_changes(inputs.nodes)
        if before != after or changes is None:
            self.journal.forget()
            return AllocationState(inputs)
        self.revision += 1
        self.journal.roll_back()
        self.inputs = inputs
        self.board.renew(changes)
        for change in changes:
            self.accounts.renew_node(*change)
        self._start(inputs)
        return self

    def _start(self, inputs: AllocationInputs) -> None:
        """Renew all parts by the input, before the first decision."""
        self.this_pass = PassState(self.journal, inputs.eviction_limits, self.residents)
        self.queues.renew(inputs, leave=self._leave, join=self._join)
        entries = sorted(self.queues.handled_first, key=lambda entry: entry.position)
        for entry in entries:
            self._count_unplaced(entry)
        self.accounts.note_use()
        for entry in entries:
            self._trim(entry)
        self.divide()
        for entry in entries:
            self.hold_promised(entry)

    @property
    def now(self) -> float:
        """The time of the pass (epoch seconds)."""
        return self.inputs.now

    def take_reassigned(self) -> AbstractSet[Entry]:
        """The entries that have changed since the last call, changes that were undone included: all others keep their
        assignment.
        """
        reassigned, self._reassigned = self._reassigned, set()
        return reassigned

    @property
    def victims(self) -> Victims:
        """The pods that were preempted in this pass."""
        return self.this_pass.victims

    # -- from the input ---------------------------------------------------------------------------------------------

    def _join(self, entries: Iterable[Entry]) -> None:
        """Put the members of new entries on the board."""
        loads: dict[int, list[Member]] = {}
        for entry in entries:
            self._reassigned.add(entry)
            for member in entry.kept:
                self._charge_member(entry, member, +1)
                node = self.board.number.get(member.node) if member.node is not None else None
                if node is not None:
                    self._count_at(entry, member, node)
                    loads.setdefault(node, []).append(member)
            self._want(entry, +1)
        for node, members in loads.items():
            self.board.place_members(members, node)

    def _leave(self, entry: Entry) -> None:
        for member in entry.kept:
            self._charge_member(entry, member, -1)
            node = entry.node_of.get(member.uid)
            if node is not None:
                del self.residents[node][member.uid]
                self.board.remove_member(member, node)
        self._want(entry, -1)

    def _want(self, entry: Entry, sign: int) -> None:
        if entry.account and entry.demand.wants_pods:
            most = entry.demand.sizes[-1] if entry.demand.sizes else len(entry.kept)
            held = sum([member.gpus for member in entry.kept[:most]])
            entry.account.requested_by_jobs += sign * max(
                entry.demand.gpus_of_size(entry.sizes[-1]) if entry.sizes else 0, held
            )

    def _count_unplaced(self, entry: Entry) -> None:
        """Count each unpinned member without a node where it fits best, so that no other entry gets its room (10)."""
        for member in entry.kept:
            if member.node is not None:
                continue
            placement = self.board.find(member.role, entry.requirements(member.role), entry.occupied_nodes)
            if placement is not None:
                self.journal.do(
                    partial(self._count_at, entry, member, placement.node_number),
                    undo=partial(self._uncount_at, entry, member, placement.node_number),
                )
                self.board.change_usage(member, placement.node_number, +1, now=True)

    def _count_at(self, entry: Entry, member: Member, node: int) -> None:
        entry.node_of[member.uid] = node
        self.residents[node][member.uid] = (entry, member)

    def _uncount_at(self, entry: Entry, member: Member, node: int) -> None:
        del entry.node_of[member.uid], self.residents[node][member.uid]

    def _trim(self, entry: Entry) -> None:
        """Release the members that a job must not keep: all members, or those beyond its largest size."""
        if not entry.demand.wants_pods:
            self.release_all(entry)
        elif entry.demand.sizes:
            self.shrink(entry, entry.demand.sizes[-1] - (not entry.has_master))
        self.journal.set(entry, "keepable", entry.kept)

    def divide(self) -> None:
        """Compute the fair shares from the capacity and the wishes of all teams.

        If a node takes no new pods, only its GPUs in use count as capacity, those of jobs' members included (35).
        """
        self.journal.renumber()  # other shares entitle teams to other pods
        held = Counter[str]()
        for node in self.board.closed:
            for entry, member in self.residents[node].values():
                if entry.account:
                    held[entry.account.flavor] += member.gpus
        self.accounts.divide(held)

    def hold_promised(self, entry: Entry) -> None:
        """Place a foreign pod on the node that it is nominated for.

        If kube-scheduler or another program nominated the pod, it is placed even without room. If the operator did, the
        pod is placed once there is room now or soon (41). Until then the pod is served like any entry, and preempts the
        pods on that node.
        """
        node = self.board.number.get(entry.promised_node)
        if node is None or (entry.reserved_node and not self.board.fits(entry.master, node)):
            return
        self.place(entry, Placement(ROLE_MASTER, node, ready=self.board.is_free(entry.master, node)))
        self.journal.set(entry, "admitted", True)

    def quota_refusal(self, entry: Entry, need: int, *rules: Rule) -> QuotaRefusal | None:
        """The rule that keeps the job's team from using `need` more GPUs for it: see `quota_refusal`."""
        return quota_refusal(self.accounts, entry, need, *rules)

    def add_usage(self, entry: Entry, gpus: int, *, not_yet_held: bool = False) -> None:
        """Count that many GPUs more (or fewer) as used by the job's team."""
        if entry.account:
            entry.account.add_usage(gpus, non_preemptible=not entry.demand.preemptible, not_yet_held=not_yet_held)

    def _charge_member(self, entry: Entry, member: Member, sign: int) -> None:
        """Charge a member, unless its node is deleted: then it holds no GPUs, though its pod object exists (35)."""
        if member.node is None or member.node in self.board.number:
            self.add_usage(entry, sign * member.gpus)

    def _change_usage(self, load: Load, node: int, sign: int, *, now: bool) -> None:
        """Count a load on the node (+1), or as leaving it (-1)."""
        self.board.change_usage(load, node, sign, now=now)
        if sign < 0:
            self.this_pass.node_got_room(node)

    def undo_preemption(self, mark: int) -> None:
        """Undo an attempt to preempt. Options that the attempt made more expensive are cheaper again."""
        if self.journal.mark() > mark:
            self.this_pass.options.clear()
        self.journal.roll_back(mark)

    def _note_change(self, entry: Entry) -> None:
        """Note that pods of the entry have changed, or that such a change was undone."""
        self.this_pass.changed.add(entry)
        self._reassigned.add(entry)
        entry.assignment = None

    # -- members -----------------------------------------------------------------------------------------------------

    def request_nodes(self, entry: Entry) -> None:
        """Let the entry request new nodes: its missing pods count under the limits of its team from now on (49)."""
        gpus = entry.gpus_missing(entry.demand.minimum)
        self.journal.do(
            partial(self._set_requests_nodes, entry, True), undo=partial(self._set_requests_nodes, entry, False)
        )
        for account in entry.account.path if entry.account else ():
            self.journal.set(account, "on_new_nodes", account.on_new_nodes + gpus)
            self.journal.set(
                account, "non_preemptible", account.non_preemptible + (0 if entry.demand.preemptible else gpus)
            )

    def _set_requests_nodes(self, entry: Entry, requests_nodes: bool) -> None:
        entry.requests_nodes = requests_nodes
        self._note_change(entry)

    def release(self, entry: Entry, member: Member) -> None:
        """Give up a kept member."""
        self._change_kept(entry, member, tuple([m for m in entry.kept if m.uid != member.uid]), -1)

    def fill_back(self, entry: Entry, member: Member) -> None:
        """Keep a member that was released in this pass."""
        at = bisect_right(entry.kept, keep_order(member), key=keep_order)
        self._change_kept(entry, member, (*entry.kept[:at], member, *entry.kept[at:]), +1)

    def _change_kept(self, entry: Entry, member: Member, kept: tuple[Member, ...], sign: int) -> None:
        change = partial(self._keep, entry, member)
        self.journal.do(partial(change, kept, sign), undo=partial(change, entry.kept, -sign))
        node = entry.node_of.get(member.uid)
        if node is not None:
            self._change_usage(member, node, sign, now=False)

    def _keep(self, entry: Entry, member: Member, kept: tuple[Member, ...], sign: int) -> None:
        entry.kept = kept
        node = entry.node_of.get(member.uid)
        if node is not None and sign > 0:
            self.residents[node][member.uid] = (entry, member)
        elif node is not None:
            del self.residents[node][member.uid]
        self.victims.changed(member.uid, evicted=sign < 0)
        self._charge_member(entry, member, sign)
        self._note_change(entry)

    def release_all(self, entry: Entry) -> None:
        for member in reversed(entry.kept):
            self.release(entry, member)

    def preempt_job(self, entry: Entry) -> None:
        """Preempt the whole job: release all its members and remove its placements. The job may get them back later in
        the pass, if room is left.
        """
        self.journal.set(entry, "preempted", True)
        self.this_pass.preempted.add(entry)
        self.journal.set(entry, "admitted", False)
        for placement in entry.placements[::-1]:
            self.unplace(entry, placement)
        self.release_all(entry)

    def shrink(self, entry: Entry, size: int) -> None:
        """Release workers, the highest indices first, until the job has that size."""
        for placement in entry.placements[::-1]:
            if entry.size > size and placement.role != ROLE_MASTER:
                self.unplace(entry, placement)
        for member in entry.kept[::-1]:
            if entry.size <= size or member.role == ROLE_MASTER:
                return
            self.release(entry, member)

    def may_preempt_whole_jobs(self, entry: Entry) -> bool:
        """Whether the entry may preempt whole jobs in this pass; False if it would lose their room again (112)."""
        return entry.demand.uid not in self.futile_preemptors

    def may_preempt_in_team(self, entry: Entry) -> bool:
        """Whether the entry may preempt jobs that are charged to its team, or to a parent of it, in this pass; False if
        it would lose their room again (219).
        """
        return entry.demand.uid not in self.futile_in_team

    def may_preempt_from(self, entry: Entry, victim_job: Entry) -> bool:
        """Whether the entry may preempt pods and planned places of that job in this pass (219)."""
        return self.may_preempt_in_team(entry) or not entry.accounts_shared_with(victim_job)

    def preemption_bar(self, entry: Entry) -> PreemptionBar | None:
        """Why no pods of others may be preempted for the entry; None if they may (139).

        A job that has lost all its pods to another team waits until the large gangs of its flavor have their nodes, for
        a minute at most (217).
        """
        demand = entry.demand
        if self.now < demand.bar.until:
            return demand.bar.why
        yields = (
            demand.shape.flavor in self.this_pass.flavors_of_large_gangs
            and not (entry.size or entry.is_foreign_pod)
            and (self.now < demand.yields_until or any(preemptor.gang for preemptor in entry.preemptors))
        )
        return PreemptionBar.GANG_FIRST if yields else None

    def starves(self, entry: Entry) -> bool:
        """Whether the entry has waited so long for its minimum that room that becomes free is held for it (37)."""
        return self.now >= entry.demand.starves_from(self.inputs.settings.starvation_seconds)

    def has_its_room(self, entry: Entry, member: Member) -> bool:
        """Whether the room of a released member is still free."""
        node = entry.node_of.get(member.uid)
        return node is None or self.board.fits_load(member, node)

    def fill_back_to(self, entry: Entry, size: int) -> None:
        """Keep released members whose room is free, up to that size; no worker without the master, if there was one."""
        for member in list(self.released(entry)):
            may_use = entry.size < size and self.has_its_room(entry, member)
            if may_use and not self.quota_refusal(entry, member.gpus, Rule.LIMIT):
                self.fill_back(entry, member)
            elif member.role == ROLE_MASTER:
                return

    def released(self, entry: Entry) -> Iterator[Member]:
        """The released members that the entry may keep by its own limits, in the order of preference."""
        kept = {m.uid for m in entry.kept}
        return (m for m in entry.keepable if m.uid not in kept)

    # -- placements --------------------------------------------------------------------------------------------------

    def place(self, entry: Entry, placement: Placement) -> None:
        """Give the job a placement, whose room is held from here on."""
        self._change_placements(entry, placement, (*entry.placements, placement), +1)

    def unplace(self, entry: Entry, placement: Placement) -> None:
        after = list(entry.placements)
        after.remove(placement)
        self._change_placements(entry, placement, tuple(after), -1)

    def _change_placements(
        self, entry: Entry, placement: Placement, placements: tuple[Placement, ...], sign: int
    ) -> None:
        change, requirements = partial(self._place, entry, placement), entry.requirements(placement.role)
        self._change_usage(requirements.shape, placement.node_number, sign, now=placement.ready)
        self.journal.do(partial(change, placements, sign), undo=partial(change, entry.placements, -sign))

    def _place(self, entry: Entry, placement: Placement, placements: tuple[Placement, ...], sign: int) -> None:
        entry.placements = placements
        if sign > 0:
            self.placed[placement.node_number].append((entry, placement))
        else:
            self.placed[placement.node_number].remove((entry, placement))
        self.add_usage(entry, sign * entry.requirements(placement.role).gpus, not_yet_held=not entry.promised_node)
        self._note_change(entry)
