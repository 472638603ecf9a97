"""The series of quota policies and of watches, from `PolicyStats` and `WatchStats`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from elastic_operator.metrics.stats import PREFIX, PolicyStats, WatchStats, family


def policy_families(policies: Sequence[PolicyStats]) -> Iterator[Metric]:
    about = (
        "GPUs of a quota policy, as in its status: guaranteed, used, borrowed (used beyond the guarantee), lent (used"
        " by others), pending (its jobs wait for them), fair_share, and limit, if it has one."
    )
    flavors = ((policy.name, flavor, gpus) for policy in policies for flavor, gpus in policy.flavors.items())
    samples = (([name, flavor, kind], count) for name, flavor, gpus in flavors for kind, count in gpus.items())
    yield family(GaugeMetricFamily, "quota_gpus", about, ["policy", "flavor", "kind"], samples)
    about = "1 if a condition of a quota policy holds, otherwise 0: Ready, Overcommitted, Conflict and so on."
    held = (([policy.name, kind], holds) for policy in policies for kind, holds in policy.conditions.items())
    yield family(GaugeMetricFamily, "quota_condition", about, ["policy", "condition"], held)


def watch_families(watches: Mapping[str, WatchStats], kopf_restarts: int) -> Iterator[Metric]:
    """How recent the news of each watch are."""
    about = "Seconds since a watch last delivered anything."
    ages = (([kind], min(watch.age, 1e9)) for kind, watch in watches.items())
    yield family(GaugeMetricFamily, "watch_last_event_age_seconds", about, ["kind"], ages)
    about = (
        "Lists of a kind after its first: each costs the API server as much as all its objects. A new leader lists only"
        " metadata, and every minute that of jobs; these lists do not count."
    )
    relists = (([kind], watch.relists) for kind, watch in watches.items() if watch.relists is not None)
    yield family(CounterMetricFamily, "watch_relists", about, ["kind"], relists)
    about = "Lists and watches of a kind that failed and were retried."
    errors = (([kind], watch.errors) for kind, watch in watches.items())
    yield family(CounterMetricFamily, "watch_errors", about, ["kind"], errors)
    about = "The number of restarts of kopf, which watches the jobs."
    yield CounterMetricFamily(f"{PREFIX}kopf_restarts", about, value=kopf_restarts)
