"""The pods that may be preempted for a preemptor: the units that are preempted together, their costs, and their
order.

Within its team, a job may preempt for its minimum: pods of other jobs above their minima, whole jobs of strictly lower
priority, and whole jobs whose turn is over. If the job's team is entitled to it (`rules`), the job may preempt the same
from another team, and whole jobs of any priority. For growth, a job preempts pods of other teams only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from elastic_operator.plan.allocation.accounts import Account
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.node_board import Placement
from elastic_operator.plan.allocation.pass_memo import Question
from elastic_operator.plan.allocation.preemption.rules import PreemptionCheck
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.demand import Member
from elastic_operator.plan.facts.pod_order import release_order
from elastic_operator.plan.facts.requirements import Load
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER

_LAST = 1 << 30
"""The index of pods that do not exist yet. Such pods are preempted before existing ones."""


class UnitKind(IntEnum):
    """The kinds of units, the cheapest first."""

    OWN = 0
    """A worker of the preemptor itself beyond its minimum, when its master is missing."""
    SET_ASIDE = 1
    """A placement that is set aside for a job that has waited too long (37)."""
    SURPLUS = 2
    """A worker above its job's minimum."""
    INCOMPLETE = 3
    """A worker of a job below its minimum (16)."""
    INCOMPLETE_JOB = 4
    """All pods of a job below its minimum, because its master is needed."""
    JOB = 5
    """All pods of a job that runs."""


@dataclass(frozen=True, slots=True)
class VictimUnit:
    """Pods that are preempted together. `members` and `placements` are those on the node in question.

    `gpus` are all GPUs of the unit, `held_gpus` the part of these that pods hold already.
    """

    kind: UnitKind
    entry: Entry
    members: tuple[Member, ...]
    placements: tuple[Placement, ...]
    gpus: int
    held_gpus: int

    @property
    def whole(self) -> bool:
        return self.kind in (UnitKind.INCOMPLETE_JOB, UnitKind.JOB)

    @property
    def not_yet_held(self) -> bool:
        """Whether the unit has placements only, and no pod."""
        return not self.members and not self.held_gpus

    @property
    def loads(self) -> list[Load]:
        """The loads that would become free on the node."""
        return [*self.members, *(self.entry.requirements(placement.role).shape for placement in self.placements)]

    @property
    def order_in_job(self) -> tuple[bool, int]:
        """Sort key within the job: workers first, the highest index first, then the master."""
        index = _LAST if self.placements else self.members[-1].index
        is_master = bool(self.members) and self.members[-1].role == ROLE_MASTER
        return is_master, -index


def victim_order(entry: Entry, *, whole: bool = False) -> tuple[int, float, int]:
    """Sort key: jobs of lower priority lose pods first, then those that lose no work by a change of size (170), then
    younger ones. If a `whole` job is preempted, the cost of a change of size does not count: in any mode the job loses
    its work since the last checkpoint.
    """
    demand = entry.demand
    return demand.priority, 0.0 if whole else demand.resize_cost, -entry.position


def unit_order(unit: VictimUnit, check: PreemptionCheck) -> tuple[float, ...]:
    """Sort key: cheap kinds first, then the team with the highest share value, then the weakest."""
    order = victim_order(unit.entry, whole=unit.whole)
    return unit.kind, -check.share_value(unit.entry.account), *order, *unit.order_in_job


