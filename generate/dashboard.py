"""The Grafana dashboard: the cluster, one job, reclaim, the operator. Its panels are the questions that people ask."""

from __future__ import annotations

import json
from pathlib import Path

from generate.grafana import Panel, Query, Row, Variable, dashboard

PATH = Path("charts/elastic-pytorch/files/dashboard.json")
UID = "elastic-pytorch"

_P = "elastic_pytorch_"
_JOB = '{namespace="$namespace",job_name="$job"}'

VARIABLES = (
    Variable("namespace", f"label_values({_P}job_info, namespace)"),
    Variable("job", f'label_values({_P}job_info{{namespace="$namespace"}}, job_name)'),
)


def _quota(kind: str) -> str:
    """GPUs of one kind, by policy and flavor; replicas of Prometheus or of the operator count once."""
    return f'max by (policy, flavor) ({_P}quota_gpus{{kind="{kind}"}})'


def _of_job(name: str, by: str = "") -> str:
    return f"max by ({by}) ({_P}{name}{_JOB})"


def _quantiles(name: str) -> tuple[Query, ...]:
    """Median and 99th percentile of a histogram."""
    rate = f"sum by (le) (rate({_P}{name}_bucket[$__rate_interval]))"
    return tuple(Query(f"histogram_quantile({q}, {rate})", f"p{q * 100:.0f}") for q in (0.5, 0.99))


def _rate(name: str, by: str) -> str:
    return f"sum by ({by}) (rate({_P}{name}[$__rate_interval]))"


def _increase(name: str, by: str) -> str:
    return f"sum by ({by}) (increase({_P}{name}[$__rate_interval]))"


_TEAM = "{{policy}} {{flavor}}"

CLUSTER = Row(
    "Cluster",
    (
        Panel("GPUs used", "Who uses the GPUs?", (Query(_quota("used"), _TEAM),), stacked=True),
        Panel(
            "GPUs borrowed",
            "Who uses more than its guarantee, and would have to lose pods?",
            (Query(_quota("borrowed"), _TEAM),),
            stacked=True,
        ),
        Panel(
            "GPUs waited for",
            "Who wants GPUs and does not get them?",
            (Query(_quota("pending"), _TEAM),),
            stacked=True,
        ),
        Panel(
            "Guarantee not used",
            "Who leaves how much of its guarantee idle or lent to others?",
            (Query(f"clamp_min({_quota('guaranteed')} - {_quota('used')}, 0)", _TEAM),),
            stacked=True,
        ),
        Panel(
            "Used against fair share",
            "Who has more than its fair share (above 1), who less?",
            (Query(f"{_quota('used')} / ({_quota('fair_share')} > 0)", _TEAM),),
            unit="percentunit",
        ),
        Panel(
            "Jobs by status",
            "How many jobs run, wait or fail?",
            (Query(f"max by (status) ({_P}jobs)", "{{status}}"),),
            stacked=True,
        ),
        Panel(
            "Why jobs are not bigger",
            "What limits the jobs that are below their maximum?",
            (Query(f'count by (limited_by) ({_P}job_status{{limited_by!~"|AtMaximum"}})', "{{limited_by}}"),),
            stacked=True,
        ),
        Panel(
            "Time in the queue",
            "How long does a job wait for its first pods?",
            _quantiles("queue_wait_seconds"),
            unit="s",
        ),
        Panel(
            "Where the time of jobs goes",
            "How much of the time of all jobs is training, and what is the rest?",
            (Query(_rate("job_time_seconds_total", "kind"), "{{kind}}"),),
            stacked=True,
        ),
    ),
)

JOB = Row(
    "Job $namespace/$job",
    (
        Panel(
            "Status",
            "What does the job do, and why is it not bigger?",
            (Query(_of_job("job_status", "status, limited_by") + " == 1", "{{status}}, limited by {{limited_by}}"),),
            kind="names",
        ),
        Panel(
            "Pods",
            "How many pods may it have, should it have, and does it have?",
            (Query(_of_job("job_pods", "state"), "{{state}}"),),
        ),
        Panel(
            "World size and GPUs",
            "How many processes train together, on how many GPUs?",
            (Query(_of_job("job_world_size"), "processes"), Query(_of_job("job_gpus"), "GPUs")),
        ),
        Panel(
            "Steps per second",
            "How fast does it train?",
            (Query(f"clamp_min(deriv({_P}job_step{_JOB}[$__rate_interval]), 0)", "steps/s"),),
        ),
        Panel(
            "Goodput",
            "Which share of its time was training that counted?",
            (Query(_of_job("job_goodput_ratio"), "goodput"),),
            unit="percentunit",
        ),
        Panel("Loss", "Does it learn?", (Query(_of_job("job_loss"), "loss"),)),
        Panel(
            "Steps since the last checkpoint",
            "How many steps would be lost with it now?",
            (Query(f"{_of_job('job_step')} - {_of_job('job_last_checkpoint_step')}", "steps"),),
        ),
        Panel(
            "Restarts and changes of size",
            "How often was it disturbed?",
            (Query(_of_job("job_restarts_total"), "restarts"), Query(_of_job("job_resizes_total"), "changes of size")),
        ),
        Panel(
            "Where its time goes",
            "Did it train, start, form a new group, do work again or wait?",
            (Query(f"sum by (kind) (rate({_P}job_time_seconds_total{_JOB}[$__rate_interval]))", "{{kind}}"),),
            stacked=True,
        ),
    ),
)

