"""Makes the plan of each job and starts on it, and says why a job is not bigger.

Thousands of jobs may change at once: plans are made for some jobs in each pass, for the others in the next ones, which
follow at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf

from elastic_api.refusal import pod_blocked
from elastic_api.status import ConditionType, JobStatus
from elastic_operator.cluster.errors import PodRefused
from elastic_operator.loop.reclaim.making_way import MakingWay
from elastic_operator.loop.retelling import Retelling
from elastic_operator.loop.stored_world import StoredWorld
from elastic_operator.loop.writes.dispatch import NOT_FRESH_SECONDS, Dispatcher
from elastic_operator.loop.writes.master import changed_route
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.decisions import Event
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job_memory import Planned
from elastic_operator.plan.planner import Decisions, Observed, Planner
from elastic_operator.pods.launcher_target import target_of
from elastic_operator.pods.master_poller import MasterPoller
from elastic_operator.pods.survivor_logs import SurvivorLogs

log = logging.getLogger(__name__)

RESYNC_SECONDS = 120.0
"""Every job is decided on again at least this often, whatever the watches say."""
MOST_PLANS = 500
"""So many plans are made in a pass; the next one, which follows at once, goes on."""


class Reconciler:
    """Has each job's plan carried out.

    Args:
        wake: Called when another pass is needed.
        planned: Called with each plan that was made.
        told: The status of a plan, with what is to be told of the future.
    """

    def __init__(
        self,
        planner: Planner,
        world: StoredWorld,
        dispatcher: Dispatcher,
        making_way: MakingWay,
        *,
        poller: MasterPoller,
        survivors: SurvivorLogs,
        wake: Callable[[], None],
        planned: Callable[[Planned], None],
        told: Callable[[Observation, JobStatus], JobStatus],
    ) -> None:
        self._planner, self._world, self.dispatcher, self.making_way = planner, world, dispatcher, making_way
        self._stores, self._bulkhead = world.reader.stores, world.reader.bulkhead
        self._poller, self._survivors = poller, survivors
        self._wake, self._planned, self._told = wake, planned, told
        self._behind: list[str] = []
        """Jobs for whose plans there was no time in the last pass: they come first in the next one."""
        self.retelling = Retelling()

    async def stop(self) -> None:
        """Cancel the plans under way, and what else is done for jobs."""
        await self.dispatcher.stop()
        await self._poller.stop()
        await self._survivors.stop()

    def next_due(self, now: float) -> float:
        """When (monotonic, as `now`) a plan is due, or a word on why a job is not bigger."""
        return min(self.goes_on_at(now), self._planner.next_due(), self.retelling.next_due())

    def goes_on_at(self, now: float) -> float:
        """When (monotonic, as `now`) one can start on a job for whose plan there was no time; infinity without any."""
        return min((now + self.dispatcher.wait(uid, now) for uid in self._behind), default=inf)

    # -- what becomes of plans -----------------------------------------------------------------------------------------

    def refused(self, job: Job, error: PodRefused, needed: bool) -> None:
        """Pods for which others were to go would be refused: trouble of the job, if it needs them for its minimum."""
        if needed:
            self.dispatcher.note(job, error)
            return
        text = f"Nobody makes way for it to grow: {pod_blocked(error.error.message)}"
        self.dispatcher.actor.tell(job, [Event("ScaleUpBlocked", text, "Warning")])

    def _set_aside(self, uid: str, error: Exception) -> Observation | None:
        """That job has raised at what it was given. Returns how it is observed meanwhile; None if it is gone."""
        return self._planner.set_aside(self._world, uid, error, given=True)

    # -- plans ---------------------------------------------------------------------------------------------------------

    def plan_all(self, decisions: Decisions, now: float) -> None:
        """Make the plans that are not made yet, as many as one pass has time for.

        The next pass follows at once for those that are left and can be started on; the others come last. A job whose
        status is not written yet looks new in each pass: thousands of such writes that hang must neither keep the
        passes going nor use up the plans of one.
        """
        all_obs = decisions.observed.obs
        self.making_way.look(all_obs, decisions.allocation, fresh=self.dispatcher.fresh())
        behind = [uid for uid in self._behind if uid in all_obs]
        others = self._planner.may_need_plans(decisions, time.monotonic())
        held_back = self.dispatcher.held_back()
        uids, made = iter(sorted(dict.fromkeys((*behind, *others)), key=held_back.__contains__)), 0
        while made < MOST_PLANS and (uid := next(uids, None)) is not None:
            made += self._plan_or_set_aside(all_obs[uid], decisions.allocation, now)
        self._behind = list(uids)
        self.dispatcher.metrics.reclaim_unanswered.set(self.making_way.waiting)

    def _plan_or_set_aside(self, obs: Observation, allocation: Allocation, now: float) -> bool:
        """Make the job's plan and start on it; False if it is made already. A job at which this raises is set aside.

        While a plan is carried out, nothing can be begun for the job, and it is decided on again at the end.
        """
        if self.dispatcher.busy(obs.job.uid):
            self._planner.forget_plan(obs.job.uid)
            return False
        try:
            if self._planner.is_planned(obs, allocation, time.monotonic()):
                return False
            if not obs.job.fault:
                self._plan(obs, allocation, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's, and no other's
            aside = self._set_aside(obs.job.uid, error)
            assert aside is not None, "a pass awaits nothing, so the job is still there"
            obs = aside
        if obs.job.fault:
            self._leave_aside(obs, allocation, now)
        return True

    def _leave_aside(self, obs: Observation, allocation: Allocation, now: float) -> None:
        """Others get what is theirs of the job's GPUs, and its status says why nothing else is done for it."""
        job, body = obs.job, self._stores.jobs.get(obs.job.uid)
        assert body is not None, "a pass awaits nothing, so the job is still there"
        try:
            assignment = allocation.assignment(job.uid) if job.uid in allocation else None
            held = self.making_way.held(job.uid)
            release = frozenset(assignment.release) - held.pods if assignment is not None else ()
            plan = self._planner.plan_aside(job, release, now)
            waits, wait = bool(held.pods), NOT_FRESH_SECONDS if held.pods else RESYNC_SECONDS
            fault = self._bulkhead.fault(job.uid, job.generation)
            silent = fault is not None and fault.silent
            if not silent and (
                job.status != JobStatus() or not body.status.unpack()
            ):  # else it cannot be read, and is kept
                if fault is not None:
                    fault.is_told = True
                before = self.making_way.before(job.uid, plan) if plan.deletes else (lambda: None)
                wait = min(self.dispatcher.start(body, job, plan, before=before), wait if waits else inf)
            status = plan.status
        except Exception:
            log.exception("job=%s is set aside, and its status cannot say so: that raised, too", job.key)
            assignment, wait, status = None, RESYNC_SECONDS, job.status
        self._note(Planned(obs, assignment, time.monotonic() + wait, status))

    def _plan(self, obs: Observation, allocation: Allocation, now: float) -> None:
        """Make the job's plan and start on it."""
        job = obs.job
        grant, held = allocation.get(job.uid), self.making_way.held(job.uid)
        assignment = grant.assignment if grant is not None else None
        if grant is not None:
            grant = held.grant(grant, obs)
        plan = self._planner.plan(obs, grant, now)
        plan = replace(plan, route=changed_route(self._stores, job, plan.route), status=self._told(obs, plan.status))
        body = self._stores.jobs.get(job.uid)
        assert body is not None, "a pass awaits nothing, so the job is still there"
        goes = grant is not None and (bool(grant.assignment.release) or not held.pods)
        before = self.making_way.before(job.uid, plan) if goes else (lambda: None)
        wait = min(self.dispatcher.start(body, job, plan, before=before), NOT_FRESH_SECONDS if held.pods else inf)
        again = min(wait, plan.wake_at - now if plan.wake_at is not None else inf)
        self._note(Planned(obs, assignment, time.monotonic() + again, plan.status))
        self._poller.follow(job.uid, target_of(obs, plan, now))
        self._survivors.follow(job.uid, job.namespace, obs.survivors)

    def _note(self, planned: Planned) -> None:
        """A plan was made, and begun: it says why the job is not bigger, and metrics show its status."""
        self._planner.note(planned)
        self.retelling.said(planned.obs.job.uid)
        try:
            self._planned(planned)
        except Exception:  # metrics of one job stop no pass
            log.exception("job=%s cannot be shown", planned.obs.job.key)

    # -- why a job is not bigger ---------------------------------------------------------------------------------------

    def say_why(self, observed: Observed, allocation: Allocation, now: float, *, storms: bool = False) -> None:
        """Tell some of the jobs whose answer may read otherwise now; a plan that is yet to be made tells it, too.

        `storms`: passes have woken each other for a while.
        """
        for uid in self.retelling.take(storms=storms):
            known = self._planner.planned(uid)
            if known is None or known.obs is not observed.obs.get(uid) or known.obs.job.fault:
                continue
            if uid not in allocation or self.dispatcher.busy(uid):
                continue
            try:
                self._say_why_one(known.obs, allocation, now)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's, and no other's
                self._set_aside(uid, error)
                self._wake()

    def _say_why_one(self, obs: Observation, allocation: Allocation, now: float) -> None:
        told, grant = obs.job.status.condition(ConditionType.FULL_SIZE), allocation[obs.job.uid]
        if told is None or (told.reason, told.message) != (grant.limit, grant.message):
            self._plan(obs, allocation, now)
