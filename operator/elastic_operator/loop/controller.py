"""Wake -> read -> decide -> apply.

A pass runs in one go, without awaiting anything, so it sees one state of the stores: jobs are observed, one allocation
is made for all of them, each job is settled, and what is to be done is started. Only what changed is done again: jobs
that are seen otherwise, or get otherwise, or are due. Everything is done again every two minutes all the same.

Thousands of jobs may change at once. What is new is then looked at before the pass, with turns of the event loop in
between; and plans are made for some jobs in each pass, for the others in the next ones, which follow at once.

Why a job is not bigger depends on all the others, and so may read otherwise after any change. That is told in turn,
a few jobs at a time: nobody waits for it, and the API server must not be flooded with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from elastic_operator.api.refusal import pod_blocked
from elastic_operator.api.status import ConditionType, JobStatus
from elastic_operator.build.environment import frozen_nnodes
from elastic_operator.build.names import service_name
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.errors import PodRefused
from elastic_operator.cluster.events import Subject, job_subject
from elastic_operator.loop.act import Actor
from elastic_operator.loop.asking import Asker
from elastic_operator.loop.backoff import Troubles
from elastic_operator.loop.dispatch import NOT_FRESH_SECONDS, Dispatcher
from elastic_operator.loop.making_way import MakingWay
from elastic_operator.loop.reclaim import Reclaimer
from elastic_operator.loop.reclaim_times import ReclaimTimes
from elastic_operator.loop.shown import Shown
from elastic_operator.loop.trials import Trials
from elastic_operator.loop.view import Observed, Observer
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.picture import JobPicture
from elastic_operator.plan.allocation.allocate import Allocation, Allocator, next_change
from elastic_operator.plan.facts.decisions import Assignment, Event, Route, Stopped
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.snapshot import Brakes, PendingPod, Snapshot, gpus_in
from elastic_operator.plan.foresight import Foresight
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.reconcile import reconcile
from elastic_operator.plan.job.set_aside import plan_aside
from elastic_operator.plan.policies.resolve import Resolved
from elastic_operator.pods.launcher_client import Progress, target_of
from elastic_operator.pods.logs import FailureLogs
from elastic_operator.pods.survivors import SurvivorLogs
from elastic_operator.read.blame import culprits_of_allocation
from elastic_operator.read.bulkhead import Bulkhead
from elastic_operator.read.jobs import Reader, Stores, drop_absent
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.status_times import StatusTimes
from elastic_operator.settings import Settings

log = logging.getLogger(__name__)

RESYNC_SECONDS = 120.0
"""Every job is decided on again at least this often, whatever the watches say."""
WORDING_SECONDS = 0.5
WORDING_BATCH = 10
"""So many jobs are told again, every so many seconds, why they are not bigger."""
MOST_SETTLED = 500
"""So many plans are made in a pass; the next one, which follows at once, goes on. A resync takes as many at a time."""
BETWEEN_SLICES_SECONDS = 1.0
MOST_BLAMES = 2
"""So often in one pass those are looked for that make an allocation raise; each time costs several allocations."""


@dataclass(slots=True)
class _Settled:
    """What one job's last plan was made from, and when (monotonic) it is to be made again all the same."""

    obs: Observation
    share: Assignment | None
    again_at: float


def _nobody(_policies: Resolved, _snapshot: Snapshot, _allocation: Allocation, _stopped: Stopped | None) -> None:
    """For a controller whose passes nobody listens to."""


