"""The content of /metrics about jobs, policies and watches: their state when Prometheus asks (74).

`OperatorStats` are made without awaiting anything and never change, so another thread may render them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from elastic_api.status import JobStatus
from elastic_operator.plan.job.observation import Observation

PREFIX = "elastic_pytorch_"
"""The beginning of every metric's name."""
Family: TypeAlias = GaugeMetricFamily | CounterMetricFamily


def family(
    kind: type[Family], name: str, about: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> Family:
    """The metric of that name with these samples: the values of its labels, and its value."""
    made = kind(f"{PREFIX}{name}", about, labels=labels)
    for values, value in samples:
        made.add_metric(values, value)
    return made


@dataclass(frozen=True, slots=True)
class JobStats:
    """One job as of the last pass, with the status of its last plan.

    `policy` is the quota policy of its namespace, "" without one. `seconds` is how it has spent its time, by kind, and
    `moved_at` when its step last moved (epoch seconds).
    """

    obs: Observation
    status: JobStatus
    policy: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    moved_at: float | None = None


@dataclass(frozen=True, slots=True)
class PolicyStats:
    """A quota policy: its GPUs by flavor and kind (without a limit there is no such kind), and its conditions."""

    name: str
    flavors: Mapping[str, Mapping[str, int]]
    conditions: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchStats:
    """One watch: seconds since its last news, lists after its first (None: it does not count them), errors."""

    age: float
    relists: int | None = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class OperatorStats:
    """The state of the operator for /metrics. A process that does not lead has no jobs and policies in it (75)."""

    leads: bool = False
    jobs: tuple[JobStats, ...] = ()
    policies: tuple[PolicyStats, ...] = ()
    watches: Mapping[str, WatchStats] = field(default_factory=dict)
    kopf_restarts: int = 0
