"""What an administrator can say to reclaim: not now, not at all, only tell, not so many; and what RBAC can."""

from __future__ import annotations

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import eventually
from tests.apiserver.reclaim.lab import Losses, Notebooks
from tests.apiserver.reclaim.observed import Observed, Start, nominates

pytestmark = pytest.mark.apiserver


TWO = ("notebook-0", "notebook-1")


def placed(pods: Notebooks) -> int:
    """How many of the two have a node."""
    return sum(bool(pods.node(name)) for name in TWO)


def jobs_events(world: World) -> dict[str, str]:
    """Of the job."""
    return Notebooks(world.api, world.jobs.namespace).events("toy")


def with_full_job(start: Start, world: World, **settings: object) -> Observed:
    """An operator with these settings, and a job on all GPUs."""
    observed = start(**settings)
    world.start(elastic_job(small=2, big=8))
    world.wait_settled("toy", 8)
    return observed


@pytest.mark.parametrize(
    ("settings", "tells"),
    [
        ({"RECLAIM__MODE": "DryRun"}, True),
        pytest.param({"RECLAIM__MODE": "Off"}, False, marks=pytest.mark.extended),
        pytest.param({"RECLAIM__PAUSED": "true"}, False, marks=pytest.mark.extended),
    ],
    ids=["dry-run", "off", "paused"],
)
def test_no_pod_is_evicted_while_reclaim_is_off_and_dry_run_says_which_would_be(
    settings: dict[str, object], tells: bool, start: Start, world: World, owner: Notebooks
) -> None:
    observed = with_full_job(start, world, **settings)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    owner.wait_unschedulable()
    if tells:
        told = eventually("an event", lambda: jobs_events(world).get("WouldReclaim"), report=observed.text)
        assert f"1 pod would be evicted for {owner.namespace}/notebook." in told
    observed.see_passes(world)
    assert losses.names() == []
    assert observed.steps() == []
    assert not owner.node()
    assert ("WouldReclaim" in jobs_events(world)) is tells
    assert observed.operator.metric("elastic_pytorch_would_evict_total") == tells
    assert world.settled("toy", 8)
    observed.operator.stop()
    start()
    owner.wait_bound()
    world.wait_settled("toy", 7)
    assert len(losses.pods()) == 1


def test_evictions_over_the_minute_limit_wait_and_are_reported(start: Start, world: World, owner: Notebooks) -> None:
    with_full_job(start, world).operator.stop()
    for name in TWO:
        owner.create(name)
    owner.wait_unschedulable(*TWO)
    losses = Losses(world.api, world.jobs.namespace)
    observed = start(RECLAIM__MAX_EVICTIONS_PER_MINUTE=1)
    eventually("one that waits", lambda: observed.operator.metric("elastic_pytorch_reclaim_breaker_open") == 1)
    assert (
        "1 pod of others would have to be evicted for it at once, and reclaim.maxEvictionsPerMinute (1)"
        in observed.text()
    )
    eventually("a node for one of them", lambda: placed(owner) == 1)
    world.wait_settled("toy", 7)
    observed.see_passes(world)
    assert len(losses.pods()) == 1
    observed.operator.stop()
    start()
    eventually("two nodes", lambda: placed(owner) == 2)
    world.wait_settled("toy", 6)
    assert len(losses.pods()) == 2


@pytest.mark.extended
def test_without_the_right_to_nominate_no_pod_is_evicted_and_the_operator_continues(
    observed: Observed, world: World, owner: Notebooks
) -> None:
    observed.proxy.answer(403, where=nominates)
    losses = Losses(world.api, world.jobs.namespace)
    owner.create()
    eventually("a warning", lambda: "/notebook reason=403" in observed.text())
    observed.see_passes(world)
    assert losses.names() == []
    assert [step[0] for step in observed.steps()] == ["reserve"]
    world.start(elastic_job("other", small=1, big=1, gpus=0))
    accepted(world.jobs.patch("toy", {"spec": {"maxReplicas": 6}}))
    world.wait_settled("toy", 6)
    owner.wait_bound()
    assert len(losses.pods()) == 2
