"""Puts a leader's loop together from its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from elastic_api.status import JobStatus
from elastic_operator.build.request import BuildSettings
from elastic_operator.cluster.events import EventRecorder
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.stores import Stores
from elastic_operator.loop.controller import Controller
from elastic_operator.loop.forecast.forecasts import Forecasts
from elastic_operator.loop.reclaim.dry_run import DryRunner
from elastic_operator.loop.reclaim.dry_run_answers import DryRunAnswers
from elastic_operator.loop.reclaim.dry_runs import DryRuns
from elastic_operator.loop.reclaim.eviction_gate import EvictionGate
from elastic_operator.loop.reclaim.eviction_limiter import EvictionLimiter
from elastic_operator.loop.reclaim.nominator import Nominator
from elastic_operator.loop.reclaim.reclaim_reporter import ReclaimReporter
from elastic_operator.loop.reconciler import Reconciler
from elastic_operator.loop.store_view import StoreView
from elastic_operator.loop.writes.dispatch import Dispatcher
from elastic_operator.loop.writes.failed_writes import FailedWrites
from elastic_operator.loop.writes.plan_executor import PlanExecutor
from elastic_operator.memory import DirtyJobs
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.job_times import JobTimes
from elastic_operator.plan.facts.job import FaultStage, Job, JobFeedback
from elastic_operator.plan.planner import PassDecisions, Planner
from elastic_operator.pods.failure_logs import FailureLogs
from elastic_operator.pods.master_poller import MasterPoller
from elastic_operator.pods.survivor_logs import SurvivorLogs
from elastic_operator.quarantine import Quarantine
from elastic_operator.read.convert import main_container_name
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.reader import Reader
from elastic_operator.settings import Settings
from elastic_worker.contract import MAIN_CONTAINER


def make_controller(
    session: Session,
    stores: Stores,
    events: EventRecorder,
    *,
    planner: Planner,
    ledger: Ledger,
    dirty_jobs: DirtyJobs,
    settings: Settings,
    build: BuildSettings,
    metrics: Metrics,
    is_fresh: Callable[[], bool],
    times: JobTimes,
    on_decisions: Callable[[PassDecisions], None] = lambda _: None,
    on_status_written: Callable[[Job, JobStatus], None] = lambda _job, _status: None,
) -> Controller:
    """A controller with all its parts.

    Args:
        dirty_jobs: The one set of the process, in which all its parts mark jobs.
        is_fresh: Whether the stores can be trusted to create pods.
        times: Sees each plan that is made.
        on_decisions: Called at the end of each pass with its decisions.
        on_status_written: Called for each status that was written, with the job as it was before.
    """
    awake, clock = asyncio.Event(), session.clock
    quarantine, failed_writes = Quarantine(metrics.count_error, dirty_jobs), FailedWrites(dirty_jobs)

    def status_written(job: Job, status: JobStatus) -> None:
        failed_writes.note_status_written(job, status)
        on_status_written(job, status)

    executor = PlanExecutor(session, stores, events, build, status_written)
    reader = Reader(stores, ledger, settings, clock=clock, quarantine=quarantine, pruned_fields=executor.pruned_fields)
    limiter = EvictionLimiter(settings.reclaim, count_evicted=metrics.evictions.inc)
    nominator = Nominator(
        session,
        stores.pods,
        reader.nomination_backoffs,
        keeps_seconds=settings.reclaim.reservation_seconds,
        grace_ceiling=reader.job_contexts.grace_ceiling,
        events=events,
        metrics=metrics,
        now=clock.time,
        on_change=awake.set,
    )

    def container_of(pod_uid: str) -> str:
        pod = stores.pods.get(pod_uid)
        return main_container_name(pod) if pod else MAIN_CONTAINER

    logs = FailureLogs(session, container_of, dirty_jobs, awake.set)
    poller = MasterPoller(dirty_jobs, now=clock.time, on_change=awake.set, stepped=lambda: clock.stepped)
    survivors = SurvivorLogs(logs, now=clock.time, stepped=lambda: clock.stepped)
    answers = DryRunAnswers(dirty_jobs, reader.external_changes.note_change)

    def requeue(uid: str) -> None:
        planner.plans.requeue(uid)
        awake.set()

    def feedback(uid: str, generation: int) -> JobFeedback:
        return replace(
            failed_writes.feedback(uid, generation),
            report=poller.report(uid),
            report_pending=poller.report_pending(uid),
            pods_are_asked=True,
            last_answer_at=poller.last_answer_at(uid),
            group=survivors.group(uid),
        )

    def on_pods_created(uid: str) -> None:
        quarantine.note_success(uid)
        answers.note_created(uid)

    view = StoreView(reader, dirty_jobs, logs.with_logs, feedback, answers)
    dispatcher = Dispatcher(
        executor=executor,
        shapes=reader.shapes,
        ledger=ledger,
        failed_writes=failed_writes,
        metrics=metrics,
        is_fresh=is_fresh,
        on_done=requeue,
        on_internal_error=lambda uid, error: planner.jobs.quarantine(view, uid, error, stage=FaultStage.GRANT),
        on_pods_created=on_pods_created,
        on_pod_rejected=answers.note_refused_create,
    )
    dry_runs = DryRuns(answers, DryRunner(session, stores, build).ask, dispatcher.note_refused_dry_run, requeue)
    forecasts = Forecasts(view, planner, metrics=metrics, clock=clock, requeue=requeue)
    eviction_gate = EvictionGate(
        planner=planner,
        dry_runs=dry_runs,
        nominator=nominator,
        limiter=limiter,
        pods=stores.pods,
        is_fresh=is_fresh,
        reads=logs.reads,
    )
    reconciler = Reconciler(
        planner=planner,
        view=view,
        dispatcher=dispatcher,
        failed_writes=failed_writes,
        metrics=metrics,
        eviction_gate=eviction_gate,
        poller=poller,
        survivors=survivors,
        wake=awake.set,
        on_plan=times.note_plan,
        with_forecast=forecasts.with_forecast,
    )
    read, of_pods = (reader.specs, reader.shapes), (poller, survivors, logs)
    of_writes = (dry_runs, answers, eviction_gate, failed_writes, dispatcher.status_times)
    of_messages = (reconciler.reason_messages, forecasts.what_ifs, forecasts.queue_positions)
    return Controller(
        view=view,
        planner=planner,
        reconciler=reconciler,
        limiter=limiter,
        nominator=nominator,
        dry_runs=dry_runs,
        forecasts=forecasts,
        logs=logs,
        reclaim_reporter=ReclaimReporter(stores.jobs, stores.pods, events=events, metrics=metrics),
        metrics=metrics,
        clock=clock,
        awake=awake,
        on_decisions=on_decisions,
        of_jobs=(*read, *of_pods, *of_writes, *of_messages, times),
        writes=session.writes,
    )
