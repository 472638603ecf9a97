"""Prometheus metrics of the operator process. Base units, no label without a bound."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PREFIX = "elastic_pytorch_"


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.api_requests = Counter(
            f"{PREFIX}api_requests_total", "Requests to the API server.", ["verb", "code"], registry=self.registry
        )
        self.passes = Histogram(
            f"{PREFIX}pass_seconds",
            "Time of one pass: read, decide, hand out.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
            registry=self.registry,
        )
        self.allocate = Histogram(
            f"{PREFIX}allocate_seconds",
            "Time of one allocation over all jobs.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
            registry=self.registry,
        )
        self.reconcile = Histogram(
            f"{PREFIX}reconcile_seconds",
            "Time to carry out one plan for one job, API calls included.",
            buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=self.registry,
        )
        self.reconcile_errors = Counter(
            f"{PREFIX}reconcile_errors_total", "Plans that could not be carried out.", registry=self.registry
        )
        self.watch_age = Gauge(
            f"{PREFIX}watch_last_event_age_seconds",
            "Seconds since a watch last said anything.",
            ["kind"],
            registry=self.registry,
        )
        self.leader = Gauge(f"{PREFIX}leader", "1 while this process leads.", registry=self.registry)
        self.evictions = Counter(
            f"{PREFIX}evictions_total", "Pods of jobs that went for other teams.", registry=self.registry
        )
        self.would_evict = Counter(
            f"{PREFIX}would_evict_total", "Pods that would have gone if reclaim were on.", registry=self.registry
        )
        self.nominations = Counter(
            f"{PREFIX}nominations_total", "Foreign pods that got a node reserved.", registry=self.registry
        )
        self.reservations = Gauge(
            f"{PREFIX}reservations", "Foreign pods that have a node reserved and are not bound.", registry=self.registry
        )
        self.reservations_expired = Counter(
            f"{PREFIX}reservations_expired_total", "Reservations that ran out.", registry=self.registry
        )
        self.breaker_open = Gauge(
            f"{PREFIX}reclaim_breaker_open", "1 while too many evictions have stopped reclaim.", registry=self.registry
        )
        self.jobs = Gauge(f"{PREFIX}jobs", "Jobs by the reason of Ready.", ["status"], registry=self.registry)

    def text(self) -> bytes:
        """Everything in the exposition format."""
        return generate_latest(self.registry)
