"""Two jobs of one team that cannot both run take turns, as their policy says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.operators import eventually
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.reclaim.lab import happened
from tests.apiserver.reclaim.observed import Start

pytestmark = [pytest.mark.apiserver, pytest.mark.extended]


QUANTUM_SECONDS = 5


def rigid(name: str) -> dict[str, Any]:
    """A job that needs all eight GPUs: two pods of four."""
    return elastic_job(name, small=2, big=2, gpus=4)


def turns(world: World, since: str) -> list[str]:
    """Whose pods were made, in that order: one mention for each pod."""
    pods = [pod for kind, pod in happened(world.api, world.pods_path, since) if kind == "ADDED"]
    return [pod["metadata"]["name"].split("-")[0] for pod in pods]


def test_jobs_that_cannot_both_run_take_turns(start: Start, policies: Policies, world: World) -> None:
    sharing = {"quantumSeconds": QUANTUM_SECONDS}
    policies.create("team", namespaces=[world.jobs.namespace], flavors=quota(8), timeSharing=sharing)
    observed = start()
    since = world.api.get(world.pods_path).json()["metadata"]["resourceVersion"]
    world.start(rigid("one"))
    world.wait_settled("one", 2)
    world.start(rigid("two"))
    started = [world.status("one")["turnStarted"]]
    for name, other in (("two", "one"), ("one", "two")):
        world.wait_settled(name, 2)
        assert world.pods(other) == []
        eventually("an end of the turn", lambda other=other: "turnStarted" not in world.status(other))
        started.append(world.status(name)["turnStarted"])
    world.wait_settled("two", 2)
    # While all this was looked at, another turn may have begun: only the first four are compared.
    assert turns(world, since)[:8] == [name for name in ("one", "two", "one", "two") for _ in range(2)]
    assert sorted(started) == started
    assert len(set(started)) == 3
    assert [(c["from"], c["to"]) for c in world.status("one")["history"][-4:]] == [(2, 0), (0, 2), (2, 0), (0, 2)]
    deleted = [name.split("-")[0] for name in observed.deletes()[:6]]
    assert deleted == [name for name in ("one", "two", "one") for _ in range(2)]


def test_without_time_sharing_who_came_first_runs_on(start: Start, policies: Policies, world: World) -> None:
    policies.create("team", namespaces=[world.jobs.namespace], flavors=quota(8))
    observed = start()
    world.start(rigid("one"))
    world.wait_settled("one", 2)
    world.start(rigid("two"))
    eventually("an answer", lambda: world.status("two").get("conditions"))
    observed.see_passes(world)
    assert world.pods("two") == []
    assert observed.deletes() == []
    policies.change("team", timeSharing={"quantumSeconds": 2 * QUANTUM_SECONDS})
    world.wait_settled("two", 2)
    assert world.pods("one") == []
