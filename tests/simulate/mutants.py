"""Mutants: operators that break one rule each. Most of them get false inputs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from elastic_operator.loop import reconciler
from elastic_operator.loop.reclaim.nominator import Nominator
from elastic_operator.plan import observed_jobs, planner
from elastic_operator.plan.allocation import allocate as allocating
from elastic_operator.plan.allocation import queues, rounds, state
from elastic_operator.plan.allocation.accounts import Account, diverging_paths
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.preemption import candidates, preempt
from elastic_operator.plan.allocation.preemption.candidates import Candidates, VictimUnit, preempt_units
from elastic_operator.plan.allocation.preemption.rules import PreemptionCheck
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts import pod_order
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.decisions import Nomination, Plan
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.plan.facts.team import Quota, Team
from elastic_operator.plan.job import reconcile
from elastic_operator.plan.job.quarantined import plan_in_quarantine
from elastic_operator.plan.policies.resolve import Policy
from elastic_operator.quarantine import Quarantine
from elastic_operator.read.foreign.reservation import Reservation
from elastic_operator.read.nodes import Nodes
from elastic_operator.read.policies import Policies
from tests.simulate.facts import GPU

Mutant = Callable[[], Any]
"""Makes a context in which the rule is broken."""


# -- lies about the cluster ------------------------------------------------------------------------------------------


def _with_inputs(lie: Callable[[AllocationInputs], AllocationInputs]) -> Mutant:
    """The allocator is told what `lie` makes of each input."""

    @contextmanager
    def broken() -> Iterator[None]:
        honest = allocating.Allocator.allocate

        def misled(self: allocating.Allocator, inputs: AllocationInputs) -> Any:
            return honest(self, lie(inputs))

        with patch.object(allocating.Allocator, "allocate", misled):
            yield

    return broken


def _nodes(lie: Callable[[Node], Node]) -> Mutant:
    return _with_inputs(lambda inputs: replace(inputs, nodes=tuple(map(lie, inputs.nodes))))


def _use(of: str, **lie: object) -> Mutant:
    """A lie about the use `of` each node."""
    return _nodes(lambda node: replace(node, **{of: replace(getattr(node, of), **lie)}))


def _jobs(lie: Callable[[JobDemand], JobDemand]) -> Mutant:
    return _with_inputs(lambda inputs: replace(inputs, jobs=tuple(map(lie, inputs.jobs))))


def _with_teams(inputs: AllocationInputs, listed: Iterable[Team]) -> AllocationInputs:
    return replace(inputs, teams=replace(inputs.teams, listed=tuple(listed)))


def _teams(lie: Callable[[Team], Team]) -> Mutant:
    return _with_inputs(lambda inputs: _with_teams(inputs, map(lie, inputs.teams.listed)))


def _requests(lie: Callable[[ForeignPod], ForeignPod]) -> Mutant:
    return _with_inputs(lambda inputs: replace(inputs, foreign_pods=tuple(map(lie, inputs.foreign_pods))))


def _quotas(lie: Callable[[Quota], Quota], *, parents: bool = True, others: bool = True) -> Mutant:
    def changed(inputs: AllocationInputs) -> AllocationInputs:
        above = {team.parent for team in inputs.teams.listed}
        wanted = {t.name for t in inputs.teams.listed if (parents if t.name in above else others)}
        teams = (
            replace(t, quotas={name: lie(q) for name, q in t.quotas.items()}) if t.name in wanted else t
            for t in inputs.teams.listed
        )
        return _with_teams(inputs, teams)

    return _with_inputs(changed)


def _without_guarantee(quota: Quota) -> Quota:
    return replace(quota, guaranteed=0, borrow_limit=quota.limit)


def _without_the_default_policy(inputs: AllocationInputs) -> AllocationInputs:
    return _with_teams(inputs, (team for team in inputs.teams.listed if team.has_policy))


def _as_old_as_they_come(inputs: AllocationInputs) -> AllocationInputs:
    jobs = (replace(job, created=float(age)) for age, job in enumerate(inputs.jobs))
    return replace(inputs, jobs=tuple(jobs))


def _bare(shape: PodShape) -> PodShape:
    return replace(shape, requests={GPU: shape.requests[GPU], "pods": 1})


def _by_gpus_alone(job: JobDemand) -> JobDemand:
    shape = job.shape
    worker = _bare(shape.worker)
    master = worker if shape.master is shape.worker else _bare(shape.master)
    return replace(job, shape=replace(shape, master=master, worker=worker))


def _of_any_size(job: JobDemand) -> JobDemand:
    return replace(job, sizes=tuple(range(job.sizes[0], job.sizes[-1] + 2)) if job.sizes else ())


# -- rules turned round ----------------------------------------------------------------------------------------------


def _instead(*swaps: tuple[Any, str, Any]) -> Mutant:
    """These attributes are replaced."""

    @contextmanager
    def broken() -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, new in swaps:
                stack.enter_context(patch.object(target, name, new))
            yield

    return broken


def _master_goes_first(member: Any) -> tuple[bool, int, str]:
    return member.role == "master", member.index, member.uid


def _one_too_many(state: AllocationState, preemptor: Entry, units: Iterable[VictimUnit]) -> None:
    """Beside the victims, one more worker of a victim job."""
    units = list(units)
    preempt_units(state, preemptor, units)
    entry = units[0].entry
    if entry.spare_workers and entry.kept:
        state.release(entry, entry.kept[-1])


def _always(*_args: Any, **_more: Any) -> bool:
    return True


def _only_for_guarantees(check: PreemptionCheck, victim_account: Account, _gpus: int, **_more: Any) -> bool:
    ours, theirs = diverging_paths(check.preemptor, victim_account)
    within = all(account.used + check.need <= account.guaranteed for account in ours)
    return within and all(account.used > account.guaranteed for account in theirs)


def _nothing_is_done(*_args: Any) -> None:
    return None


# -- what is done for foreign pods -----------------------------------------------------------------------------------


class _Unasked(PreemptionCheck):
    """May take whatever there is."""

    def allows(self, *_args: Any, **_more: Any) -> bool:
        """Always."""
        return True

    def victim_accounts(self, accounts: Iterable[Account]) -> frozenset[Account]:
        """Everybody."""
        return frozenset(accounts) - {self.preemptor}

    def copy(self) -> PreemptionCheck:
        """Another one that may."""
        return _Unasked(self.preemptor, self.need, growing=self.growing)


def _foreign_pods_are_not_asked(candidates: Candidates, need: int) -> PreemptionCheck:
    kind = _Unasked if candidates._preemptor.is_foreign_pod else PreemptionCheck
    return kind(candidates._preemptor.account, need, growing=candidates._growing)


def _nominates_later(nominator: Nominator, job_uid: str) -> None:
    """The victims go at once."""

    async def later(nomination: Nomination) -> bool:
        for _ in range(20):
            await asyncio.sleep(0)
        return await nominator._nominate(nomination)

    for nomination in nominator._by_victim_job.get(job_uid, ()):
        if not nomination.reserved and nomination.uid not in nominator._writing:
            nominator._start(nomination.uid, later(nomination))


def _without_promises(inputs: AllocationInputs) -> AllocationInputs:
    return replace(inputs, foreign_pods=tuple(request for request in inputs.foreign_pods if not request.promised_node))


def _holds_for_ever(reservation: Reservation, _now: float) -> bool:
    return bool(reservation.node)


# -- an operator of which one object's errors are not kept from the others ------------------------------------------


def _raises(_quarantine: Quarantine, _kind: str, _uid: str, _name: str, error: Exception, **_more: Any) -> Any:
    raise error


def _unguarded(_quarantine: Quarantine, _kind: str, _uid: str, _name: str, work: Callable[[], Any]) -> Any:
    return work()


def _never_over(quarantine: Quarantine, uid: str, version: object = None) -> Any:
    known = quarantine._faults.get(uid)
    return known if known is not None and known.version == version else None


def _untold(job: Job, release: Collection[str], now: float) -> Plan:
    return replace(plan_in_quarantine(job, release, now), status=job.status)


def _without_spec(_policies: Policies, policy: Policy) -> Policy:
    return replace(policy, spec=None)


GUARDS: Mapping[str, Mutant] = {
    "an error at one object is everybody's": _instead((Quarantine, "quarantine", _raises)),
    "an error at one node or waiting pod is everybody's": _instead((Quarantine, "attempt", _unguarded)),
    "it is not found out for whom an allocation raises": _instead((planner.Planner, "_blame", _nothing_is_done)),
    "who is quarantined is never tried again": _instead((Quarantine, "_left_out", _never_over)),
    "a job that is quarantined keeps its GPUs from all others": _instead(
        (observed_jobs, "demand_in_quarantine", _nothing_is_done)
    ),
    "a job that is quarantined is given more": _instead(
        (observed_jobs, "demand_in_quarantine", lambda last, _pods: last)
    ),
    "a job that is quarantined does not say so": _instead((reconciler, "plan_in_quarantine", _untold)),
    "a policy that is quarantined holds no more": _instead((Policies, "_stand_in", _without_spec)),
    "pods on a node that is quarantined count as nothing": _instead((Nodes, "_closed", _nothing_is_done)),
}
"""Those that only show where an operator has errors of its own."""

MUTANTS: Mapping[str, Mutant] = {
    "pods that terminate count as gone": _use("leaving", requests={}),
    "pods of others count as nothing": _use("used", requests={}),
    "cordoned nodes are used": _nodes(lambda node: replace(node, unschedulable=False)),
    "nodes that are not Ready are used": _nodes(lambda node: replace(node, ready=True)),
    "only GPUs must fit": _jobs(_by_gpus_alone),
    "a team's limit is ignored": _quotas(lambda quota: replace(quota, borrow_limit=None), parents=False),
    "a parent's limit is ignored": _quotas(lambda quota: replace(quota, borrow_limit=None), others=False),
    "pods of others do not count for a limit": _use("used", gpus_by_namespace={}),
    "pods that terminate do not count for a limit": _use("leaving", gpus_by_namespace={}),
    "guarantees are ignored": _quotas(_without_guarantee),
    "weights are ignored": _quotas(lambda quota: replace(quota, weight=1)),
    "the tiers of teams are ignored": _teams(lambda team: replace(team, priority=0)),
    "namespaces without a policy are teams of their own": _with_inputs(_without_the_default_policy),
    "nothing is taken for a fair share": _instead((PreemptionCheck, "allows", _only_for_guarantees)),
    "jobs that are not preemptible are": _jobs(lambda job: replace(job, preemptible=True)),
    "any size will do": _jobs(_of_any_size),
    "a job starts with less than its minimum": _instead((reconcile, "_can_start", _always)),
    "the order of the input decides": _with_inputs(_as_old_as_they_come),
    "everybody may take from everybody": _instead((PreemptionCheck, "allows", _always)),
    "whole jobs are taken whatever their priority": _instead(
        (candidates.Candidates, "_may_be_preempted_whole", _always)
    ),
    "more is taken than is needed": _instead(
        (preempt, "preempt_units", _one_too_many), (rounds, "fill_back", _nothing_is_done)
    ),
    "nothing is taken for foreign pods": _with_inputs(lambda inputs: replace(inputs, foreign_pods=())),
    "foreign pods need no right": _instead((Candidates, "check", _foreign_pods_are_not_asked)),
    "foreign pods need only GPUs": _requests(lambda request: replace(request, demand=_by_gpus_alone(request.demand))),
    "victims go before the pod is nominated": _instead((Nominator, "begin_for", _nominates_later)),
    "victims go and nobody is nominated": _instead((Nominator, "begin_for", _nothing_is_done)),
    "a place that is kept is given away": _with_inputs(_without_promises),
    "a nomination by the scheduler is none": _requests(lambda request: replace(request, nominated="")),
    "the scheduler's own preemption is done twice": _requests(lambda request: replace(request, preempts=False)),
    "a place is kept for ever": _instead((Reservation, "is_in_force", _holds_for_ever)),
    "masters go first": _instead(
        *((module, "keep_order", _master_goes_first) for module in (queues, state, pod_order))
    ),
    **GUARDS,
}
"""What each gets wrong, in words."""
