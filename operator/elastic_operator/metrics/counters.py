"""Values that are counted and measured as they happen.

Every value that a label may have is there from the start, at 0, so that `increase()` sees the first event, too.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from enum import StrEnum
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from elastic_operator.metrics.changes import RESIZES, JobChanges
from elastic_operator.metrics.stats import PREFIX
from elastic_worker import contract

PASS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3)
WRITE = (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
PAUSE = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
RECLAIM = (0.5, 1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 300, 600)
RATIO = (0.1, 0.25, 0.5, 0.8, 0.9, 1.1, 1.25, 2, 4, 10)
QUEUE = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600)
"""Upper bounds of histograms, in seconds; RATIO without a unit."""
WATCHED_KINDS = [
    "job",
    "pod",
    "policy",
    "node",
    "namespace",
    "priorityclass",
    "deviceclass",
    "claim",
    "volume",
    "service",
    "slice",
    "resourcequota",
]
"""The kinds that the operator watches."""


class PassReason(StrEnum):
    """Why a pass began: START, EVENT or ERROR, or else the time that was due first."""

    START = "start"
    EVENT = "event"
    ERROR = "error"
    ALLOCATION = "allocation"
    FOREIGN_PODS = "foreign_pods"
    PLAN = "plan"
    QUARANTINE = "quarantine"
    DRY_RUN = "dry_run"
    RESYNC = "resync"
    LEDGER = "ledger"
    LONGEST_WAIT = "longest_wait"


class Counters:
    """Counters, histograms, and gauges of the process itself."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._of_the_process()
        self._of_passes()
        self._of_jobs()
        self._of_forecasts()
        self._of_reclaim()

    def count_request(self, verb: str, code: str) -> None:
        """Count a request to the API server by its outcome: an HTTP status, or a word. Any thread may call it."""
        self.api_requests.labels(verb, code).inc()

    def count_job(self, changes: JobChanges) -> None:
        for direction, reason in changes.resizes:
            self.resizes.labels(direction, reason).inc()
        self.restarts.labels("failure").inc(changes.failures)
        self.restarts.labels("loss").inc(changes.losses)
        for pause in changes.pauses:
            self.resize_pause.observe(pause)
        self.lost_steps.inc(changes.lost_steps)
        if changes.queue_wait is not None:
            self.queue_wait.observe(changes.queue_wait)

    def count_error(self, kind: str) -> None:
        """Count an error of the operator's own at an object of that kind."""
        self.internal_errors.labels(kind).inc()

    def stand_by(self) -> None:
        """Reset the present state when this process does not lead any more: another process reports it (75)."""
        for gauge in (self.leader, self.reservations, self.waiting_for_limit, self.too_large, self.reclaim_unanswered):
            gauge.set(0)

    def _of_the_process(self) -> None:
        self.build_info = self._gauge(
            "build_info",
            "1; the operator's version, and the version of its contract with pods.",
            "version contract python",
        )
        self.build_info.labels(version("elastic-pytorch-operator"), contract.VERSION, platform.python_version()).set(1)
        self.leader = self._gauge("leader", "1 while this process leads.")
        self.api_requests = self._counter("api_requests", "Requests to the API server.", "verb code")
        self.events_dropped = self._counter(
            "events_dropped",
            "Kubernetes events that the operator did not write: too many at once, too many of one job, or refused.",
        )

    def _of_passes(self) -> None:
        self.passes = self._histogram("pass_seconds", "Time of one pass: read, decide, issue plans.", PASS)
        self.passes_by_reason = self._counter(
            "passes",
            "Passes by what began them: the start of a leader, an event (a change, or an answer to a write), an error"
            " of the last pass, or a time: of the allocation (a wait or a protection ended), of foreign pods, of a plan"
            " (a retry, a status or a message is due), of an object in quarantine, of a dry run, of the resync, of the"
            " ledger (a pod is overdue, or was not created), or the longest wait.",
            "reason",
            [(reason,) for reason in PassReason],
        )
        self.allocate = self._histogram("allocate_seconds", "Time of one allocation over all jobs.", PASS)
        self.not_lasting = self._counter(
            "not_lasting",
            "Grants that the operator withheld, because the next pass would have undone them.",
        )
        self.reconcile = self._histogram(
            "reconcile_seconds", "Time to carry out one plan for one job, API calls included.", WRITE
        )
        self.reconcile_errors = self._counter(
            "reconcile_errors", "Plans that failed. Conflicts with other clients' writes do not count."
        )
        self.pass_errors = self._counter("pass_errors", "Passes that failed by an error that no single object caused.")
        self.internal_errors = self._counter(
            "internal_errors",
            "Internal errors of the operator at one object, which it quarantined while it served all others; the log"
            " names the object.",
            "kind",
            [(kind,) for kind in WATCHED_KINDS],
        )

    def _of_jobs(self) -> None:
        self.resizes = self._counter(
            "resizes",
            "Planned changes of jobs' sizes, by the reason in their history.",
            "direction reason",
            [(direction, reason) for direction, reasons in RESIZES.items() for reason in reasons],
        )
        self.restarts = self._counter(
            "restarts",
            "Unplanned changes of jobs: failure (a script or its launcher failed), loss (pods lost; each counts).",
            "cause",
            [("failure",), ("loss",)],
        )
        self.resize_pause = self._histogram(
            "resize_pause_seconds", "Time without a step, per change of size; Elastic mode.", PAUSE
        )
        self.lost_steps = self._counter(
            "resize_lost_steps", "Steps that jobs repeated after changes of size; Elastic mode."
        )
        self.queue_wait = self._histogram(
            "queue_wait_seconds",
            "How long jobs waited for their first pods: since they were created, resumed, or lost all their pods.",
            QUEUE,
        )

    def _of_forecasts(self) -> None:
        self.forecast = self._histogram(
            "forecast_seconds", "Time of one step of a what-if answer or an estimate, beside the passes.", PASS
        )
        self.forecast_errors = self._counter(
            "forecast_errors",
            "What-if answers and estimates that failed by an internal error of the operator; the log has the error.",
        )
        self.what_ifs = self._counter(
            "what_ifs",
            "Answered what-if questions of suspended jobs, by whether their minimum would start.",
            "fits",
            [("true",), ("false",)],
        )
        self.start_estimates = self._counter("start_estimates", "Estimated starts that waiting jobs got.")
        self.start_estimate_ratio = self._histogram(
            "start_estimate_ratio",
            "The actual wait of jobs after each estimate of their start, divided by the estimate: 1 is exact, 2 twice"
            " as long.",
            RATIO,
        )

    def _of_reclaim(self) -> None:
        self.evictions = self._counter("evictions", "Pods of jobs that the operator evicted for other teams.")
        self.would_evict = self._counter("would_evict", "Pods that the operator would have evicted if reclaim were on.")
        self.reclaim = self._histogram(
            "reclaim_seconds",
            "The wait of jobs and foreign pods for which the operator evicted pods of other teams, since this process"
            " first saw their request: a foreign pod until it was bound, a job until it had the pods of its minimum.",
            RECLAIM,
        )
        self.requested_gpus = self._counter(
            "reclaim_requested_gpus",
            "GPUs that jobs and foreign pods lacked, and for which the operator evicted pods of other teams.",
        )
        self.evicted_gpus = self._counter(
            "reclaim_evicted_gpus", "GPUs of the pods that the operator evicted for other teams."
        )
        self.nominations = self._counter("nominations", "Foreign pods for which the operator reserved a node.")
        self.reservations = self._gauge("reservations", "Foreign pods with a reserved node that are not bound yet.")
        self.reservations_expired = self._counter("reservations_expired", "Reservations that expired.")
        self.waiting_for_limit = self._gauge("reclaim_breaker_open", "Jobs and pods that wait for a limit of reclaim.")
        text = (
            "Jobs and pods that need more evictions at once than the configured limit allows. They wait until an"
            " administrator raises the limit."
        )
        self.too_large = self._gauge("reclaim_too_large", text)
        self.reclaim_unanswered = self._gauge(
            "reclaim_unanswered",
            "Jobs whose pods wait to be evicted until the API server has answered the dry runs of the preemptors.",
        )

    def _counter(self, name: str, about: str, labels: str = "", values: Iterable[Sequence[str]] = ()) -> Counter:
        """A counter with these labels; all their `values` are there from the start."""
        made = Counter(f"{PREFIX}{name}", about, labels.split(), registry=self._registry)
        for each in values:
            made.labels(*each)
        return made

    def _gauge(self, name: str, about: str, labels: str = "") -> Gauge:
        return Gauge(f"{PREFIX}{name}", about, labels.split(), registry=self._registry)

    def _histogram(self, name: str, about: str, bounds: tuple[float, ...]) -> Histogram:
        return Histogram(f"{PREFIX}{name}", about, buckets=bounds, registry=self._registry)
