"""Two operators, each behind a proxy of its own that knows what it wrote: one leads, the other stands by."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.faults.proxy import Entry, Filter, Proxy, Request
from tests.apiserver.operators import Operator, Operators, eventually

pytestmark = pytest.mark.apiserver

TAKE_OVER_SECONDS = 30.0
FROZEN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One of the operator's replicas."""

    operator: Operator
    proxy: Proxy

    def writes(self, since: float = 0.0) -> list[Entry]:
        """What it wrote, the lease apart."""
        return self.proxy.requests(since=since, where=lambda request: request.writes and not request.of_lease)

    def times_leading(self) -> int:
        """How often it began to lead."""
        return self.operator.text().count("leading as")


@pytest.fixture
def replicas(operators: Operators, proxies: Callable[[], Proxy], world: World) -> list[Replica]:
    """The leader, of a job of two pods, and the one that stands by."""
    both: list[Replica] = []
    for uid in ("first", "second"):
        proxy = proxies()
        both.append(Replica(operators.start(server=proxy.url, environ={"POD_UID": uid}), proxy))
        eventually("a candidate", lambda one=both[-1]: one.operator.is_candidate, report=both[-1].operator.text)
    world.start(elastic_job(big=2))
    world.wait_settled("toy", 2)
    assert [replica.operator.leads for replica in both] == [True, False]
    assert both[0].writes()
    assert not both[1].writes()
    return both


def grow(world: World, size: int) -> None:
    world.jobs.patch("toy", {"spec": {"maxReplicas": size}})


def test_when_the_leader_is_killed_the_other_goes_on(replicas: list[Replica], world: World) -> None:
    leader, other = replicas
    leader.operator.kill()
    grow(world, 4)
    eventually("the other to lead", lambda: other.operator.leads, seconds=TAKE_OVER_SECONDS)
    world.wait_settled("toy", 4)
    assert world.status()["resizes"] == 1


class PodsUnseen(Filter):
    """Swallows what watches tell of pods."""

    def body(self, request: Request, data: bytes) -> bytes:
        """Nothing of pods."""
        return b"" if request.watches and request.path.endswith("/pods") else data


@pytest.mark.extended
def test_a_frozen_leader_writes_nothing_when_it_is_thawed(replicas: list[Replica], world: World) -> None:
    """It was frozen with a write under way; when it wakes it sees a job that grew and not the pods made meanwhile."""
    leader, other = replicas
    leader.proxy.filter = PodsUnseen()
    leader.proxy.delay(2)
    grow(world, 6)
    eventually("a write under way", lambda: [e for e in leader.writes() if not e.status])
    leader.operator.freeze()
    frozen = time.monotonic()
    leader.proxy.delay(0)
    eventually("the other to lead", lambda: other.operator.leads, seconds=TAKE_OVER_SECONDS)
    world.wait_settled("toy", 6)
    grow(world, 8)
    world.wait_settled("toy", 8)
    time.sleep(max(0.0, frozen + FROZEN_SECONDS - time.monotonic()))
    thawed = time.monotonic()
    leader.operator.thaw()
    eventually("it to stand by", lambda: "standing by" in leader.operator.text())
    assert not leader.writes(since=thawed)
    assert (leader.times_leading(), other.times_leading()) == (1, 1)
    leader.proxy.filter = Filter()
    other.operator.kill()
    eventually("it to lead again", lambda: leader.times_leading() == 2, seconds=TAKE_OVER_SECONDS)
    grow(world, 9)
    world.wait_settled("toy", 9)
    assert world.status()["restarts"] == 0