class Candidates:
    """The units that a preemptor which lacks `need` GPUs may preempt; with `ends_jobs`, also whole running jobs."""

    def __init__(
        self, state: AllocationState, preemptor: Entry, need: int, *, growing: bool = False, ends_jobs: bool = True
    ) -> None:
        self._state, self._preemptor, self._growing, self._ends_jobs = state, preemptor, growing, ends_jobs
        check, reclaiming = self.check(need), state.inputs.reclaiming
        if reclaiming and not growing and not check.is_within_guarantees:
            # The preemptor's own team may release these GPUs first. Then the team uses less by as many (189).
            gpus = preemptible_gpus_of_team(state, preemptor)
            check.count_victims(check.preemptor, pods=gpus, not_yet_held=0)
        self._victim_accounts = check.victim_accounts(state.queues.by_account) if reclaiming else frozenset[Account]()

    @property
    def search_kind(self) -> tuple[bool, bool]:
        """Whether the GPUs are for growth, and whether whole running jobs are candidates."""
        return self._growing, self._ends_jobs

    def check(self, need: int) -> PreemptionCheck:
        """A new check for a preemptor that lacks `need` GPUs."""
        return PreemptionCheck(self._preemptor.account, need, growing=self._growing)

    def may_exist(self) -> bool:
        """Whether there may be a candidate. False is certain, True is not."""
        if self._victim_accounts:
            return True
        return not self._growing and _team_has_preemptible_gpus(self._state, self._preemptor)

    def nodes_with_victims(self, victim_jobs: Iterable[Entry]) -> set[int]:
        """The nodes on which at least one unit may be preempted, if only the units' accounts are examined."""
        own_team = () if self._growing else self._state.queues.by_team[self._preemptor.team]
        able = (*victim_jobs, *own_team)
        return {node for entry in able if entry.size and self._has_candidates(entry) for node in entry.occupied_nodes}

    def weakest_first(self, victim_jobs: Iterable[Entry], check: PreemptionCheck, gpus: int) -> list[Entry]:
        """The jobs that can spare a worker with that many GPUs, in the order of preemption: those of other teams, or if
        there is none of these, those of the preemptor's own team.
        """
        jobs = [entry for entry in victim_jobs if not self._in_team(entry)] or self._running_in_team(gpus)
        able = [
            entry
            for entry in jobs
            if entry.worker.gpus >= gpus and entry.spare_workers and entry.has_minimum and self._has_candidates(entry)
        ]
        return sorted(able, key=lambda entry: (-check.share_value(entry.account), victim_order(entry)))

    def _running_in_team(self, gpus: int) -> list[Entry]:
        """The other jobs of the preemptor's team. The list is empty for growth, and if something cheaper than a running
        worker of these jobs may be preempted: a worker of the preemptor, a planned pod, a placement set aside, or, if
        no `gpus` are lacking, a pod without GPUs.
        """
        preemptor = self._preemptor
        if self._growing or gpus <= 0 or (preemptor.kept and not preemptor.has_master):
            return []
        others = [entry for entry in self._state.queues.by_team[preemptor.team] if entry is not preemptor]
        cheaper = (one for one in others if one.placements and (one.spare_workers or one.has_placements_set_aside))
        return [] if any(cheaper) else others

    def victim_jobs(self, check: PreemptionCheck) -> list[Entry]:
        """The jobs from whose accounts at least one GPU may be taken.

        If not even one GPU may be taken from an account, no unit may be. While many jobs wait for planned pods, this
        holds for most teams, and this question about their accounts saves a look at each unit (185). A pod without
        GPUs is a unit of 0 GPUs.
        """
        able, answers = list[Entry](), dict[tuple[Account, int, bool], bool]()
        for account in self._victim_accounts:
            if not check.allows(account, 0, not_yet_held=True):
                continue  # then no unit of the account may be preempted
            for entry in self._state.queues.by_account[account]:
                question = account, min(1, entry.master.gpus, entry.worker.gpus), bool(entry.placements)
                if question not in answers:
                    answers[question] = check.allows(account, question[1], not_yet_held=question[2])
                if answers[question]:
                    able.append(entry)
        return able

    def on_node(self, node: int) -> Iterator[VictimUnit]:
        """The units on one node that may be preempted, each judged alone; the caller judges them together."""
        here: dict[Entry, tuple[list[Member], list[Placement]]] = {}
        for entry, member in self._state.residents[node].values():
            here.setdefault(entry, ([], []))[0].append(member)
        for entry, placement in self._state.placed[node]:
            here.setdefault(entry, ([], []))[1].append(placement)
        for entry, (members, placements) in here.items():
            if self._has_candidates(entry):
                yield from self._units(entry, release_order(members), placements)

    def below_account(self, account: Account) -> list[Entry]:
        """The jobs with candidates that are charged to that account or to one below it."""
        charged = (entry for entry in self._state.queues.entries if entry.account and account in entry.account.path)
        return [entry for entry in charged if entry.size and self._has_candidates(entry)]

    def single_pods(self, entry: Entry) -> list[VictimUnit]:
        """The job's pods that are preempted one by one, on all nodes, in the order of preemption."""
        return self._single_pods(entry, release_order(entry.kept), entry.placements)

    def whole_job(self, entry: Entry) -> VictimUnit | None:
        """The unit of all pods of the job, if it may be preempted."""
        units = self._units(entry, release_order(entry.kept), entry.placements)
        return next((unit for unit in units if unit.whole), None)

    def may_be_preempted(self, unit: VictimUnit, check: PreemptionCheck) -> bool:
        """Whether the preemptor may take the unit beside the units that it has taken so far."""
        if self._in_team(unit.entry):
            return True
        account, ends_job = unit.entry.account, unit.kind is UnitKind.JOB
        assert account is not None, "a job without an account is a candidate in its own team only"
        return check.allows(account, unit.gpus, not_yet_held=unit.not_yet_held, ends_job=ends_job)

    def _in_team(self, entry: Entry) -> bool:
        return entry.team == self._preemptor.team

    def _has_candidates(self, entry: Entry) -> bool:
        """Whether any pod of that job may be preempted."""
        preemptor = self._preemptor
        if entry is preemptor:
            return not self._growing
        if entry.is_foreign_pod:
            return bool(entry.placements) and not entry.promised_node and entry.account in self._victim_accounts
        if not entry.demand.preemptible or (preemptor.is_foreign_pod and not self._state.inputs.reclaiming):
            return False
        pod = preemptor.foreign_pod
        if pod and pod.preempts and pod.demand.priority > entry.demand.shape.lowest_priority:
            return False  # kube-scheduler itself preempts it
        if not self._state.may_preempt_from(preemptor, entry):
            return False
        if self._in_team(entry):
            return not self._growing
        return entry.account in self._victim_accounts

    def _units(self, entry: Entry, members: Sequence[Member], placements: Sequence[Placement]) -> Iterator[VictimUnit]:
        """The units of a job among these pods, in the order of preemption."""
        singles = self._single_pods(entry, members, placements)
        yield from singles
        if whole := self._whole_job(entry, members, placements, besides=len(singles)):
            yield whole

    def _single_pods(
        self, entry: Entry, members: Sequence[Member], placements: Sequence[Placement]
    ) -> list[VictimUnit]:
        """The units that are preempted one by one. Once the first unit is preempted, this returns the others."""
        planned = [placement for placement in placements if placement.role == ROLE_WORKER]
        workers = [member for member in members if member.role != ROLE_MASTER]
        if entry is self._preemptor:
            spare = max(0, entry.spare_workers - len(planned)) if not entry.has_master else 0
            return _singles(UnitKind.OWN, entry, workers[:spare], ())
        if entry.has_minimum:
            return _singles(UnitKind.SURPLUS, entry, workers, planned)[: entry.spare_workers]
        if entry.has_placements_set_aside:
            may_be_preempted = not self._in_team(entry) or entry.demand.priority < self._preemptor.demand.priority
            return _singles(UnitKind.SET_ASIDE, entry, (), placements) if may_be_preempted else []
        return [] if entry.admitted else _singles(UnitKind.INCOMPLETE, entry, workers, planned)

    def _whole_job(
        self, entry: Entry, members: Sequence[Member], placements: Sequence[Placement], *, besides: int
    ) -> VictimUnit | None:
        """The unit of all pods of the job; None if all of these pods can be preempted one by one."""
        if entry is self._preemptor or besides >= len(members) + len(placements):
            return None
        if entry.has_minimum:
            kind, may_be_preempted = UnitKind.JOB, self._ends_jobs and self._may_be_preempted_whole(entry)
        else:
            kind = UnitKind.INCOMPLETE_JOB
            may_be_preempted = not (entry.has_placements_set_aside or entry.admitted)
        if not may_be_preempted:
            return None
        held = sum(member.gpus for member in entry.kept)
        coming = sum(entry.requirements(placement.role).gpus for placement in entry.placements)
        return VictimUnit(kind, entry, tuple(members), tuple(placements), held + coming, held)

    def _may_be_preempted_whole(self, entry: Entry) -> bool:
        if self._in_team(entry):
            return _may_be_preempted_by(self._state, entry, self._preemptor)
        if not self._state.may_preempt_whole_jobs(self._preemptor):
            return False
        least = entry.account.team.min_runtime_seconds if entry.account and entry.kept else 0
        return not entry.demand.running_since or self._state.now >= entry.demand.running_since + least


