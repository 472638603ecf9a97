"""What the API server's admission refuses becomes the job's own reason, is tried again now and then, and passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.apiserver.admission.obstacles import OBSTACLES, Obstacle
from tests.apiserver.admission.place import Place
from tests.apiserver.faults.proxy import Proxy, Request
from tests.apiserver.input.pool import Canary, conditions_of, pods_of
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import Operators, eventually

pytestmark = pytest.mark.apiserver

MOST_TRIES = 8
"""Of one pod, within the minute or less that an obstacle is left in the way; without back-off there are hundreds."""
PASSED_SECONDS = 120.0
"""Wide: a job waits 10 s before it tries again, then 20 s, then 40 s."""


def condition(place: Place, type_: str) -> dict[str, Any]:
    """A condition of the place's job, with empty words as long as there is none."""
    return {"reason": "", "message": "", "status": ""} | conditions_of(place.jobs, type_).get("toy", {})


def complaints(place: Place, obstacle: Obstacle) -> list[str]:
    """What is not as it should be while the obstacle is there."""
    full, ready = condition(place, "FullSize"), condition(place, "Ready")
    pods, events = len(pods_of(place.jobs, "toy")), place.events("ScaleUpBlocked")
    told = full["message"] + ready["message"]
    checks = {
        "FullSize is ScaleUpFailed": full["reason"] == "ScaleUpFailed",
        "the API server's words are told": obstacle.words in told,
        "an action is told": obstacle.action in told,
        f"it has {obstacle.meanwhile} pods": pods == obstacle.meanwhile,
        "a job without pods is Queued, another Ready": (ready["reason"] == "Queued") == (obstacle.meanwhile == 0)
        and ready["status"] == str(obstacle.meanwhile > 0),
        "there is a Warning event": [e for e in events if e["type"] == "Warning" and obstacle.words in e["message"]],
    }
    return [f"{obstacle.name}: not so: {what}; {ready}, {full}, {pods} pods" for what, so in checks.items() if not so]


def passed(place: Place, obstacle: Obstacle) -> bool:
    """Whether the job has all its pods and says so."""
    full, ready = condition(place, "FullSize"), condition(place, "Ready")
    all_there = len(pods_of(place.jobs, "toy")) == obstacle.big
    return all_there and full["reason"] == "AtMaximum" and ready["reason"] == "Running"


@pytest.mark.extended
def test_job_reports_the_obstacle_and_grows_without_it(
    operators: Operators, proxy: Proxy, canary: Canary, places: Callable[[], Place]
):
    where = {obstacle.name: places() for obstacle in OBSTACLES}
    remove = {}
    for obstacle in OBSTACLES:
        where[obstacle.name].await_service_account()
        remove[obstacle.name] = obstacle.put(where[obstacle.name])
    operators.start(server=proxy.url)
    canary.start()
    for obstacle in OBSTACLES:
        accepted(where[obstacle.name].jobs.create(obstacle.job))

    def wrong() -> list[str]:
        return [complaint for obstacle in OBSTACLES for complaint in complaints(where[obstacle.name], obstacle)]

    eventually("every obstacle told", lambda: not wrong(), seconds=60, report=lambda: "\n".join(wrong()))
    canary.check()
    tries = {name: len(proxy.requests(where=makes_pod_in(place))) for name, place in where.items()}
    most = {obstacle.name: MOST_TRIES * obstacle.big for obstacle in OBSTACLES}
    assert [(name, count) for name, count in tries.items() if count > most[name]] == []

    for take_away in remove.values():
        take_away()
    left = [obstacle.name for obstacle in OBSTACLES]
    eventually(
        "every job at its full size",
        lambda: not [o.name for o in OBSTACLES if not passed(where[o.name], o)],
        seconds=PASSED_SECONDS,
        report=lambda: [(n, condition(where[n], "Ready"), condition(where[n], "FullSize")) for n in left],
    )
    after = [place.jobs.get("toy") for place in where.values()]
    assert {(job["metadata"]["generation"], job["status"].get("failures", 0)) for job in after} == {(1, 0)}
    canary.check()


def makes_pod_in(place: Place) -> Callable[[Request], bool]:
    """Matches the creation of pods in the place."""
    return lambda request: request.method == "POST" and request.path == f"{place.path}/pods"
