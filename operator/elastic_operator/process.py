"""The operator process: puts its parts together and supervises them.

Everything that only reads (watches, the informer of jobs) runs from the start, on a standby too, so that a new leader
finds warm stores. A standby also observes the jobs (212). Everything that writes runs while this process holds the
lease, and every write asks the lease again.
A thread with a connection of its own renews the lease, so that a long turn of the event loop does not hold it up (90).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from functools import partial
from itertools import chain
from typing import Any

from elastic_api.pod_names import parse_pod_name
from elastic_api.status import JobStatus
from elastic_operator.cluster import objects
from elastic_operator.cluster.backoff import Backoff
from elastic_operator.cluster.connection import Connection, load_connection
from elastic_operator.cluster.events import EventRecorder
from elastic_operator.cluster.installation import Installation
from elastic_operator.cluster.lease import Election, LeaderElector, in_own_thread
from elastic_operator.cluster.metrics_access import MetricsAccess
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.sockets import use_small_tls_buffers
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.waiting import cancel_and_wait, run_to_completion, wait_with_timeout
from elastic_operator.heap import freeze_heap, trim_heap
from elastic_operator.job_informer import JobInformer
from elastic_operator.loop.compose import make_controller
from elastic_operator.loop.controller import Controller
from elastic_operator.memory import DirtyJobs, DirtySet
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.changes import changes
from elastic_operator.metrics.job_times import JobTimes
from elastic_operator.metrics.stats import OperatorStats
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.planner import PassDecisions, Planner
from elastic_operator.read.ledger import Ledger
from elastic_operator.server import serving
from elastic_operator.settings import Settings
from elastic_operator.supervised import start_supervised
from elastic_operator.upkeep import networks
from elastic_operator.upkeep.plain_pods import PlainPodQuotas
from elastic_operator.upkeep.policy_status import PolicyStatuses
from elastic_operator.watches import QUOTAS, stores_of, watch_all

log = logging.getLogger(__name__)

LEASE, CLASSES = "elastic-operator", "priorityclasses"
WRITTEN_OFTEN = ("nodes", "namespaces", "policies")
"""Kinds whose objects are written often, and mostly without news: a node's status is written every few seconds."""
READ_AHEAD_SECONDS = 10.0
"""A standby reads new and changed jobs this often (212)."""
ELECTION_SECONDS = 5.0
"""The first lists wait for the election, but no longer than this."""
UNKNOWN_SECONDS = 90.0
"""A write with an unknown outcome is carried out, if at all, within the API server's limit for a request, 60 s, and the
watches then bring it. Before that, a leader that stops hands over no revisions (213).
"""
STUCK_SECONDS = 300.0
"""A leader that has made no pass for this long counts as dead (/healthz)."""
LEAD_AGAIN_SECONDS = 1.0
"""A process that has lost the lease is a candidate again after this time; after errors in a row, after up to 30 s."""
BEAT_SECONDS = 5.0
"""The pause between two signs of life to the elector; far below `stuck_seconds` of its `LeaseTiming`."""