def preemptible_gpus(state: AllocationState, entry: Entry, preemptor: Entry) -> int:
    """The GPUs that can be preempted from a job for the minimum of another job of its team, or for its own minimum."""
    if entry is preemptor:
        return 0 if entry.has_master else entry.spare_workers * entry.worker.gpus
    if not entry.demand.preemptible or not entry.size or not state.may_preempt_from(preemptor, entry):
        return 0
    if entry.has_placements_set_aside and entry.demand.priority >= preemptor.demand.priority:
        return 0
    if not entry.has_minimum:
        return 0 if entry.admitted else entry.gpus
    return entry.gpus if _may_be_preempted_by(state, entry, preemptor) else entry.spare_workers * entry.worker.gpus


def preemptible_gpus_of_team(state: AllocationState, preemptor: Entry) -> int:
    """The GPUs that can be preempted from all jobs of the preemptor's team for the preemptor's minimum."""
    account = preemptor.account
    assert account is not None, "called for preemptors that are charged for GPUs"
    key = _within_team_key(state, preemptor)
    known = state.this_pass.answers.get(Question.PREEMPTIBLE_GPUS, key)
    if known is None:
        known = sum(
            preemptible_gpus(state, entry, preemptor) for entry in state.queues.by_account[account] if entry.size
        )
        state.this_pass.answers.put(Question.PREEMPTIBLE_GPUS, key, known)
    return known


