"""Builders for what metrics show: the stats, and the samples that come of them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from elastic_operator.metrics import Metrics
from elastic_operator.metrics.stats import JobStats, OperatorStats
from elastic_operator.plan.facts.group_report import Goodput, GroupReport
from tests.plan.elastic.jobs import make_elastic_job, make_group
from tests.plan.jobs import BOTH, START, make_job, plan, see, with_facts

P = "elastic_pytorch_"


def make_report(**fields) -> GroupReport:
    """Of a script with the library, by the master of the builders."""
    known = {
        "master_uid": "uid-master-0",
        "read_at": START + 195,
        "generation": 5,
        "state": "Running",
        "members": ("toy-master-0", "toy-worker-0"),
        "world_size": 2,
        "step": 70,
        "last_checkpoint_step": 60,
        "epoch": 2,
        "samples_seen": 4480,
        "loss": 0.25,
        "goodput": Goodput(0.875, {"productive": 70.0, "startup": 10.0}),
    }
    return GroupReport(**{**known, **fields})


def show(job=None, *, grant=BOTH, **fields) -> JobStats:
    """A job as it is after a look and a plan."""
    job = job or make_job()
    return JobStats(obs=see(job), status=plan(job, grant).status, **fields)


def show_elastic(report=None, **fields) -> JobStats:
    """A job in Elastic mode, whose master has said that."""
    return show(with_facts(make_elastic_job(make_group(1)), report=report or make_report()), **fields)


def parse(text: bytes) -> dict[tuple[str, ...], float]:
    """Values by name and labels, these as `key=value` in the order of the keys; every sample once."""
    samples = [s for family in text_string_to_metric_families(text.decode()) for s in family.samples]
    found = {(s.name.removeprefix(P), *(f"{k}={v}" for k, v in sorted(s.labels.items()))): s.value for s in samples}
    assert len(found) == len(samples), "a series is told twice"
    return found


def samples_of(*jobs: JobStats, leads: bool = True, **fields):
    """What /metrics says of these jobs."""
    return parse(Metrics().text(OperatorStats(leads=leads, jobs=jobs, **fields)))


def of(found, name: str) -> dict[tuple[str, ...], float]:
    """The samples of that name, by their labels but the job's own."""
    own = ("namespace=", "job_name=")
    return {
        tuple(label for label in labels if not label.startswith(own)): value
        for (this, *labels), value in found.items()
        if this == name
    }
