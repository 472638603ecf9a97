"""The series of jobs, from `JobStats`. A deleted job has no later ones, so its series end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from elastic_api.status import ConditionType
from elastic_operator.metrics.job_times import TIME_KINDS
from elastic_operator.metrics.stats import PREFIX, Family, JobStats, family
from elastic_operator.plan.facts.group_report import Goodput
from elastic_operator.plan.job.master_report import report_of
from elastic_operator.plan.job.observation import NodeState, is_running

JOB = ("namespace", "job_name")


def job_families(jobs: Iterable[JobStats]) -> Iterator[Metric]:
    """All series. A job has no sample for an unknown value."""
    jobs = list(jobs)
    yield _by_status(jobs)
    yield _info(jobs)
    yield _status(jobs)
    yield _pods(jobs)
    for kind, name, about, of in EACH_JOB:
        values = ((_name(job), of(job)) for job in jobs)
        yield family(kind, name, about, JOB, ((labels, value) for labels, value in values if value is not None))
    yield _time(jobs)
    yield from _totals(jobs)


def _totals(jobs: list[JobStats]) -> Iterator[Metric]:
    about = "Nodes with pods of jobs that are not Ready for too long, and that the operator keeps: too many at once."
    kept: set[str] = set().union(*(job.obs.nodes_in(NodeState.KEPT) for job in jobs))
    yield GaugeMetricFamily(f"{PREFIX}kept_nodes", about, value=len(kept))
    about = "Jobs that request devices by dynamic resource allocation, which the operator does not count."
    value = sum(ConditionType.DEVICES_NOT_COUNTED in job.obs.job.context.warnings for job in jobs)
    yield GaugeMetricFamily(f"{PREFIX}uncounted_jobs", about, value=value)
    about = "Jobs that the operator holds at their size, because it changed too often without a cause."
    value = sum(job.status.held_until is not None for job in jobs)
    yield GaugeMetricFamily(f"{PREFIX}flapping_jobs", about, value=value)


def _by_status(jobs: list[JobStats]) -> Metric:
    counted = Counter(_reason(job, ConditionType.READY) for job in jobs)
    samples = (([status], count) for status, count in sorted(counted.items()))
    return family(GaugeMetricFamily, "jobs", "Jobs by the reason of Ready.", ["status"], samples)


def _info(jobs: list[JobStats]) -> Metric:
    about = "1 for each job: its quota policy (empty: none covers its namespace) and its runtime.mode."
    specs = ((job, job.obs.job.spec) for job in jobs)
    samples = (([*_name(job), job.policy, str(spec.runtime.mode) if spec else ""], 1) for job, spec in specs)
    return family(GaugeMetricFamily, "job_info", about, [*JOB, "policy", "mode"], samples)


def _status(jobs: list[JobStats]) -> Metric:
    about = "1 for each job: the reason of Ready (STATUS), and of FullSize (LIMITED BY; empty when it has ended)."
    shown = (ConditionType.READY, ConditionType.FULL_SIZE)
    samples = (([*_name(job), *(_reason(job, kind) for kind in shown)], 1) for job in jobs)
    return family(GaugeMetricFamily, "job_status", about, [*JOB, "status", "limited_by"], samples)


def _pods(jobs: list[JobStats]) -> Metric:
    about = (
        "Pods of a job that has not ended: minimum and maximum (from its spec), target (granted now), running (the main"
        " container runs) and ready."
    )
    unfinished = [job for job in jobs if not job.status.finished]
    samples = (([*_name(job), state], count) for job in unfinished for state, count in _counts(job))
    return family(GaugeMetricFamily, "job_pods", about, [*JOB, "state"], samples)


def _counts(job: JobStats) -> Iterator[tuple[str, int]]:
    spec = job.obs.job.spec
    if spec is not None:
        yield "minimum", spec.minimum
        yield "maximum", spec.max_replicas
    yield "target", job.status.target_replicas
    yield "running", sum(map(is_running, job.obs.members))
    yield "ready", job.status.ready_replicas


def _reported(name: str) -> Callable[[JobStats], float | None]:
    """The value of that name in the master's last report, else the last one in the status."""

    def value(job: JobStats) -> float | None:
        found: Goodput | float | None = getattr(report_of(job.obs) or job.status.training, name, None)
        return found.share if isinstance(found, Goodput) else found

    return value


EACH_JOB: tuple[tuple[type[Family], str, str, Callable[[JobStats], float | None]], ...] = (
    (
        GaugeMetricFamily,
        "job_world_size",
        "Training processes of a job that has not ended.",
        lambda job: job.status.world_size if not job.status.finished else None,
    ),
    (
        GaugeMetricFamily,
        "job_gpus",
        "GPUs that the pods of a job that has not ended hold.",
        lambda job: job.status.gpus if not job.status.finished else None,
    ),
    (GaugeMetricFamily, "job_created_timestamp_seconds", "When the job was created.", lambda job: job.obs.job.created),
    (
        CounterMetricFamily,
        "job_restarts",
        "Unplanned changes of a job: failures and lost pods. From its status, so it outlives the operator.",
        lambda job: job.obs.job.status.restarts,
    ),
    (
        CounterMetricFamily,
        "job_resizes",
        "Planned changes of a job's size. From its status, so it outlives the operator.",
        lambda job: job.obs.job.status.resizes,
    ),
    (
        GaugeMetricFamily,
        "job_step",
        "Completed optimizer steps, as the job's master reported within the last half minute; Elastic mode.",
        _reported("step"),
    ),
    (
        GaugeMetricFamily,
        "job_epoch",
        "Completed passes over the data; scripts that use the library.",
        _reported("epoch"),
    ),
    (
        GaugeMetricFamily,
        "job_loss",
        "The loss that the script last reported, if it is a finite number; scripts that use the library.",
        _reported("loss"),
    ),
    (
        GaugeMetricFamily,
        "job_goodput_ratio",
        "The share of time (0 to 1) spent in steps that counted, since the master's first training process started;"
        " scripts that use the library.",
        _reported("goodput"),
    ),
    (
        GaugeMetricFamily,
        "job_last_checkpoint_step",
        "The step of the newest complete checkpoint; Elastic mode.",
        _reported("last_checkpoint_step"),
    ),
    (
        GaugeMetricFamily,
        "job_last_progress_timestamp_seconds",
        "When this process last saw the step advance or another master begin; not while the job waits for GPUs; Elastic"
        " mode.",
        lambda job: job.moved_at if not job.status.finished else None,
    ),
)


def _time(jobs: list[JobStats]) -> Metric:
    about = (
        "The use of a job's time while this process led. For scripts that use the library it is their own account"
        " (regroup is reform; the part other, such as evaluation, is omitted), and waiting as the operator sees it. For"
        " all others it follows the reason of Ready: Queued and Suspended are waiting, Starting and Rendezvousing"
        " startup, Resizing reform, Restarting lost, Running and Degraded productive; there checkpoint stays 0."
    )
    samples = (([*_name(job), kind], job.seconds.get(kind, 0.0)) for job in jobs for kind in TIME_KINDS)
    return family(CounterMetricFamily, "job_time_seconds", about, [*JOB, "kind"], samples)


def _name(job: JobStats) -> tuple[str, str]:
    return job.obs.job.namespace, job.obs.job.name


def _reason(job: JobStats, kind: ConditionType) -> str:
    condition = job.status.condition(kind)
    return condition.reason if condition else ""
