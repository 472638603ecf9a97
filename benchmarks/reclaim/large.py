"""The large cluster: elastic jobs fill it, then pods request single GPUs, then half of its nodes at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from benchmarks.live.operators import Operator, Timer, stop
from benchmarks.live.place import ELASTIC, Place, jobs_of, pods_of
from benchmarks.reclaim import asking, scenario
from benchmarks.reclaim.scenario import GANG, GPUS_PER_NODE, OWNER, Scenario
from benchmarks.reclaim.stages import Request
from benchmarks.reclaim.victims import evicted_for_others
from devcluster.progress import Progress, Step

JOBS_AT_ONCE = 25
FILL_SECONDS = 300.0
"""The limit for each batch of jobs."""
LOOK_SECONDS = 1.0
PLAIN_REQUESTS = 16
"""The number of concurrent requests of a plain client."""


def fill(place: Place, plan: Scenario, progress: Progress) -> None:
    """Create the nodes, the teams, and jobs that run with as many pods as they can use, on every GPU."""
    place.add_nodes(plan.nodes, gpus=GPUS_PER_NODE, progress=progress)
    with progress.step(f"{len(plan.guarantees)} teams"):
        for name, guaranteed in plan.guarantees.items():
            place.create(f"{ELASTIC}/gpuquotapolicies", scenario.policy(name, guaranteed))
            place.create_namespace(name)
    with progress.step(f"{plan.jobs} jobs fill {plan.gpus} GPUs") as step:
        _create_jobs(place, plan, step)
        _until_full(place, plan)
    place.quiet()


def _create_jobs(place: Place, plan: Scenario, step: Step) -> None:
    """Create jobs at a rate at which some are always being created, but not all at once."""
    begun = place.now()

    def tell(bound: int) -> None:
        step.detail = f"{bound} pods have a node"

    for first in range(0, plan.jobs, JOBS_AT_ONCE):
        batch = plan.job_names[first:][:JOBS_AT_ONCE]
        place.create_all([(jobs_of(namespace), plan.job(name)) for namespace, name in batch])
        asking.wait_bound(
            place,
            _is_of_job,
            since=begun,
            pods=first * plan.size,
            seconds=FILL_SECONDS,
            pause=LOOK_SECONDS,
            told=tell,
        )


def tries(place: Place, plan: Scenario, leader: Operator) -> tuple[list[Request], list[tuple[float, float]]]:
    """Create one pod of one GPU after the other; return also the seconds and number of allocations of each try."""
    names = [f"notebook-{number}" for number in range(plan.tries)]
    tried, allocations, timer = [], [], Timer(leader, "allocate_seconds")
    for name in names:
        timer.look()
        tried.append(asking.ask_for_pods(place, OWNER, [name]))
        allocations.append(timer.look())
    requests = asking.requests_of(place, tried)
    for name in names:
        place.delete_pod(OWNER, name)
    _until_full(place, plan)
    return requests, [(seconds, count) for seconds, count in allocations if count]


def gang(place: Place, plan: Scenario, progress: Progress) -> Request:
    """Request half of the nodes, each of them whole, for one Job."""
    with progress.step(f"a Job of {plan.gang} pods x {GPUS_PER_NODE} GPUs") as step:

        def tell(bound: int) -> None:
            step.detail = f"{bound} have a node"

        made = asking.ask_for_gang(place, plan.gang, tell)
    jobs = place.items(f"{ELASTIC}/elasticpytorchjobs")
    besides = evicted_for_others(jobs, since=made.created, owner=OWNER)
    return replace(made, evicted=made.evicted - besides, evicted_besides=besides)


def by_hand(place: Place, plan: Scenario, progress: Progress) -> Request:
    """Create the same Job without an operator: a plain client deletes the pods on as many nodes, a few at a time."""
    with progress.step("the Job is deleted, and all jobs get their pods back"):
        place.delete(f"{asking.BATCH_JOBS}/{GANG}", propagationPolicy="Background")
        _until_full(place, plan)
    with progress.step("the operator is stopped"):
        stop(place)
    victims = _pods_on_nodes(place, plan.gang)

    def delete_all() -> None:
        with ThreadPoolExecutor(PLAIN_REQUESTS) as pool:
            list(pool.map(lambda pod: place.delete(f"{pods_of(pod[0])}/{pod[1]}"), victims))

    with progress.step(f"the same by hand: {len(victims)} pods are deleted for it") as step:

        def tell(bound: int) -> None:
            step.detail = f"{bound} have a node"

        return asking.ask_for_gang(place, plan.gang, tell, name="by-hand", make_room=delete_all)


def _pods_on_nodes(place: Place, count: int) -> list[tuple[str, str]]:
    """Namespace and name of the jobs' pods on `count` of their nodes."""
    by_node: dict[str, list[tuple[str, str]]] = {}
    for pod in place.items("/api/v1/pods"):
        if _is_of_job(pod["metadata"]["name"]):
            where = pod["metadata"]["namespace"], pod["metadata"]["name"]
            by_node.setdefault(pod["spec"]["nodeName"], []).append(where)
    return [pod for node in sorted(by_node)[:count] for pod in by_node[node]]


def _is_of_job(name: str) -> bool:
    return name.startswith("job-")


def _until_full(place: Place, plan: Scenario) -> None:
    """Wait until every GPU has a ready pod by the jobs' statuses."""

    def is_full() -> bool:
        jobs = place.items(f"{ELASTIC}/elasticpytorchjobs")
        return bool(sum(job.get("status", {}).get("readyReplicas", 0) for job in jobs) == plan.gpus)

    place.until("all jobs to run in full", is_full, seconds=FILL_SECONDS, pause=LOOK_SECONDS)