class Process:
    """One operator process. `who` signs the lease, by default `identity()`."""

    def __init__(
        self, settings: Settings, session: Session, metrics: Metrics, informer: JobInformer, *, who: str | None = None
    ) -> None:
        self.settings, self.session, self.metrics, self._who = settings, session, metrics, who
        self.elector = self._candidate()
        self.watches = watch_all(
            session,
            informer,
            watched=settings.watch_namespaces,
            quotas=settings.plain_pod_quota.enabled,
            on_error=metrics.count_error,
        )
        self.stores = stores_of(self.watches)
        self.installation = Installation(namespace(), self.stores.priority_classes)
        self.controller: Controller | None = None
        self.times = JobTimes()
        self.statuses: PolicyStatuses | None = None
        self.quotas: PlainPodQuotas | None = None
        self.dirty_jobs: DirtyJobs = DirtySet()
        """The one set of the process, in which all its parts mark jobs (200)."""
        self.ledger = Ledger(
            job_of=self.stores.jobs.get,
            parse=parse_pod_name,
            gpu_resources=settings.allocation.gpu_resources,
            dirty_jobs=self.dirty_jobs,
            on_change=self._wake,
            on_error=self.stores.pods.on_error,
        )
        informer.store.subscribe(self._job_changed)
        self.stores.pods.subscribe(self.ledger.pod_changed)
        for kind, store in self.watches.stores.items():
            if kind in WRITTEN_OFTEN:
                store.subscribe(self._wake_if_new)
            elif kind == QUOTAS:
                store.subscribe(self._quota_changed)
            elif kind != "pods":
                store.subscribe(lambda _old, _new: self._wake())

    def _job_changed(self, old: objects.CustomObject | None, new: objects.CustomObject | None) -> None:
        """Decide which pods are a job's own when the job is created and when it is deleted; its name never changes."""
        job = new if old is None else old if new is None else None
        if job is not None:
            self.ledger.job_changed(job.metadata.uid)

    def _quota_changed(self, old: objects.CustomObject | None, new: objects.CustomObject | None) -> None:
        if self.quotas:
            self.quotas.quota_changed(old, new)

    def _wake_if_new(self, old: Any, new: Any) -> None:
        if old is None or new is None or not new.has_same_content(old):
            self._wake()

    def _wake(self) -> None:
        if self.controller:
            self.controller.wake()

    async def run_until(self, stopped: Coroutine[Any, Any, None], *, elect: Election) -> None:
        """Run until `stopped` returns, or until an error; then hand the lease back."""
        running, stopping = asyncio.create_task(self.run(elect)), asyncio.create_task(stopped)
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            await cancel_and_wait([stopping])
            await cancel_and_wait([running])

    async def run(self, elect: Election) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._beat())
            group.create_task(trim_heap())
            group.create_task(self._lead_when_elected(elect))

    async def _watch(self) -> None:
        """Watch all kinds until cancelled.

        A process that leads from its start need not compare its first lists: nobody else has written since it asked for
        them (169).
        """
        async with asyncio.TaskGroup() as group:
            (classes,) = self.watches.all[CLASSES]
            group.create_task(classes.run())  # classes say whether this process may lead (81)
            await wait_with_timeout(self.elector.known, ELECTION_SECONDS)
            for watch in chain.from_iterable(self.watches.all.values()):
                if watch is not classes:
                    group.create_task(watch.run())

    def _candidate(self) -> LeaderElector:
        """A new candidate for the lease. From now on every write asks it."""
        elector = LeaderElector(namespace=namespace(), name=LEASE, identity=self._who or identity())
        self.session.remaining = elector.remaining
        return elector

    async def _lead_when_elected(self, elect: Election) -> None:
        backoff = Backoff(first=LEAD_AGAIN_SECONDS)
        while True:
            await self._wait_until_ours()
            began, failed = time.monotonic(), False
            election = asyncio.create_task(elect(self.elector))
            leading = asyncio.create_task(self._lead())
            displaced = asyncio.create_task(self.installation.wait_until(ours=False))
            try:
                await asyncio.wait({election, leading, displaced}, return_when=asyncio.FIRST_COMPLETED)
                for done in (election, leading):
                    if done.done() and not done.cancelled() and (error := done.exception()):
                        failed = True
                        log.error("this process stopped leading because of an error error=%s", error, exc_info=error)
            finally:
                await run_to_completion(self._stand_down(displaced, leading, election))
            log.warning("not leading any more; standing by")
            self.elector = self._candidate()
            await asyncio.sleep(backoff.next(worked=time.monotonic() - began) if failed else LEAD_AGAIN_SECONDS)

    async def _stand_down(
        self, displaced: asyncio.Task[None], leading: asyncio.Task[None], election: asyncio.Task[None]
    ) -> None:
        """End the leader's tasks, and then its lease: no other replica may begin before this replica's last write."""
        await cancel_and_wait([displaced])
        await cancel_and_wait([leading])
        has_caught_up = self.controller is not None
        if has_caught_up and time.monotonic() - self.session.outcome_unknown_at > UNKNOWN_SECONDS:
            self.elector.revisions = self.watches.revisions()
        await cancel_and_wait([election])  # this hands the lease back; nothing is written any more
        self.controller = self.statuses = self.quotas = None
        self.metrics.stand_by()

    async def _wait_until_ours(self) -> None:
        """Wait until the PriorityClasses name this operator's namespace: no other operator decides then (81)."""
        await self.watches.all[CLASSES][0].catch_up()
        if reason := self.installation.elsewhere():
            log.error("standing by reason=%s", reason)
            await self.installation.wait_until(ours=True)
            log.info("this installation is now active")

    async def _lead(self) -> None:
        """Stand by, then lead, until cancelled."""
        count_drop = self.metrics.events_dropped.inc
        events = EventRecorder(self.session, instance=self.elector.identity, on_drop=count_drop)
        planner, now = Planner(self.metrics.allocate.time), self.session.clock.time
        self.times = JobTimes()
        async with contextlib.AsyncExitStack() as ending:  # the last one that began ends first
            controller = self._controller(planner, events)
            ending.push_async_callback(controller.close)
            ending.callback(gc.unfreeze)
            since = await self._stand_by(controller)
            await self.watches.catch_up(since, self.elector.handed_over)
            jobs, nodes = len(self.stores.jobs), len(self.stores.nodes)
            log.info("leading as %s jobs=%d nodes=%d", self.elector.identity, jobs, nodes)
            self.metrics.leader.set(1)
            freeze_heap()
            start_supervised("writing of events", events.run, ending)
            ending.push_async_callback(events.flush)
            self.statuses = PolicyStatuses(self.session, self.stores.policies, planner, now=now)
            start_supervised("reports on policies", self.statuses.run, ending)
            start_supervised("renewal of NetworkPolicies", self._renew_networks, ending)
            if QUOTAS in self.watches.all:
                stored, namespaces = self.watches.stores[QUOTAS], self.stores.namespaces
                plain = self.ledger.plain_gpus
                self.quotas = PlainPodQuotas(self.session, stored, namespaces, self.settings, plain=plain)
                start_supervised("limits of plain pods", partial(self._keep_quotas, self.quotas), ending)
            self.controller = controller
            await controller.run()

    async def _stand_by(self, controller: Controller) -> float:
        """Read new and changed jobs from time to time, until this process leads. Returns the time (monotonic) from
        which no other replica writes.
        """
        leading = asyncio.create_task(self.elector.wait_until_leading())
        try:
            while not leading.done():
                if self.watches.fresh():
                    await controller.read_jobs_ahead()
                    if not gc.get_freeze_count():
                        freeze_heap()
                await asyncio.wait({leading}, timeout=READ_AHEAD_SECONDS)
            return leading.result()
        finally:
            await cancel_and_wait([leading])

    async def _renew_networks(self) -> None:
        """Bring NetworkPolicies in line with the settings, which may have changed since the last leader began."""
        network = self.settings.job_network(namespace())
        if network is not None:
            started = {pod.metadata.controller.uid for pod in self.stores.pods if pod.metadata.controller}
            jobs = [job for job in self.stores.jobs.values() if job.metadata.uid in started]
            await networks.renew(self.session, network, jobs)

    async def _keep_quotas(self, quotas: PlainPodQuotas) -> None:
        """Limit plain pods to the guarantees (98), once the existing quotas are known. Jobs do not wait for that."""
        await asyncio.gather(*(watch.catch_up() for watch in self.watches.all[QUOTAS]))
        await quotas.run()

    def _on_decisions(self, decisions: PassDecisions) -> None:
        self.watches.informer.decided()
        if self.statuses is not None:
            self.statuses.pass_ended()
        if self.quotas is not None:
            self.quotas.pass_ended(decisions)

    def _controller(self, planner: Planner, events: EventRecorder) -> Controller:
        return make_controller(
            self.session,
            self.stores,
            events,
            planner=planner,
            ledger=self.ledger,
            dirty_jobs=self.dirty_jobs,
            settings=self.settings,
            build=self.settings.build(namespace()),
            metrics=self.metrics,
            is_fresh=self.watches.fresh,
            times=self.times,
            on_decisions=self._on_decisions,
            on_status_written=self._job_written,
        )

    async def _beat(self) -> None:
        """Send the elector signs of life of the main loop. Without these, the elector gives the lease up (90)."""
        stepped = self.session.clock.stepped
        while True:
            self.elector.heartbeat()
            if stepped != self.session.clock.stepped:
                stepped = self.session.clock.stepped
                self._wake()  # waits that lie too far ahead are cut at once (29)
            await asyncio.sleep(BEAT_SECONDS)

    def _job_written(self, job: Job, status: JobStatus) -> None:
        """Note that the status of a job was written; it was `job.status` before."""
        found = changes(job.status, status, created=job.created)
        self.metrics.count_job(found)
        if found.queue_wait is not None and self.controller is not None:
            self.controller.forecasts.queue_positions.note_started(job.uid, self.session.clock.time())

    def stats(self) -> OperatorStats:
        controller, statuses = self.controller, self.statuses
        return OperatorStats(
            leads=controller is not None,
            jobs=self.times.all_stats(controller.planner.plans.all(), controller.view.policies.teams.covered)
            if controller
            else (),
            policies=statuses.all_stats() if statuses else (),
            watches=self.watches.all_stats(),
            kopf_restarts=self.watches.informer.restarts,
        )

    def health(self) -> str:
        """The fault of this process, in words; "" if there is none."""
        controller = self.controller
        if controller and time.monotonic() - controller.last_pass > STUCK_SECONDS:
            return f"no pass for {STUCK_SECONDS:.0f} s"
        return ""


