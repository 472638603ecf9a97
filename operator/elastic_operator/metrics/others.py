"""The series of quota policies and of watches, from `PolicyStats` and `WatchStats`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from elastic_operator.metrics.stats import PREFIX, PolicyStats, WatchStats


def policy_families(policies: Iterable[PolicyStats]) -> Iterator[Metric]:
    """The GPUs of policies, and their problems."""
    about = (
        "GPUs of a quota policy, as in its status: guaranteed, used, borrowed (used beyond the guarantee), lent (used"
        " by others), pending (its jobs wait for them), fair_share, and limit, if it has one."
    )
    family = GaugeMetricFamily(f"{PREFIX}quota_gpus", about, labels=["policy", "flavor", "kind"])
    about = "1 if a condition of a quota policy holds, otherwise 0: Ready, Overcommitted, Conflict and so on."
    conditions = GaugeMetricFamily(f"{PREFIX}quota_condition", about, labels=["policy", "condition"])
    for policy in policies:
        for flavor, gpus in policy.flavors.items():
            for kind, count in gpus.items():
                family.add_metric([policy.name, flavor, kind], count)
        for condition, holds in policy.conditions.items():
            conditions.add_metric([policy.name, condition], holds)
    yield from (family, conditions)


def watch_families(watches: Mapping[str, WatchStats], kopf_restarts: int) -> Iterator[Metric]:
    """How recent the news of each watch are."""
    age = GaugeMetricFamily(
        f"{PREFIX}watch_last_event_age_seconds", "Seconds since a watch last delivered anything.", labels=["kind"]
    )
    relists = CounterMetricFamily(
        f"{PREFIX}watch_relists",
        "Lists of a kind after its first: each costs the API server as much as all its objects. A new leader lists only"
        " metadata, and every minute that of jobs; these lists do not count.",
        labels=["kind"],
    )
    errors = CounterMetricFamily(
        f"{PREFIX}watch_errors", "Lists and watches of a kind that failed and were retried.", labels=["kind"]
    )
    for kind, watch in watches.items():
        age.add_metric([kind], min(watch.age, 1e9))
        if watch.relists is not None:
            relists.add_metric([kind], watch.relists)
        errors.add_metric([kind], watch.errors)
    yield from (age, relists, errors)
    about = "The number of restarts of kopf, which watches the jobs."
    yield CounterMetricFamily(f"{PREFIX}kopf_restarts", about, value=kopf_restarts)
