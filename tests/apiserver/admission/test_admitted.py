"""What admission adds to pods, or takes from them, does not disturb a job; what it rations blocks nobody for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.apiserver.admission.place import Place
from tests.apiserver.faults.lab import elastic_job
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.input.pool import conditions_of, pods_of
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import Operators, eventually

pytestmark = pytest.mark.apiserver

MOST_TRIES = 30
"""Of the pods of a job, in a minute at most; without back-off there are hundreds."""


def with_sidecar(place: Place) -> None:
    """A webhook that adds a container and a label."""
    place.put_webhook(place.webhook.client_config("sidecar"))


def quota_for_limits(place: Place) -> None:
    """A quota that wants every container to have limits, and a LimitRange that adds them where there are none."""
    limits = {"type": "Container", "defaultRequest": {"cpu": "200m"}, "default": {"cpu": "2", "memory": "1Gi"}}
    place.put("limitranges", {"limits": [limits]})
    place.put_quota(**{"limits.cpu": "100", "requests.memory": "100Gi"})


def reason(place: Place, name: str = "toy") -> str:
    """The reason of the job's condition Ready."""
    return conditions_of(place.jobs, "Ready").get(name, {}).get("reason", "")


def uids(place: Place) -> set[str]:
    """Of the job's pods."""
    return {pod["metadata"]["uid"] for pod in pods_of(place.jobs, "toy")}


def test_pods_that_admission_changes_run_and_stay(operators: Operators, places: Callable[[], Place]):
    there = {put: places() for put in (with_sidecar, quota_for_limits)}
    for put, place in there.items():
        place.await_service_account()
        put(place)
    operators.start()
    for place in there.values():
        accepted(place.jobs.create(elastic_job(big=3)))

    def running(size: int) -> list[str]:
        return [put.__name__ for put, at in there.items() if len(uids(at)) == size and reason(at) == "Running"]

    everywhere = [put.__name__ for put in there]
    eventually("3 pods everywhere", lambda: running(3) == everywhere, report=lambda: running(3))
    before = {put: uids(place) for put, place in there.items()}
    for place in there.values():
        accepted(place.jobs.patch("toy", {"spec": {"replicas": 4}}, subresource="/scale"))
    eventually("4 pods everywhere", lambda: running(4) == everywhere, report=lambda: running(4))
    assert [put.__name__ for put, place in there.items() if not before[put] < uids(place)] == []
    assert [put.__name__ for put, place in there.items() if "retry" in place.jobs.get("toy")["status"]] == []
    for pod in pods_of(there[with_sidecar].jobs, "toy"):
        assert [container["name"] for container in pod["spec"]["containers"]] == ["pytorch", "mesh"]
        assert pod["metadata"]["labels"]["mesh"] == "on"


def test_pods_that_lose_their_labels_are_not_made_again_and_again(
    operators: Operators, proxy: Proxy, places: Callable[[], Place]
):
    place = places()
    place.await_service_account()
    place.put_webhook(place.webhook.client_config("strip"))
    operators.start(server=proxy.url)
    accepted(place.jobs.create(elastic_job(big=2)))
    eventually("the webhook to be asked", lambda: place.webhook.asked["strip"] >= 2)
    eventually("the reason", lambda: "label" in told(place), report=lambda: told(place))
    made = proxy.requests(where=lambda request: request.method == "POST" and request.path == f"{place.path}/pods")
    assert len(made) <= MOST_TRIES


def told(place: Place) -> str:
    """Why the job does not grow, or does not run."""
    return " ".join(str(conditions_of(place.jobs, type_)["toy"]) for type_ in ("Ready", "FullSize"))


def test_two_jobs_under_a_quota_for_one_do_not_block_each_other(operators: Operators, places: Callable[[], Place]):
    place = places()
    place.await_service_account()
    place.put_quota(pods="2")
    operators.start()
    for name in ("one", "two"):
        accepted(place.jobs.create(elastic_job(name, small=2, big=2, gpus=0)))
    eventually(
        "one to run and the other to wait",
        lambda: {reason(place, "one"), reason(place, "two")} == {"Running", "Queued"},
        seconds=90,
        report=lambda: conditions_of(place.jobs, "Ready"),
    )
