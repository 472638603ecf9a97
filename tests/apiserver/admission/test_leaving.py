"""What is on its way out: in a namespace nothing is made any more, and the name of a pod is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from devcluster.cluster import Cluster
from tests.apiserver.admission.place import Place
from tests.apiserver.faults.lab import MERGE, elastic_job
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.input.pool import Canary, conditions_of, pods_of
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import Operators, eventually

pytestmark = pytest.mark.apiserver

FINALIZER = "example.com/held"
MOST_TRIES = 16


def names(place: Place) -> set[str]:
    """Of the job's pods that are not on their way out."""
    return {pod["metadata"]["name"].removeprefix("toy-") for pod in pods_of(place.jobs, "toy")}


def message(place: Place, type_: str = "Ready") -> str:
    """What a condition of the job says."""
    told: str = conditions_of(place.jobs, type_)["toy"].get("message", "")
    return told


def hold_and_delete(place: Place, pod: str) -> Callable[[], None]:
    """Delete a pod that somebody's finalizer holds; returns what lets it go."""
    path = f"{place.path}/pods/toy-{pod}"

    def set_finalizers(finalizers: list[str] | None) -> None:
        place.api.patch(path, headers=MERGE, json={"metadata": {"finalizers": finalizers}}).raise_for_status()

    set_finalizers([FINALIZER])
    place.api.delete(path).raise_for_status()
    return lambda: set_finalizers(None)


def start(place: Place, *, size: int) -> None:
    """A job of so many pods that runs."""
    place.await_service_account()
    accepted(place.jobs.create(elastic_job(big=size)))
    eventually("the job to run", lambda: len(names(place)) == size, report=lambda: message(place))


def test_a_worker_whose_name_is_held_is_replaced_under_the_lowest_free_one(
    operators: Operators, places: Callable[[], Place]
):
    operators.start()
    place = places()
    start(place, size=3)
    release = hold_and_delete(place, "worker-0")
    eventually(
        "a replacement", lambda: names(place) == {"master-0", "worker-1", "worker-2"}, report=lambda: names(place)
    )
    release()
    accepted(place.jobs.patch("toy", {"spec": {"replicas": 4}}, subresource="/scale"))
    eventually("a fourth", lambda: names(place) == {"master-0", "worker-0", "worker-1", "worker-2"})


def test_job_waits_for_the_name_of_its_old_master(operators: Operators, places: Callable[[], Place], canary: Canary):
    operators.start()
    canary.start()
    place = places()
    start(place, size=2)
    release = hold_and_delete(place, "master-0")
    eventually(
        "the reason",
        lambda: "toy-master-0 is still being deleted" in message(place),
        report=lambda: (message(place), message(place, "FullSize")),
    )
    canary.check()
    release()
    eventually("both pods", lambda: names(place) == {"master-0", "worker-0"}, report=lambda: message(place))
    eventually("the job to run", lambda: conditions_of(place.jobs, "Ready")["toy"].get("reason") == "Running")


def test_terminating_namespace_gets_no_pods_and_deletes_the_job(
    operators: Operators, proxy: Proxy, cluster: Cluster, places: Callable[[], Place], canary: Canary
):
    operator = operators.start(server=proxy.url)
    canary.start()
    place = places()
    start(place, size=2)
    with frozen_controllers(cluster):
        place.api.delete(place.path).raise_for_status()
        accepted(place.jobs.patch("toy", {"spec": {"replicas": 4}}, subresource="/scale"))
        told = "because it is being terminated"
        eventually("the reason", lambda: told in message(place, "FullSize"), report=lambda: message(place, "FullSize"))
        canary.check()
        assert names(place) == {"master-0", "worker-0"}
        refused = proxy.requests(
            where=lambda request: request.method == "POST" and request.path == f"{place.path}/pods"
        )
        assert len(refused) <= 2 + MOST_TRIES
    eventually("the namespace to be gone", lambda: place.api.get(place.path).status_code == httpx.codes.NOT_FOUND)
    canary.check()
    assert operator.lives
    assert "Traceback" not in operator.text()


@contextmanager
def frozen_controllers(cluster: Cluster) -> Iterator[None]:
    """Nothing in a deleted namespace is deleted meanwhile."""
    part = cluster.part("controller-manager")
    part.freeze()
    try:
        yield
    finally:
        part.thaw()
