"""docs/metrics.md: every metric with its type, labels and help text, read back from the operator's own output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from elastic_api.job import JobSpec
from elastic_api.policy import PolicyConditionType
from elastic_api.status import JobStatus
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.changes import JobChanges
from elastic_operator.metrics.stats import PREFIX, JobStats, OperatorStats, PolicyStats, WatchStats
from elastic_operator.plan.facts.group_report import Goodput, GroupReport
from elastic_operator.plan.facts.job import Job, JobFeedback, MainContainer, OwnPod
from elastic_operator.plan.job.observation import Observation
from elastic_worker.launcher.metrics import PREFIX as LAUNCHER
from elastic_worker.launcher.metrics import Totals, render

PATH = Path("docs/metrics.md")

_HEAD = """\
<!-- Made from the metrics themselves by `make generated`; do not edit. -->
# Metrics

Each replica of the operator serves its metrics at `/metrics`, on the port of its probes. Only the leader has series of
jobs and of quota policies; they end with the job or the policy. Counters start at 0 in each process; a job's restarts
and resizes continue, because its status has them.
"""


def _one_of(*beginnings: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(tuple(f"{PREFIX}{beginning}" for beginning in beginnings))


GROUPS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("Each job", "All have the labels `namespace` and `job_name`.", _one_of("job_")),
    ("All jobs", "", _one_of("jobs", "resize", "restarts", "queue_wait")),
    (
        "Sharing between teams",
        "The terms: [Who gets how many GPUs](quotas.md).",
        _one_of("quota", "reclaim", "evict", "would_evict", "nominations", "reservations"),
    ),
    ("The operator", "", lambda name: name.startswith(PREFIX)),
    ("Its process", "", lambda name: name.startswith("process_")),
    (
        "Each pod in Elastic mode",
        "The launcher serves these at port 29401 of each pod (with `hostNetwork`: `ELASTIC_STATUS_PORT`); the "
        "master's has the most.",
        lambda name: name.startswith(LAUNCHER),
    ),
)
"""Title, introduction, and which metrics; each belongs to the first that takes it."""


def text() -> str:
    """The whole page. Raises ValueError for a metric that no group takes."""
    grouped: dict[str, list[Metric]] = {title: [] for title, _, _ in GROUPS}
    for family in families():
        grouped[_group(family.name)].append(family)
    return _HEAD + "".join(_section(title, about, grouped[title]) for title, about, _ in GROUPS)


def families() -> list[Metric]:
    """All metrics, as Prometheus reads them, with at least one sample each that has its labels."""
    metrics = Metrics()
    metrics.api_requests.labels("GET", "200")
    metrics.count_job(JobChanges())
    shown = metrics.text(_everything()).decode() + render(_launchers_status(), Totals())
    return list(text_string_to_metric_families(shown))


def _group(name: str) -> str:
    found = next((title for title, _, takes in GROUPS if takes(name)), None)
    if found is None:
        raise ValueError(f"no group of {__name__} takes {name}")
    return found


def _section(title: str, about: str, metrics: Iterable[Metric]) -> str:
    rows = "".join(_row(metric) for metric in metrics)
    intro = f"{about}\n\n" if about else ""
    return f"\n## {title}\n\n{intro}| metric | type | labels | what it says |\n|---|---|---|---|\n{rows}"


def _row(metric: Metric) -> str:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    about = metric.documentation.replace("|", r"\|")
    return f"| `{name}` | {metric.type} | {'; '.join(_labels(metric))} | {about} |\n"


def _labels(metric: Metric) -> Iterator[str]:
    """Each label, with its values if these are always the same few."""
    values: dict[str, list[str]] = {}
    for sample in metric.samples:
        for label, value in sample.labels.items():
            if label != "le" and value not in values.setdefault(label, []):
                values[label].append(value)
    for label, found in values.items():
        if not (metric.name.startswith(f"{PREFIX}job_") and label in ("namespace", "job_name")):
            yield f"`{label}`: {', '.join(found)}" if len(found) > 1 else f"`{label}`"


def _everything() -> OperatorStats:
    """A leader's, with one of each."""
    kinds = ("guaranteed", "used", "borrowed", "lent", "pending", "fair_share", "limit")
    return OperatorStats(
        leads=True,
        jobs=(_job(),),
        policies=(PolicyStats("a", {"default": dict.fromkeys(kinds, 0)}, dict.fromkeys(PolicyConditionType, False)),),
        watches={"pods": WatchStats(0.0)},
    )


def _job() -> JobStats:
    """A job of which everything is known."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x", "args": ["train.py"]}]}}
    spec = {"minReplicas": 1, "maxReplicas": 1, "runtime": {"mode": "Elastic"}, "template": template}
    master = OwnPod(
        requests={},
        namespace="a",
        name="toy-master-0",
        uid="m",
        role="master",
        index=0,
        incarnation=1,
        phase="Running",
        created=0.0,
        main=MainContainer(running_since=0.0),
    )
    report = GroupReport(
        master_uid="m",
        read_at=0.0,
        generation=1,
        state="Running",
        step=1,
        last_checkpoint_step=1,
        epoch=1,
        loss=1.0,
        goodput=Goodput(1.0),
    )
    job = Job(
        namespace="a",
        name="toy",
        uid="j",
        generation=1,
        created=0.0,
        status=JobStatus(),
        spec=JobSpec.model_validate(spec),
        pods=(master,),
        feedback=JobFeedback(report=report),
    )
    return JobStats(Observation(job, job.status, members=(master,)), job.status, moved_at=0.0)


def _launchers_status() -> dict[str, object]:
    """A master's, of which everything is known."""
    parts = ("startup", "productive", "lost", "regroup", "checkpoint", "other")
    goodput = {"share": 1.0, "seconds": dict.fromkeys(parts, 0.0)}
    training = {"step": 1, "lastCheckpointStep": 1, "epoch": 1, "samplesSeen": 1, "loss": 1.0, "goodput": goodput}
    reasons = ("Start", "Join", "Leave", "Loss", "Failure", "MasterLost")
    changes = [{"generation": number, "reason": reason} for number, reason in enumerate(reasons)]
    known = {"generation": 1, "epoch": 1, "worldSize": 1, "failures": 0, "checkpoints": 1, "warm": True}
    return {**known, "state": "Running", "training": training, "changes": changes}