def _team_has_preemptible_gpus(state: AllocationState, preemptor: Entry) -> bool:
    """Whether anything can be preempted from a job of the preemptor's team for the preemptor's minimum."""
    key = _within_team_key(state, preemptor)
    known = state.this_pass.answers.get(Question.ANY_PREEMPTIBLE, key)
    if known is None:
        known = any(preemptible_gpus(state, entry, preemptor) for entry in state.queues.by_team[preemptor.team])
        state.this_pass.answers.put(Question.ANY_PREEMPTIBLE, key, known)
    return bool(known)


def _within_team_key(state: AllocationState, preemptor: Entry) -> Hashable:
    """The key of preemptors for which `preemptible_gpus` is the same. The shapes of their pods do not matter: a
    thousand waiting jobs of one team may have as many shapes.
    """
    if preemptor.size:
        return preemptor
    rights = state.may_preempt_whole_jobs(preemptor), state.may_preempt_in_team(preemptor)
    return preemptor.team, preemptor.account, preemptor.demand.priority, rights


def _may_be_preempted_by(state: AllocationState, entry: Entry, preemptor: Entry) -> bool:
    """Whether a whole job may be preempted for another job of its team: the other job has a higher priority, or an
    equal one and the first job's turn is over.
    """
    if not state.may_preempt_whole_jobs(preemptor):
        return False
    if entry.demand.priority != preemptor.demand.priority:
        return entry.demand.priority < preemptor.demand.priority
    quantum = entry.account.team.quantum_seconds if entry.account else None
    if quantum is None or not entry.demand.running_since or preemptor.kept:
        return False
    return state.now >= entry.demand.running_since + quantum


def _singles(
    kind: UnitKind, entry: Entry, members: Iterable[Member], placements: Iterable[Placement]
) -> list[VictimUnit]:
    """A unit for each of these pods, the planned ones first."""
    planned = [VictimUnit(kind, entry, (), (one,), entry.requirements(one.role).gpus, 0) for one in placements]
    return planned + [VictimUnit(kind, entry, (member,), (), member.gpus, member.gpus) for member in members]


def preempt_units(state: AllocationState, preemptor: Entry, units: Iterable[VictimUnit]) -> None:
    for unit in units:
        state.victims.note(unit.entry, unit.entry.kept if unit.whole else unit.members, preemptor)
        if unit.whole:
            state.preempt_job(unit.entry)
            continue
        for placement in unit.placements:
            state.unplace(unit.entry, placement)
        for member in unit.members:
            state.release(unit.entry, member)
