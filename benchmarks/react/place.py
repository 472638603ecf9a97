"""Brings up and fills the measured cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.live import place as live
from benchmarks.live.place import Place, jobs_of, pods_of
from benchmarks.react import scenario
from benchmarks.react.scenario import NAMESPACE, Scenario
from devcluster.progress import Progress

POLICY = Path(__file__).parent / "audit-policy.yaml"
PODS, JOBS = pods_of(NAMESPACE), jobs_of(NAMESPACE)
JOBS_AT_ONCE = 25


@contextmanager
def standing(name: str, plan: Scenario, *, replicas: int, keep: bool, progress: Progress) -> Iterator[Place]:
    """The cluster with its two pools and the operator; see `live.standing`."""
    with live.standing(name, audited=POLICY, replicas=replicas, keep=keep, progress=progress) as place:
        for pool, count in (("full", plan.full_nodes), ("roomy", plan.roomy_nodes)):
            labels = scenario.pool(pool)
            gpus = scenario.GPUS_PER_NODE
            place.add_nodes(count, gpus=gpus, prefix=f"{pool}-", labels=labels, progress=progress)
        yield place


def scale(place: Place, job: str, size: int) -> None:
    """Send the request of `kubectl scale`."""
    place.merge(f"{JOBS}/{job}/scale", {"spec": {"replicas": size}})


def fill(place: Place, plan: Scenario, progress: Progress) -> None:
    """Create the foreign pods, then the jobs at their first size; then let the jobs request twice as much."""
    place.create_namespace(NAMESPACE)
    with progress.step(f"{len(plan.foreign_pods)} foreign pods"):
        place.create_all([(PODS, scenario.foreign_pod(name)) for name in plan.foreign_pods])
        _until_ready(place, len(plan.foreign_pods))
    with progress.step(f"{plan.jobs} jobs of {plan.size} pods") as step:
        names = [*plan.roomy_jobs, *plan.full_jobs]
        for started in range(0, plan.jobs, JOBS_AT_ONCE):
            step.detail = f"{started} run"
            place.create_all([(JOBS, scenario.job(name, size=plan.size)) for name in names[started:][:JOBS_AT_ONCE]])
            running = min(started + JOBS_AT_ONCE, plan.jobs)
            _until_ready(place, len(plan.foreign_pods) + running * plan.size)
    place.quiet()
    with progress.step("now every job of the full pool wants twice as much"):
        for name in plan.full_jobs:
            scale(place, name, 2 * plan.size)
        place.quiet(seconds=60)


def _until_ready(place: Place, pods: int) -> None:
    place.until(f"{pods} pods to run", lambda: ready_pods(place) == pods, seconds=150, pause=0.5)


def ready_pods(place: Place) -> int:
    """All Ready pods."""
    conditions = (pod["status"].get("conditions", []) for pod in place.items(PODS))
    return sum(any(c["type"] == "Ready" and c["status"] == "True" for c in each) for each in conditions)


def until_statuses_are_true(place: Place) -> None:
    """Wait until the jobs' statuses together count all ready pods; BenchError if they do not in time."""

    def agree() -> bool:
        counted = sum(job.get("status", {}).get("readyReplicas", 0) for job in place.items(JOBS))
        foreign = sum(pod["metadata"]["name"].startswith("foreign-") for pod in place.items(PODS))
        return bool(counted == ready_pods(place) - foreign)

    place.until("the statuses of all jobs to count the pods that are ready", agree, seconds=10.0, pause=0.5)
