"""The snapshot of a running cluster, read as the operator reads it, by a process that only reads."""

from __future__ import annotations

import asyncio

from elastic_operator.cluster.connection import Connection, load_connection
from elastic_operator.cluster.errors import ClusterError, NotServed
from elastic_operator.cluster.session import Session
from elastic_operator.loop.reclaim.dry_run_answers import DryRunAnswers
from elastic_operator.loop.reclaim.eviction_limiter import EvictionLimiter
from elastic_operator.loop.store_view import StoreView
from elastic_operator.metrics import Metrics
from elastic_operator.plan.facts.job import JobFeedback
from elastic_operator.process import Process, job_informer
from elastic_operator.quarantine import Quarantine
from elastic_operator.read.reader import Reader
from elastic_operator.settings import Settings
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot, snapshot_of
from elastic_operator.tools.files import InputError

LIST_SECONDS = 120.0
"""The limit for all lists together; 30,000 pods take a few seconds."""


def connect(kubeconfig: str | None, context: str | None) -> Connection:
    """The cluster that the kubeconfig names, or the one this runs in. Raises InputError."""
    from kubernetes.config import ConfigException

    try:
        return load_connection(kubeconfig, context=context)
    except (ConfigException, OSError) as error:
        raise InputError([f"no cluster: {error}; give --kubeconfig and --context, or set KUBECONFIG"]) from None


async def take_snapshot(connection: Connection, settings: Settings) -> ClusterSnapshot:
    """The snapshot from which a new leader with these settings would decide now. Raises InputError."""
    async with Session(connection) as session:
        process = Process(settings, session, Metrics(), job_informer(settings, connection, session))
        try:
            await _try_each_list(process, session)
            async with asyncio.timeout(LIST_SECONDS):
                await process.watches.catch_up()
        except ClusterError as error:
            raise InputError([f"{connection.base_url}: {error}"]) from None
        except TimeoutError:
            problem = f"did not answer within {LIST_SECONDS:.0f} s; try again"
            raise InputError([f"{connection.base_url}: {problem}"]) from None
        view = _view(process).refresh(session.clock.time())
        # No pod has been evicted for others yet.
        classes = process.stores.priority_classes.values()
        return snapshot_of(view, EvictionLimiter(settings.reclaim), view.reader.policies.made, classes)


async def _try_each_list(process: Process, session: Session) -> None:
    """Try each list once. The watches would repeat a refused list again and again; here it is an error at once.

    Kinds that are not installed have no objects; without jobs there is nothing to take a snapshot of.
    """
    for kind, watches in sorted(process.watches.all.items(), key=lambda item: item[0] != "jobs"):
        try:
            for path in (path for watch in watches for path in watch.paths):
                await session.get(path, params={"limit": "1"})
        except NotServed:
            if kind == "jobs":
                text = "the cluster does not know ElasticPyTorchJobs; apply `elastic-operator crds` to it"
                raise InputError([text]) from None


def _view(process: Process) -> StoreView:
    """The view for this snapshot. Failed pods count as failed at once, without their logs."""
    reader = Reader(
        process.stores, process.ledger, process.settings, clock=process.session.clock, quarantine=Quarantine()
    )
    return StoreView(
        reader,
        process.dirty_jobs,
        with_logs=lambda _uid, _namespace, pods: pods,
        feedback=lambda _uid, _generation: JobFeedback(),
        answers=DryRunAnswers(process.dirty_jobs, reader.external_changes.note_change),
    )
