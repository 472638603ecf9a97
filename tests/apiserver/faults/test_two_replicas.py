"""Two real processes: one leads, the other stands by. What else may become of them is told in `tests/virtual`."""

from __future__ import annotations

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.operators import Operators, eventually

pytestmark = pytest.mark.apiserver

TAKE_OVER_SECONDS = 30.0


def test_when_the_leader_is_killed_the_other_goes_on(operators: Operators, world: World) -> None:
    both = []
    for uid in ("first", "second"):
        both.append(operators.start(environ={"POD_UID": uid}))
        eventually("a candidate", lambda one=both[-1]: one.is_candidate, report=both[-1].text)
    leader, other = both
    world.start(elastic_job(big=2))
    world.wait_settled("toy", 2)
    assert (leader.leads, other.leads) == (True, False)
    leader.kill()
    world.jobs.patch("toy", {"spec": {"maxReplicas": 4}})
    eventually("the other to lead", lambda: other.leads, seconds=TAKE_OVER_SECONDS)
    world.wait_settled("toy", 4)
    assert world.status()["resizes"] == 1