class Controller:
    """Decides for all jobs and has it done. `told` hears at the end of each pass what it came to."""

    def __init__(
        self,
        *,
        stores: Stores,
        ledger: Ledger,
        actor: Actor,
        logs: FailureLogs,
        settings: Settings,
        metrics: Metrics,
        clock: ServerClock,
        times: StatusTimes,
        reclaimer: Reclaimer,
        progress: Progress,
        fresh: Callable[[], bool],
        told: Callable[[Resolved, Snapshot, Allocation, Stopped | None], None] = _nobody,
    ) -> None:
        self.stores, self.ledger, self.metrics, self.clock = stores, ledger, metrics, clock
        self.reclaimer, self.progress, self.survivors = reclaimer, progress, SurvivorLogs(logs, now=clock.time)
        self.last_pass = time.monotonic()
        self.bulkhead, troubles = Bulkhead(metrics.count_error), Troubles()
        reader = Reader(stores, ledger, settings, clock=clock, times=times, bulkhead=self.bulkhead, unkept=actor.unkept)
        reader.requests.barred, reader.requests.makes_way = reclaimer.barred, reclaimer.makes_way
        reclaimer.grace_ceiling = reader.grace_ceiling
        self.view = Observer(reader, logs, troubles, progress.report, progress.heard, self.survivors.group)
        self.dispatcher = Dispatcher(
            actor=actor,
            reader=reader,
            ledger=ledger,
            troubles=troubles,
            metrics=metrics,
            unkept=actor.unkept,
            fresh=fresh,
            done=self._decide_again,
            failed=self._set_aside,
            worked=self._worked,
            refused=lambda job: self.trials.were_refused(job),
        )
        ask = Asker(actor.session, stores, actor.build).ask
        self.trials = Trials(ask, self._refused, again=self._decide_again)
        self.making_way = MakingWay(self.trials, reclaimer, stores.pods, logs.reads)
        self.view.may_take = self.trials.may_take
        self._wake, self._told = asyncio.Event(), told
        self._settled: dict[str, _Settled] = {}
        self._snapshot: Snapshot | None = None
        self._allocator, self._dry_allocator = Foresight(), Allocator()
        self._allocation: Allocation | None = None
        self._stopped: Stopped | None = None
        self._allocated_until = 0.0
        self._resync_at = 0.0
        self._to_resync: list[str] = []
        self._behind: dict[str, None] = {}
        """Jobs for whose plans there was no time in the last pass: they come first in the next one."""
        self._unsaid: dict[str, None] = {}
        self._say_at = 0.0
        self._shown, self._reclaim_times = Shown(), ReclaimTimes(metrics, is_bound=self._is_bound)

    def pictures(self) -> tuple[JobPicture, ...]:
        """All jobs as they are now, for whoever looks at metrics."""
        return self._shown.pictures(self._snapshot.team_of if self._snapshot else {})

    def wake(self) -> None:
        """Something changed: look again."""
        self._wake.set()

    async def run(self) -> None:
        """Passes until cancelled. Plans under way are cancelled with it."""
        try:
            while True:
                self._wake.clear()
                await self._look_ahead()
                started = time.monotonic()
                wait = self._guarded_pass()
                took = time.monotonic() - started
                await asyncio.sleep(took)  # leave half of the time to the watches and writes in a storm
                await self._sleep(wait)
        finally:
            await self.dispatcher.stop()
            await self.reclaimer.stop()
            await self.trials.stop()
            await self.progress.stop()
            await self.survivors.stop()

    async def _look_ahead(self) -> None:
        """Where much is new, the pass remembers it; meanwhile the watches and writes have their turns."""
        try:
            for _ in self.view.look_ahead(self.clock.time()):
                await asyncio.sleep(0)
        except Exception:  # noqa: BLE001 - the pass meets it again, and tells of it
            return

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _guarded_pass(self) -> float:
        try:
            wait = self.run_pass()
        except Exception:
            self.metrics.pass_errors.inc()
            log.exception("a pass failed; the next one starts from the stores again")
            self._forget()
            return 1.0
        self.last_pass = time.monotonic()
        return wait

    def run_pass(self) -> float:
        """One pass; returns the seconds after which the next is due if nothing wakes it."""
        with self.metrics.passes.time():
            now, began = self.clock.time(), time.monotonic()
            if began >= self._resync_at:
                self._resync()
            sight, allocation = self._look_and_allocate(now)
            drop_absent(self._settled, sight.obs.keys())
            self.trials.keep_only(sight.obs.keys())
            drop_absent(self._unsaid, sight.obs.keys())
            self.dispatcher.keep_only(sight.obs.keys())
            self.progress.keep_only(sight.obs.keys())
            self.survivors.keep_only(sight.obs.keys())
            self._shown.keep_only(sight.obs.keys())
            self.making_way.look(sight.obs, allocation, fresh=self.dispatcher.fresh())
            self.reclaimer.tell_braked(allocation, self._subject)
            self.reclaimer.plan(allocation)
            rest_first = self.view.reader.requests.note_served(_served(allocation), allocation.tried_gangs, now)
            self.reclaimer.tell_no_room(rest_first)
            self.reclaimer.withdraw(self.view.reader.requests.expired)
            self.reclaimer.renew(self.view.reader.requests.renewable)
            self._settle_all(sight, allocation, now)
            self.trials.ask_next()
            self.metrics.reclaim_unanswered.set(self.making_way.waiting)
            self._say_why(sight, allocation, now)
            self._told(self.view.reader.policies, sight.snapshot, allocation, self._stopped)
        again = min(self.bulkhead.next_try(since=began), self.trials.next_try())
        soonest = min((settled.again_at for settled in self._settled.values()), default=inf)
        if self._behind:
            soonest = began
        due = min(soonest, again, self._resync_at, self._say_at if self._unsaid else inf)
        at = min(self._allocated_until, self.view.reader.requests.again_at)
        return max(0.01, min(due - time.monotonic(), at - now, self.ledger.next_expiry()))

    def _decide_again(self, uid: str) -> None:
        """What was to be done for a job is done, or has failed."""
        self._settled.pop(uid, None)
        self.wake()

    def _worked(self, uid: str) -> None:
        """Pods of that job were made."""
        self.bulkhead.worked(uid)
        self.trials.made(uid)

    def _refused(self, job: Job, error: PodRefused, needed: bool) -> None:
        """Pods for which others were to go would be refused: trouble of the job, if it needs them for its minimum."""
        if needed:
            self.dispatcher.note(job, error)
            return
        text = f"Nobody makes way for it to grow: {pod_blocked(error.error.message)}"
        self.dispatcher.actor.tell(job, [Event("ScaleUpBlocked", text, "Warning")])

    def _resync(self) -> None:
        """Decide everything again: who gets what at once, what follows for each job some jobs at a time."""
        if not self._to_resync and self._snapshot is not None:  # before the first pass there is nothing to forget
            self._to_resync = [body.metadata.uid for body in self.stores.jobs]
            self._allocator, self._dry_allocator, self._allocation = Foresight(), Allocator(), None
        some, self._to_resync = self._to_resync[:MOST_SETTLED], self._to_resync[MOST_SETTLED:]
        self.view.forget_some(some)
        for uid in some:
            self._settled.pop(uid, None)
        self._resync_at = time.monotonic() + (BETWEEN_SLICES_SECONDS if self._to_resync else RESYNC_SECONDS)

    def _forget(self) -> None:
        """Decide everything again."""
        self.view.forget()
        self._settled.clear()
        self._allocator, self._dry_allocator = Foresight(), Allocator()

    def _look_and_allocate(self, now: float) -> tuple[Observed, Allocation]:
        """What there is, and who gets what; without a job or a waiting pod at which the allocation raises."""
        for _ in range(MOST_BLAMES):
            sight = self.view.look(now)
            try:
                return sight, self._allocate(sight.snapshot, now)
            except Exception as error:
                self._allocator, self._dry_allocator, self._allocation = Foresight(), Allocator(), None
                if not self._blame(replace(sight.snapshot, now=now, reclaiming=self.reclaimer.stopped is None), error):
                    raise
        sight = self.view.look(now)
        return sight, self._allocate(sight.snapshot, now)

    def _blame(self, snapshot: Snapshot, error: Exception) -> bool:
        """Set those aside that make the allocation raise; whether there are any."""
        found = culprits_of_allocation(snapshot)
        for bad in found:
            if isinstance(bad, PendingPod):
                self.bulkhead.set_aside("pod", bad.uid, f"{bad.namespace}/{bad.name}", error, in_allocation=True)
            else:
                self._set_aside(bad.uid, error, in_allocation=True)
        return bool(found)

    def _set_aside(self, uid: str, error: Exception, *, in_allocation: bool = False) -> Observation | None:
        """That job has raised. Returns how it is seen meanwhile; None if it is gone."""
        body = self.stores.jobs.get(uid)
        if body is None:
            log.error("a job that is gone, uid=%s, raised", uid, exc_info=error)
            return None
        return self.view.set_aside(body, error, in_allocation=in_allocation, given=not in_allocation)

    def _allocate(self, snapshot: Snapshot, now: float) -> Allocation:
        """The last one, as long as it would come out again."""
        stopped = self.reclaimer.stopped
        same = snapshot is self._snapshot and stopped == self._stopped and now < self._allocated_until
        if self._allocation is None or not same:
            self._snapshot = snapshot
            snapshot = replace(snapshot, now=now, brakes=self.reclaimer.brakes(gpus_in(snapshot)))
            with self.metrics.allocate.time():
                self._allocation = self._decide(snapshot, reclaiming=stopped is None)
                _ = self._allocation.reclaims  # made when they are read: here it is known what to do if that raises
            self._stopped = self.reclaimer.stopped
            relief = now + self.reclaimer.relief(self._allocation)
            self._allocated_until = min(next_change(snapshot), relief, self._allocator.again_at)
            self._unsaid |= dict.fromkeys(self._allocation)
            self._reclaim_times.look(snapshot, self._allocation)
            self.metrics.reservations.set(sum(bool(request.reserved) for request in snapshot.requests))
        return self._allocation

    def _decide(self, snapshot: Snapshot, *, reclaiming: bool) -> Allocation:
        """Who gets what; nobody takes anything from others where that is stopped."""
        if reclaiming:
            allocation = self._look_ahead_and_decide(snapshot)
            if self._allocator.unsettled:
                log.warning("by the best plan found, jobs go in vain for uids=%s", sorted(self._allocator.unsettled))
            return allocation
        if self.reclaimer.only_told:
            self.reclaimer.tell(self._dry_allocator.allocate(replace(snapshot, brakes=Brakes())), self._subject)
        return self._look_ahead_and_decide(replace(snapshot, reclaiming=False))

    def _look_ahead_and_decide(self, snapshot: Snapshot) -> Allocation:
        """Who gets what; where only the look ahead raises, without it."""
        try:
            allocation = self._allocator.allocate(snapshot)
        except Exception:
            self._allocator = Foresight()
            allocation = self._allocator.as_it_comes(snapshot)  # raises again where that is no matter of looking ahead
            self.metrics.pass_errors.inc()
            log.exception("what is decided cannot be looked at as if it were carried out; it is done all the same")
        self.metrics.not_lasting.inc(len(allocation.left_out))
        return allocation

    def _is_bound(self, uid: str) -> bool | None:
        """Whether the pod has a node; None if it is gone."""
        pod = self.stores.pods.get(uid)
        return bool(pod.spec.node_name) if pod else None

    def _subject(self, uid: str) -> Subject | None:
        job = self.stores.jobs.get(uid)
        return job_subject(job.metadata.namespace, job.metadata.name, uid) if job else None

    def _is_settled(self, obs: Observation, allocation: Allocation) -> bool:
        """Whether another plan for the job would be the same, up to its wording."""
        known = self._settled.get(obs.job.uid)
        if known is None or known.obs is not obs or time.monotonic() >= known.again_at:
            return False
        return known.share == (allocation.share(obs.job.uid) if obs.job.uid in allocation else None)

    def _settle_all(self, sight: Observed, allocation: Allocation, now: float) -> None:
        """Make the plans that are not made yet, as many as one pass has time for.

        The next pass follows at once for those that are left and can be started on. A job whose status is not written
        yet looks new in each pass: thousands of such writes that hang must not keep the passes going.
        """
        waiting = [uid for uid in self._behind if uid in sight.obs]
        uids, made = iter(dict.fromkeys((*waiting, *sight.obs))), 0
        while made < MOST_SETTLED and (uid := next(uids, None)) is not None:
            made += self._settle_or_set_aside(sight.obs[uid], allocation, now)
        self._behind = dict.fromkeys(uid for uid in uids if not self.dispatcher.holds_back(uid))

    def _settle_or_set_aside(self, obs: Observation, allocation: Allocation, now: float) -> bool:
        """Make the job's plan and start on it; False if it is made already. A job at which this raises is set aside."""
        try:
            if self._is_settled(obs, allocation):
                return False
            if not obs.job.fault:
                self._settle(obs, allocation, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's, and no other's
            aside = self._set_aside(obs.job.uid, error)
            assert aside is not None, "a pass awaits nothing, so the job is still there"
            obs = aside
        if obs.job.fault:
            self._leave_aside(obs, allocation, now)
        return True

    def _leave_aside(self, obs: Observation, allocation: Allocation, now: float) -> None:
        """Others get what is theirs of the job's GPUs, and its status says why nothing else is done for it."""
        job, body = obs.job, self.stores.jobs.get(obs.job.uid)
        assert body is not None, "a pass awaits nothing, so the job is still there"
        try:
            share = allocation.share(job.uid) if job.uid in allocation else None
            held = self.making_way.held(job.uid)
            plan = plan_aside(job, held.share(share) if share is not None else None, now)
            waits, wait = bool(held.pods), NOT_FRESH_SECONDS if held.pods else RESYNC_SECONDS
            fault = self.bulkhead.fault(job.uid, job.generation)
            silent = fault is not None and fault.silent
            if not silent and (job.status != JobStatus() or not body.status):  # else it cannot be read, and is kept
                before = self.making_way.before(job.uid, plan) if plan.deletes else (lambda: None)
                wait = min(self.dispatcher.start(body, job, plan, before=before), wait if waits else inf)
            self._shown.see(obs, plan.status)
        except Exception:
            log.exception("job=%s cannot even be left aside in good order", job.key)
            share, wait = None, RESYNC_SECONDS
        self._settled[job.uid] = _Settled(obs, share, time.monotonic() + wait)
        self._unsaid.pop(job.uid, None)

    def _settle(self, obs: Observation, allocation: Allocation, now: float) -> None:
        """Make the job's plan and start on it."""
        job = obs.job
        grant, held = allocation.get(job.uid), self.making_way.held(job.uid)
        if grant is not None:
            grant = held.grant(grant, obs.status.target_replicas)
        plan = reconcile(obs, grant, frozen=frozen_nnodes(job.spec) if job.spec else (1, 1), now=now)
        plan = replace(plan, route=self._changed_route(job, plan.route))
        body = self.stores.jobs.get(job.uid)
        assert body is not None, "a pass awaits nothing, so the job is still there"
        goes = grant is not None and (bool(grant.release) or not held.pods)
        before = self.making_way.before(job.uid, plan) if goes else (lambda: None)
        wait = min(self.dispatcher.start(body, job, plan, before=before), NOT_FRESH_SECONDS if held.pods else inf)
        again = min(wait, plan.wake_at - now if plan.wake_at is not None else inf)
        share = allocation.share(job.uid) if grant else None
        self._settled[job.uid] = _Settled(obs, share, time.monotonic() + again)
        self._shown.see(obs, plan.status)
        self._unsaid.pop(job.uid, None)
        self.progress.follow(job.uid, target_of(obs, plan, now))
        self.survivors.follow(job.uid, job.namespace, obs.asked)

    def _changed_route(self, job: Job, wanted: Route | None) -> Route | None:
        """The route, if there is a Service and it does not lead there yet."""
        name = service_name(job.name)
        if wanted is None or self.stores.services.named(name, job.namespace) is None:
            return None
        known = self.stores.slices.named(name, job.namespace)
        addresses = [a for endpoint in known.endpoints or () for a in endpoint.addresses] if known else []
        return None if "".join(addresses[:1]) == wanted.address else wanted

    def _say_why(self, sight: Observed, allocation: Allocation, now: float) -> None:
        """Tell some of the jobs whose answer may read otherwise now; a plan that is yet to be made tells it, too."""
        if not self._unsaid or time.monotonic() < self._say_at:
            return
        self._say_at = time.monotonic() + WORDING_SECONDS
        for uid in list(self._unsaid)[:WORDING_BATCH]:
            del self._unsaid[uid]
            known = self._settled.get(uid)
            if known is None or known.obs is not sight.obs.get(uid) or known.obs.job.fault:
                continue
            if uid not in allocation or self.dispatcher.busy(uid):
                continue
            try:
                self._say_why_one(known.obs, allocation, now)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's, and no other's
                self._set_aside(uid, error)
                self.wake()

    def _say_why_one(self, obs: Observation, allocation: Allocation, now: float) -> None:
        told, grant = obs.job.status.condition(ConditionType.FULL_SIZE), allocation[obs.job.uid]
        if told is None or (told.reason, told.message) != (grant.limit, grant.message):
            self._settle(obs, allocation, now)


def _served(allocation: Allocation) -> frozenset[str]:
    """The foreign pods (uids) that have got places, or wait for the brakes."""
    waiting = (claim.job.uid for claim, _ in allocation.braked)
    return frozenset([*(reclaim.uid for reclaim in allocation.reclaims), *waiting])