RECLAIM = Row(
    "Giving back",
    (
        Panel(
            "Time until reclaimed",
            "How long does an entitled request wait for GPUs that others borrowed?",
            _quantiles("reclaim_seconds"),
            unit="s",
        ),
        Panel(
            "GPUs asked for and taken",
            "Is more taken from borrowers than was asked for?",
            (
                Query(f"sum(increase({_P}reclaim_requested_gpus_total[$__rate_interval]))", "asked for"),
                Query(f"sum(increase({_P}reclaim_evicted_gpus_total[$__rate_interval]))", "taken"),
            ),
        ),
        Panel(
            "Pods evicted for others",
            "How many pods of jobs went, or would have gone if reclaim were on?",
            (
                Query(f"sum(increase({_P}evictions_total[$__rate_interval]))", "went"),
                Query(f"sum(increase({_P}would_evict_total[$__rate_interval]))", "would have gone"),
            ),
        ),
        Panel(
            "Reservations",
            "For how many foreign pods is a place held, and how many lost theirs?",
            (
                Query(f"max({_P}reservations)", "held"),
                Query(f"sum(increase({_P}reservations_expired_total[$__rate_interval]))", "ran out"),
            ),
        ),
        Panel(
            "Reclaim stopped",
            "Did too many evictions stop reclaim (1)?",
            (Query(f"max({_P}reclaim_breaker_open)", "stopped"),),
        ),
        Panel(
            "Changes of size",
            "Which way do jobs change, and why?",
            (Query(_increase("resizes_total", "direction, reason"), "{{direction}} {{reason}}"),),
            stacked=True,
        ),
        Panel(
            "Pause of a change",
            "How long does training stand still when a job changes its size?",
            _quantiles("resize_pause_seconds"),
            unit="s",
        ),
        Panel(
            "Steps lost by changes",
            "How much is trained twice?",
            (Query(f"sum(increase({_P}resize_lost_steps_total[$__rate_interval]))", "steps"),),
        ),
        Panel(
            "Restarts",
            "How often are jobs started over, and why?",
            (Query(_increase("restarts_total", "cause"), "{{cause}}"),),
            stacked=True,
        ),
    ),
)

OPERATOR = Row(
    "Operator",
    (
        Panel(
            "Leader",
            "Which replica leads (1), and which stands by (0)?",
            (Query(f"max by (pod, instance) ({_P}leader)", "{{pod}} {{instance}}"),),
        ),
        Panel(
            "Version",
            "Which versions run?",
            (Query(f"count by (version, contract, python) ({_P}build_info)", "{{version}}, contract {{contract}}"),),
            kind="names",
        ),
        Panel(
            "Time of a decision",
            "How long do one pass, one allocation over all jobs, and one job's writes take (99th percentile)?",
            tuple(
                Query(f"histogram_quantile(0.99, {_rate(f'{name}_seconds_bucket', 'le')})", name)
                for name in ("pass", "allocate", "reconcile")
            ),
            unit="s",
        ),
        Panel(
            "Plans that failed",
            "How many writes for a job did not succeed?",
            (Query(f"sum(increase({_P}reconcile_errors_total[$__rate_interval]))", "plans"),),
        ),
        Panel(
            "Requests to the API server",
            "What does the operator ask, and what is it answered?",
            (Query(_rate("api_requests_total", "verb, code"), "{{verb}} {{code}}"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            "Age of watches",
            "How long has the operator heard nothing of a kind of object?",
            (Query(f"max by (kind) ({_P}watch_last_event_age_seconds)", "{{kind}}"),),
            unit="s",
        ),
        Panel(
            "Watches begun anew",
            "How often was a whole kind read again, or did a watch break?",
            (
                Query(_increase("watch_relists_total", "kind"), "{{kind}} read again"),
                Query(_increase("watch_errors_total", "kind"), "{{kind}} broke"),
            ),
        ),
        Panel(
            "Memory",
            "How much memory does each replica hold?",
            (Query(f"process_resident_memory_bytes and on (pod, instance) {_P}leader", "{{pod}} {{instance}}"),),
            unit="bytes",
        ),
        Panel(
            "Events dropped",
            "Were there more events than could be written?",
            (Query(f"sum(increase({_P}events_dropped_total[$__rate_interval]))", "events"),),
        ),
    ),
)

ROWS = (CLUSTER, JOB, RECLAIM, OPERATOR)


def text() -> str:
    """The dashboard as Grafana imports it."""
    model = dashboard(uid=UID, title="Elastic PyTorch jobs", variables=VARIABLES, rows=ROWS)
    return json.dumps(model, indent=1, ensure_ascii=False) + "\n"


def queries() -> dict[str, str]:
    """What the panels ask, with Grafana's variables in it, by `row / panel / series`."""
    return {
        f"{row.title} / {panel.title} / {query.legend}": query.expr
        for row in ROWS
        for panel in row.panels
        for query in panel.queries
    }


def filled_in(query: str, *, namespace: str, job: str, interval: str = "1m") -> str:
    """The query as Grafana sends it for one job."""
    for name, value in (("$namespace", namespace), ("$job", job), ("$__rate_interval", interval)):
        query = query.replace(name, value)
    return query
