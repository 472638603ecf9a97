"""Four nodes of one GPU: a job of one team holds all four, and the other team requests one of its two, or both."""

from __future__ import annotations

from benchmarks.live.place import ELASTIC, NAMESPACES, Place, jobs_of, pods_of
from benchmarks.reclaim import asking, scenario
from benchmarks.reclaim.scenario import SMALL_BORROWER, SMALL_JOB, SMALL_NODES, SMALL_OWNER
from benchmarks.reclaim.stages import Request
from devcluster.progress import Progress

PREFIX = "small-"
JOB = f"{jobs_of(SMALL_BORROWER)}/{SMALL_JOB}"
GUARANTEED = SMALL_NODES // 2
READY_SECONDS = 60.0


def fill(place: Place, progress: Progress) -> None:
    """Create the nodes, the two teams, and the job, which runs on all nodes."""
    place.add_nodes(SMALL_NODES, gpus=1, prefix=PREFIX, progress=progress)
    for name in (SMALL_BORROWER, SMALL_OWNER):
        place.create(f"{ELASTIC}/gpuquotapolicies", scenario.policy(name, GUARANTEED))
        place.create_namespace(name)
    place.create(jobs_of(SMALL_BORROWER), scenario.job(SMALL_JOB, least=GUARANTEED, most=SMALL_NODES))
    _until_whole(place)


def tries(place: Place, *, pods: int, count: int) -> list[Request]:
    """Create `pods` pods at once, `count` times. Between tries they are deleted, and the job grows to its full size."""
    tried = []
    for number in range(count):
        names = [f"small-{pods}-{number}-{pod}" for pod in range(pods)]
        tried.append(asking.ask_for_pods(place, SMALL_OWNER, names))
        for name in names:
            place.delete_pod(SMALL_OWNER, name)
        _until_whole(place)
    return asking.requests_of(place, tried)


def clear(place: Place) -> None:
    """Delete everything but two empty namespaces."""
    place.delete(JOB)
    for pod in place.items(pods_of(SMALL_BORROWER)):  # the garbage collector takes half a minute to learn a new kind
        place.delete_pod(SMALL_BORROWER, pod["metadata"]["name"])
    for name in (SMALL_BORROWER, SMALL_OWNER):
        place.delete(f"{ELASTIC}/gpuquotapolicies/{name}")
        place.delete(f"{NAMESPACES}/{name}")
    for number in range(1, SMALL_NODES + 1):
        place.delete(f"/api/v1/nodes/{PREFIX}{number}")


def _until_whole(place: Place) -> None:
    def is_whole() -> bool:
        status = place.get(JOB).get("status", {})
        return bool(status.get("readyReplicas") == SMALL_NODES)

    place.until("the small job to run on all nodes", is_whole, seconds=READY_SECONDS)
