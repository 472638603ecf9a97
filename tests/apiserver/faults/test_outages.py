"""The operator while a real API server misbehaves, and after: it finds out what it missed, and does everything once.

What only a real one, a real network and the real kopf can show. All else is told in `tests/virtual/test_outages.py`; a
history is really compacted in `tests/cluster/test_faults_control_plane.py`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from http import HTTPStatus

import pytest

from devcluster.cluster import Cluster
from tests.apiserver.faults.conftest import GPUS_PER_NODE, is_ready, restart_clients
from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.operators import Operators, eventually
from tests.kit.requests import Request, makes_a_pod

pytestmark = pytest.mark.apiserver

FOREIGN = 34
MISSED = 30
NEW = 4
GPUS = 3
"""Of one pod of ours. What is free before and after is a multiple of it on each node: one ghost costs a pod."""
RECOVERY_SECONDS = 90
DOWN_SECONDS, FROZEN_SECONDS = 3, 15
MOST_REQUESTS_PER_SECOND = 10


def of_jobs(request: Request) -> bool:
    return request.path.endswith("/v1beta1/elasticpytorchjobs")


def room_beside(foreign: int) -> int:
    """Pods of ours that fit beside so many foreign ones, which are spread evenly."""
    return 2 * ((GPUS_PER_NODE - foreign // 2) // GPUS)


class Story:
    """A cluster that changes while the operator cannot see it, and what is to come of it."""

    def __init__(self, world: World, operators: Operators, proxy: Proxy) -> None:
        self.world, self.proxy = world, proxy
        self.foreign = world.occupy(FOREIGN)
        world.start(elastic_job("grows", big=100, gpus=GPUS))
        world.start(elastic_job("ends", small=2, big=2, gpus=GPUS))
        self.operator = operators.start(server=proxy.url, environ={"POD_UID": "the-only-one"})
        world.wait_settled("ends", 2)
        world.wait_settled("grows", room_beside(FOREIGN) - 2)
        eventually("kopf's watch, which comes after the first pass", lambda: proxy.open_watches(of_jobs) == 1)

    def go_on_unseen(self) -> None:
        """A pod of ours is lost, 30 foreign pods go and 4 come, a job is deleted, another one is created."""
        self.world.delete_pod("grows-worker-0")
        for name in self.foreign[:MISSED]:
            self.world.delete_pod(name)
        self.world.occupy(NEW, prefix="newcomer")
        self.world.delete_job("ends")
        self.world.start(elastic_job("comes", small=3, big=3, gpus=GPUS))

    def check(self) -> None:
        """Exactly the free GPUs are used, by pods that were made once; the same process goes on."""
        self.world.wait_settled("comes", 3, seconds=RECOVERY_SECONDS)
        self.world.wait_settled("grows", room_beside(FOREIGN - MISSED + NEW) - 3, seconds=RECOVERY_SECONDS)
        self.check_process()
        assert not self.world.pods("ends")
        status = self.world.status("grows")
        # Of more than 64 pods not all are listed: a loss that is heard of together with room to grow is not counted.
        assert status["restarts"] <= 1, status
        assert status["incarnation"] == 1, status
        made_again = {name for name, count in (self.created() - self.deleted()).items() if count > 1}
        # An operator that saw some of it may have had to take that pod itself, for one of the newcomers.
        assert made_again <= {"grows-worker-0"}
        assert self.created()["grows-worker-0"] > 1

    def check_process(self) -> None:
        """It lives, and nothing took it by surprise."""
        assert self.operator.lives
        assert "Traceback" not in self.operator.text()

    def created(self) -> Counter[str]:
        """The pods that the API server made for the operator."""
        made = [e for e in self.proxy.requests(where=makes_a_pod) if e.status == HTTPStatus.CREATED]
        return Counter(json.loads(entry.request.body)["metadata"]["name"] for entry in made)

    def deleted(self) -> Counter[str]:
        """The pods that the operator took back."""
        gone = [e for e in self.proxy.log if e.request.method == "DELETE" and e.status == HTTPStatus.OK]
        return Counter(entry.request.path.rsplit("/", 1)[1] for entry in gone)


def tells_of_comes(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/events") and b'"comes"' in request.body


@pytest.fixture
def story(world: World, operators: Operators, proxy: Proxy) -> Story:
    return Story(world, operators, proxy)


def test_operator_catches_up_after_dropped_packets(story: Story) -> None:
    story.proxy.swallow()
    begun = time.monotonic()
    story.go_on_unseen()
    time.sleep(8)
    asked = story.proxy.requests(since=begun)
    story.proxy.heal()
    assert len(asked) < 8 * MOST_REQUESTS_PER_SECOND
    story.check()


@pytest.mark.parametrize("status", [500, pytest.param(410, marks=pytest.mark.long)])
def test_job_informer_survives_an_end_of_kopf(story: Story, status: int) -> None:
    if status == 500:
        story.proxy.end_watches(500, where=of_jobs)
    else:
        story.proxy.answer(410, where=lambda request: of_jobs(request) and request.watches, times=1)
        story.proxy.cut()
    eventually("kopf's end", lambda: "kopf ended" in story.operator.text())
    story.go_on_unseen()
    story.check()
    eventually("an event on the new job", lambda: story.proxy.requests(where=tells_of_comes))


@pytest.mark.parametrize(
    ("part", "freezes"),
    [
        ("apiserver", False),
        pytest.param("etcd", False, marks=pytest.mark.extended),
        pytest.param("etcd", True, marks=pytest.mark.long),
    ],
)
def test_a_restart_of_the_control_plane_costs_no_pod(
    story: Story, control_plane: Cluster, part: str, freezes: bool
) -> None:
    broken = control_plane.part(part)
    if freezes:
        broken.freeze()
        time.sleep(FROZEN_SECONDS)
        broken.thaw()
    else:
        broken.kill()
        eventually("its end", lambda: not is_ready(story.world.api))
        time.sleep(DOWN_SECONDS)
        broken.restart()
    restart_clients(control_plane, story.world.api)
    before = {pod["metadata"]["uid"] for pod in story.world.pods("grows")}
    story.go_on_unseen()
    story.check()
    assert len(before - {pod["metadata"]["uid"] for pod in story.world.pods("grows")}) == 1
