"""Makes and begins the plan of each job, and renews the messages on why jobs are not bigger.

Thousands of jobs may change at once. So each pass makes plans for a limited number of jobs. The next passes follow at
once, and make plans for the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from math import inf

from elastic_api.status import ConditionType, JobStatus
from elastic_operator.cluster import objects
from elastic_operator.loop.reason_messages import ReasonMessages
from elastic_operator.loop.reclaim.eviction_gate import EvictionGate
from elastic_operator.loop.store_view import StoreView
from elastic_operator.loop.writes.dispatch import NOT_FRESH_SECONDS, Dispatcher
from elastic_operator.loop.writes.failed_writes import FailedWrites
from elastic_operator.loop.writes.master import changed_route
from elastic_operator.metrics import Metrics
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.decisions import Plan
from elastic_operator.plan.facts.job import FaultStage, Job
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.quarantined import plan_in_quarantine
from elastic_operator.plan.job.reconcile import reconcile
from elastic_operator.plan.last_plans import LastPlan
from elastic_operator.plan.planner import PassDecisions, Planner
from elastic_operator.pods.launcher_target import target_of
from elastic_operator.pods.master_poller import MasterPoller
from elastic_operator.pods.survivor_logs import SurvivorLogs

log = logging.getLogger(__name__)

RESYNC_SECONDS = 600.0
"""The operator decides on every job again at least this often, even without an event (91). Other controllers rely on
their watches alone. A resync every 120 s cost 3.5 % of a core among 10,000 pods.
"""
MAX_PLANS = 500
"""The most plans that one pass makes. The next pass follows at once, and makes more."""
FIRST_PLANS = 50
"""The first pass of a new leader makes at most this many plans besides those of jobs that get or lose pods, because
their writes begin when the pass has ended (211).
"""


@dataclass(kw_only=True, eq=False, repr=False)
class Reconciler:
    """Makes each job's plan, and has it carried out."""

    planner: Planner
    view: StoreView
    dispatcher: Dispatcher
    failed_writes: FailedWrites
    metrics: Metrics
    eviction_gate: EvictionGate
    poller: MasterPoller
    survivors: SurvivorLogs
    wake: Callable[[], None]
    """Called when another pass is needed."""
    on_plan: Callable[[LastPlan], None]
    """Called with each new plan."""
    with_forecast: Callable[[Observation, JobStatus], JobStatus]
    """Adds to the status of a plan the job's place in line, or the answer to the job's question."""

    def __post_init__(self) -> None:
        self._stores, self._quarantine = self.view.reader.stores, self.view.reader.quarantine
        self.reason_messages = ReasonMessages()

    async def stop(self) -> None:
        """Cancel the plans under way, and the other work for jobs."""
        await self.dispatcher.stop()
        await self.poller.stop()
        await self.survivors.stop()

    def next_due_monotonic(self, now: float) -> float:
        """When (monotonic, as `now`) a plan is due, or a new message on why a job is not bigger."""
        return min(
            self.catch_up_at_monotonic(now),
            self.planner.plans.next_due_monotonic(),
            self.reason_messages.next_due_monotonic(),
        )

    def catch_up_at_monotonic(self, now: float) -> float:
        """When (monotonic, as `now`) the first plan that is outdated can be made and begun; infinity if there is none.
        After a pass, these are the plans that it had no time for.
        """
        return min((now + self.dispatcher.wait(uid, now) for uid in self.planner.plans.outdated), default=inf)

    def _quarantine_job(self, uid: str, error: Exception) -> Observation | None:
        """Quarantine the job after an error at its grant. Returns its observation; None if the job is deleted."""
        return self.planner.jobs.quarantine(self.view, uid, error, stage=FaultStage.GRANT)

    # -- plans ---------------------------------------------------------------------------------------------------------

    def plan_all(self, decisions: PassDecisions, now: float) -> None:
        """Make the missing plans, as many as one pass has time for.

        Jobs that get or lose pods come first, because a new leader makes plans for thousands of jobs. Jobs that back
        off come last: thousands of them would otherwise cause pass after pass, and use up each pass's plans. If jobs
        remain whose plans can be begun, the next pass follows at once. While a plan is carried out, no other plan can
        be begun for its job. The operator decides on the job again when the plan has ended.
        """
        all_obs = decisions.obs
        needed = self.planner.may_need_plans(decisions, time.monotonic())
        later, allocation = self.failed_writes.backing_off(time.monotonic()), decisions.allocation
        idle = [uid for uid in needed if not self.dispatcher.busy(uid)]
        acting = {uid for uid in idle if _gets_or_loses_pods(uid, allocation)}
        uids = iter(sorted(idle, key=lambda uid: (uid in later, uid not in acting)))
        is_first = not self.planner.plans.all()
        most = min(MAX_PLANS, len(acting) + FIRST_PLANS) if is_first else MAX_PLANS
        for uid in islice(uids, most):
            self._plan_or_quarantine(all_obs[uid], allocation, now)
        self.planner.plans.postpone(uids)
        self.metrics.reclaim_unanswered.set(self.eviction_gate.awaiting_dry_runs)

    def _plan_or_quarantine(self, obs: Observation, allocation: Allocation, now: float) -> None:
        """Make and begin the job's plan. An error quarantines the job."""
        try:
            if not obs.job.quarantine:
                self._plan(obs, allocation, now)
        except Exception as error:  # noqa: BLE001 - any error is handled as an error of this job only
            quarantined = self._quarantine_job(obs.job.uid, error)
            assert quarantined is not None, "a pass awaits nothing, so the job is still there"
            obs = quarantined
        if obs.job.quarantine:
            self._leave_in_quarantine(obs, allocation, now)

    def _leave_in_quarantine(self, obs: Observation, allocation: Allocation, now: float) -> None:
        """Release the job's pods if others are entitled to their GPUs. The status says why nothing else is done."""
        job, body = obs.job, self._stores.jobs.get(obs.job.uid)
        assert body is not None, "a pass awaits nothing, so the job is still there"
        try:
            assignment = allocation.find_assignment(job.uid)
            deferred = self.eviction_gate.defer_release(job.uid)
            release = frozenset(assignment.release) - deferred.pods if assignment is not None else ()
            plan = plan_in_quarantine(job, release, now)
            waits, wait = bool(deferred.pods), NOT_FRESH_SECONDS if deferred.pods else RESYNC_SECONDS
            # A status that cannot be read is kept.
            is_readable = job.status != JobStatus() or not body.status.unpack()
            if is_readable and self._quarantine.begin_status(job.uid, job.generation):
                wait = min(self._begin(body, job, plan, evicts=bool(plan.deletes)), wait if waits else inf)
            status = plan.status
        except Exception:
            log.exception("planning the status of a quarantined job failed, too job=%s", job.key)
            assignment, wait, status = None, RESYNC_SECONDS, job.status
        self._note(LastPlan(obs, assignment, self._due_after(wait, job), status))

    def _plan(self, obs: Observation, allocation: Allocation, now: float) -> None:
        """Make and begin the job's plan."""
        job = obs.job
        grant, deferred = allocation.get(job.uid), self.eviction_gate.defer_release(job.uid)
        assignment = grant.assignment if grant is not None else None
        if grant is not None:
            grant = deferred.applied_to(grant, obs.status, job.generation)
        plan = reconcile(obs, grant, now=now)
        plan = replace(plan, route=changed_route(self._stores, job, plan.route))
        plan = replace(plan, status=self.with_forecast(obs, plan.status))
        body = self._stores.jobs.get(job.uid)
        assert body is not None, "a pass awaits nothing, so the job is still there"
        wait = self._begin(body, job, plan, evicts=grant is not None and bool(grant.assignment.release))
        wait = min(wait, NOT_FRESH_SECONDS if grant is not None and deferred.pods else inf)
        again = min(wait, plan.requeue_at - now)
        self._note(LastPlan(obs, assignment, self._due_after(again, job), plan.status))
        self.poller.follow(job.uid, target_of(obs, plan, now))
        self.survivors.follow(job.uid, job.namespace, obs.survivors)

    def _begin(self, body: objects.CustomObject, job: Job, plan: Plan, *, evicts: bool) -> float:
        """Begin the plan, if it `evicts` pods behind the eviction gate; returns as `Dispatcher.start`."""
        gate = self.eviction_gate
        return self.dispatcher.start(body, job, plan, lambda: gate.begin(job.uid, plan) if evicts else None)

    def _due_after(self, seconds: float, job: Job) -> float:
        """When (monotonic) the job is planned again: in that many seconds, or at the end of a plan under way."""
        return inf if self.dispatcher.busy(job.uid) else time.monotonic() + seconds

    def _note(self, planned: LastPlan) -> None:
        """Note a plan that was made and begun: its status says why the job is not bigger, and metrics show the plan."""
        self.planner.plans.note(planned)
        self.reason_messages.note_planned(planned.obs.job.uid, allocated=planned.assignment is not None)
        try:
            self.on_plan(planned)
        except Exception:  # an error in the metrics of one job stops no pass
            log.exception("cannot compute the metrics of a job job=%s", planned.obs.job.key)

    # -- why a job is not bigger ---------------------------------------------------------------------------------------

    def renew_messages(self, decisions: PassDecisions, now: float, *, in_storm: bool = False) -> None:
        """Renew the messages of some of the jobs whose message may be stale. A job's plan renews its message, too.

        `in_storm`: passes have woken each other for a while.
        """
        allocation = decisions.allocation
        for uid in self.reason_messages.take(in_storm=in_storm):
            previous = self.planner.plans.last_plan(uid)
            # An unchanged observation is the identical object (23).
            if previous is None or previous.obs is not decisions.obs.get(uid) or previous.obs.job.quarantine:
                continue
            if uid not in allocation or self.dispatcher.busy(uid):
                continue
            try:
                condition = previous.obs.job.status.condition(ConditionType.FULL_SIZE)
                if condition is None or (condition.reason, condition.message) != allocation[uid].size_reason:
                    self._plan(previous.obs, allocation, now)
            except Exception as error:  # noqa: BLE001 - any error is handled as an error of this job only
                self._quarantine_job(uid, error)
                self.wake()


def _gets_or_loses_pods(uid: str, allocation: Allocation) -> bool:
    """Whether the job gets or loses pods by the allocation."""
    try:
        assignment = allocation.find_assignment(uid)
    except Exception:  # noqa: BLE001 - it is raised again where the job's plan is made, and handled there
        return True
    return assignment is not None and bool(assignment.create or assignment.release)