def identity() -> str:
    """The holder's name in the lease: the pod, whose containers run one after the other, or else this process (26).

    So a restarted container has the lease of the container before it at once. That container has certainly ended.
    """
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.environ.get('POD_UID') or os.urandom(4).hex()}"


def namespace() -> str:
    """The namespace of the lease: the pod's own."""
    return os.environ.get("POD_NAMESPACE") or "elastic-system"


def job_informer(settings: Settings, connection: Connection, session: Session) -> JobInformer:
    async def kopf(informer: JobInformer) -> None:
        kopf_host = await asyncio.to_thread(_without_kubernetes, "elastic_operator.kopf_host")
        await kopf_host.run_kopf(connection, informer)

    return JobInformer(session, Store(), kopf, namespaces=settings.watch_namespaces)


def _without_kubernetes(module: str) -> Any:
    """Import the module, for which the client `kubernetes` is not installed, unless it is imported already.

    kopf would only look for its types, and that client takes 16 MB (174).
    """
    absent = sys.modules.setdefault("kubernetes", None) is None  # type: ignore[arg-type] # so an import of it fails
    try:
        return importlib.import_module(module)
    finally:
        if absent:
            del sys.modules["kubernetes"]


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT, then hand the lease back."""
    if not settings.worker_image:
        log.warning("workerImage is not set: Elastic jobs get no pods unless spec.runtime.inject is false")
    use_small_tls_buffers()
    metrics, connection = Metrics(), load_connection()
    count = metrics.count_request
    async with (
        Session(connection, on_request=count) as session,
        Session(connection, on_request=count) as asking,  # on a standby, too: it needs no lease
    ):
        process = Process(settings, session, metrics, job_informer(settings, connection, session))
        async with serving(
            settings.port,
            metrics,
            health=process.health,
            stats=process.stats,
            unready=process.installation.elsewhere,
            metrics_access=MetricsAccess(asking) if settings.authorize_metrics else None,
        ):
            elect = in_own_thread(lambda: Session(load_connection(), on_request=count))
            await process.run_until(_stopped(), elect=elect)


async def _stopped() -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    await stop.wait()
