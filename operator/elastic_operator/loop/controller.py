"""Wake -> read -> decide -> apply.

A pass runs in one go, without awaiting anything, so it sees one state of the stores: every job is observed, one
allocation is made for all of them, every job is settled. Plans are then carried out side by side, one at a time per
job; while a job's plan is under way the job is decided on but nothing more is started for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from elastic_operator.build.environment import frozen_nnodes
from elastic_operator.build.names import pod_name, service_name
from elastic_operator.cluster import objects
from elastic_operator.cluster.errors import ClusterError
from elastic_operator.cluster.ledger import Ledger
from elastic_operator.loop.act import Actor
from elastic_operator.loop.backoff import Troubles
from elastic_operator.loop.logs import FailureLogs
from elastic_operator.loop.read import Reader, Stores
from elastic_operator.metrics import Metrics
from elastic_operator.plan.allocate import allocate
from elastic_operator.plan.decisions import Grant, Plan, Route
from elastic_operator.plan.model import Job, Snapshot
from elastic_operator.plan.observation import Observation
from elastic_operator.plan.observe import observe
from elastic_operator.plan.settle import settle
from elastic_operator.settings import Settings

log = logging.getLogger(__name__)

RESYNC_SECONDS = 120.0
"""Every job is looked at again at least this often, whatever the watches say."""
MESSAGE_SECONDS = 5.0
"""A status in which only the wording is new waits so long after the last one."""


class Controller:
    """Decides for all jobs and has it done."""

    def __init__(
        self,
        *,
        stores: Stores,
        ledger: Ledger,
        actor: Actor,
        logs: FailureLogs,
        settings: Settings,
        metrics: Metrics,
        api_time: Callable[[], float],
        fresh: Callable[[], bool],
    ) -> None:
        self.stores, self.ledger, self.actor, self.logs = stores, ledger, actor, logs
        self.settings, self.metrics, self.api_time, self.fresh = settings, metrics, api_time, fresh
        self.reader = Reader(stores, ledger, settings)
        self.troubles = Troubles()
        self.last_pass = time.monotonic()
        self._wake = asyncio.Event()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._told: dict[str, float] = {}

    def wake(self) -> None:
        """Something changed: look again."""
        self._wake.set()

    async def run(self) -> None:
        """Passes until cancelled. Plans under way are cancelled with it."""
        try:
            while True:
                self._wake.clear()
                started = time.monotonic()
                wait = self._guarded_pass()
                took = time.monotonic() - started
                await asyncio.sleep(took)  # leave half of the time to the watches and writes in a storm
                await self._sleep(wait)
        finally:
            under_way = list(self._busy.values())
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

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
            log.exception("a pass failed; the next one starts from the stores again")
            return 1.0
        self.last_pass = time.monotonic()
        return wait

    def run_pass(self) -> float:
        """One pass; returns the seconds after which the next is due if nothing wakes it."""
        with self.metrics.passes.time():
            now = self.api_time()
            self._forget_gone()
            bodies = {b.metadata.uid: b for b in self.stores.jobs.values() if self._is_mine(b)}
            unready = self.reader.unready_since()
            seen = {uid: observe(self._job(body), unready, now) for uid, body in bodies.items()}
            grants = self._allocate(seen, now)
            plans = {uid: self._settle(s, grants.get(uid), now) for uid, s in seen.items()}
            waits = [self._start(bodies[uid], seen[uid].job, plan) for uid, plan in plans.items()]
            self._count(plans)
        due = [plan.wake_at - now for plan in plans.values() if plan.wake_at is not None]
        return max(0.01, min([RESYNC_SECONDS, *waits, *due]))

    def _forget_gone(self) -> None:
        """What is kept per job goes with the job."""
        for uid in [uid for uid in self._told if uid not in self.stores.jobs]:
            del self._told[uid]
            self.troubles.clear(uid)
            self.reader.forget(uid)

    def _is_mine(self, body: objects.CustomObject) -> bool:
        return body.metadata.deletion_timestamp is None and self.settings.watches(body.metadata.namespace)

    def _job(self, body: objects.CustomObject) -> Job:
        uid = body.metadata.uid
        return self.reader.job(
            body,
            pods=self.logs.as_read(body.metadata.namespace, self.ledger.own_pods(uid)),
            trouble=self.troubles.message(uid),
            refused=self.troubles.refused(uid, body.metadata.generation),
        )

    def _allocate(self, seen: dict[str, Observation], now: float) -> dict[str, Grant]:
        wanting = [s for s in seen.values() if s.wants_pods]
        demands = tuple(self.reader.demand(s) for s in wanting)
        members = frozenset(m.uid for demand in demands for m in demand.members)
        nodes = self.reader.nodes(members, [pod for s in seen.values() for pod, _ in s.gone])
        snapshot = Snapshot(now=now, nodes=nodes, jobs=demands, gpu_resources=self.settings.gpu_resources)
        with self.metrics.allocate.time():
            return allocate(snapshot)

    def _settle(self, seen: Observation, grant: Grant | None, now: float) -> Plan:
        spec = seen.job.spec
        plan = settle(seen, grant, frozen=frozen_nnodes(spec) if spec else (1, 1), now=now)
        return replace(plan, route=self._changed_route(seen.job, plan.route))

    def _changed_route(self, job: Job, wanted: Route | None) -> Route | None:
        """The route, if the Service does not lead there yet."""
        known = self.stores.slices.named(service_name(job.name), job.namespace)
        addresses = [a for endpoint in known.endpoints or () for a in endpoint.addresses] if known else []
        return None if wanted is None or "".join(addresses[:1]) == wanted.address else wanted

    def _start(self, body: objects.CustomObject, job: Job, plan: Plan) -> float:
        """Starts carrying the plan out if there is anything to do; returns seconds until it is to be looked at."""
        uid = job.uid
        if uid in self._busy:
            return RESYNC_SECONDS
        quiet = self._quiet_for(body, plan)
        if quiet > 0:
            return quiet
        wait = self.troubles.wait(uid, time.monotonic())
        if wait > 0:
            self._tell_only(body, job, plan)
            return wait
        may_create = self.fresh()
        if may_create:
            self._assume(job, plan)
        self._run(uid, self._carry_out(job, plan, written=body.status, may_create=may_create))
        return RESYNC_SECONDS if may_create else 1.0

    def _tell_only(self, body: objects.CustomObject, job: Job, plan: Plan) -> None:
        """While a job waits for its next try, its status still says why; decisions wait with it."""
        told = Plan(status=plan.status)
        if not plan.commit_first and self._quiet_for(body, told) <= 0:
            self._run(job.uid, self._carry_out(job, told, written=body.status, may_create=False))

    def _run(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        self._told[uid] = time.monotonic()
        task = asyncio.create_task(work)
        self._busy[uid] = task
        task.add_done_callback(lambda _: self._done(uid))

    def _done(self, uid: str) -> None:
        self._busy.pop(uid, None)
        self.wake()

    def _quiet_for(self, body: objects.CustomObject, plan: Plan) -> float:
        """Seconds for which the plan can wait; 0 if there is something to do now.

        Messages tell of free GPUs elsewhere and so change with every pod of the cluster: where nothing but them is new,
        the status is not written more often than every few seconds.
        """
        if plan.deletes or plan.creates or plan.delete_job or plan.route is not None:
            return 0.0
        wanted = plan.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        if wanted == body.status:
            return RESYNC_SECONDS
        if without_messages(wanted) != without_messages(body.status):
            return 0.0
        return self._told.get(body.metadata.uid, 0.0) + MESSAGE_SECONDS - time.monotonic()

    def _assume(self, job: Job, plan: Plan) -> None:
        """From here on the pods to be created count as used, whatever the API server's answer will be."""
        assert job.spec is not None or not plan.creates
        for create in plan.creates:
            shape = self.reader.shape(job, create.role)
            self.ledger.assume(
                job_uid=job.uid,
                namespace=job.namespace,
                name=pod_name(job.name, create.role, create.index),
                role=create.role,
                index=create.index,
                node=create.node,
                requests=shape.requests,
                host_ports=shape.host_ports,
            )

    async def _carry_out(self, job: Job, plan: Plan, *, written: dict[str, Any], may_create: bool) -> None:
        try:
            with self.metrics.reconcile.time():
                await self.actor.carry_out(job, plan, written=written, may_create=may_create)
        except ClusterError as error:
            self.metrics.reconcile_errors.inc()
            trouble = self.troubles.add(job.uid, job.generation, error, time.monotonic())
            if trouble.attempts in (1, 5) or trouble.attempts % 20 == 0:
                log.warning("job=%s attempt=%d error=%s", job.key, trouble.attempts, error)
        except Exception:
            self.metrics.reconcile_errors.inc()
            log.exception("job=%s the plan could not be carried out", job.key)
            await asyncio.sleep(1.0)
        else:
            if may_create:
                self.troubles.clear(job.uid)

    def _count(self, plans: dict[str, Plan]) -> None:
        reasons = Counter(
            next((c.reason for c in plan.status.conditions if c.type == "Ready"), "") for plan in plans.values()
        )
        self.metrics.jobs.clear()
        for reason, count in reasons.items():
            self.metrics.jobs.labels(reason).set(count)


def without_messages(status: dict[str, Any]) -> dict[str, Any]:
    """A status without the texts of its conditions."""
    conditions = [{**condition, "message": ""} for condition in status.get("conditions", [])]
    return {**status, "conditions": conditions}
