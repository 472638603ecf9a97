"""Prometheus metrics of the operator process, in base units and with bounded labels.

Events are counted where they happen (`Metrics`). The present state is read when Prometheus asks (`OperatorStats`), so
that the series of a deleted object end, too (74). docs/metrics.md is made from the help texts.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.registry import Collector

from elastic_operator.metrics.counters import Counters
from elastic_operator.metrics.job_series import job_families
from elastic_operator.metrics.others import policy_families, watch_families
from elastic_operator.metrics.stats import OperatorStats


class Metrics(Counters):
    """All metrics, in a registry of their own."""

    def __init__(self) -> None:
        # Without this, each counter has a second series, which is not used.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        super().__init__(self.registry)
        ProcessCollector(registry=self.registry)

    def text(self, stats: OperatorStats) -> bytes:
        """Everything in the exposition format. Any thread may call it."""
        shown = CollectorRegistry()
        shown.register(_Shown(stats))
        return generate_latest(self.registry) + generate_latest(shown)


class _Shown(Collector):
    """The stats, for prometheus_client. Only a leader has those of jobs and policies, so that they count once (75)."""

    def __init__(self, stats: OperatorStats) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        yield from watch_families(self._stats.watches, self._stats.kopf_restarts)
        if self._stats.leads:
            yield from job_families(self._stats.jobs)
            yield from policy_families(self._stats.policies)
