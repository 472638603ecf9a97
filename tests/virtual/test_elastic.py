"""The operator's side of an Elastic job: who is told what and how often, the Secret, masters in a row."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from elastic_worker import contract
from tests.simulate import server as kinds
from tests.simulate.api import SECRETS
from tests.simulate.facts import name_of, node_of
from tests.simulate.violation import require
from tests.virtual.deeds import condition, delete_pod, edit, end, job, kill, leads, nodes, replica
from tests.virtual.world import ProcessWorld, live

MASTER = "toy-master-0"
ELASTICITY = {"scaleUpDelaySeconds": 0, "gracePeriodSeconds": 1, "checkpointPath": "/checkpoints"}


def note(world: ProcessWorld, key: str) -> str:
    """The master pod's annotation; "" where there is none, or no master."""
    masters = [pod for pod in world.pods("toy") if name_of(pod) == MASTER]
    text: str = masters[0]["metadata"].get("annotations", {}).get(key, "") if masters else ""
    return text


def wish(world: ProcessWorld) -> dict[str, Any]:
    """What the master is told."""
    told: dict[str, Any] = json.loads(note(world, contract.ANNOTATION_MEMBERSHIP) or '{"wish": 0, "members": []}')
    return told


def uids(world: ProcessWorld) -> dict[str, str]:
    """Of the pods that stay, by name."""
    return {name_of(pod): pod["metadata"]["uid"] for pod in world.pods("toy")}


async def is_told(world: ProcessWorld, size: int, *, epoch: int = 1, within: float = 5.0) -> None:
    """Until so many pods run, and that master is told of exactly these; no pod of another incarnation was made."""

    def look() -> bool:
        told = {member["name"]: member["uid"] for member in wish(world)["members"]}
        is_master = note(world, contract.ANNOTATION_MASTER_EPOCH) == str(epoch)
        return world.settled("toy", size) and told == uids(world) and is_master

    await world.until(f"the wish of {size}", look, seconds=within)
    status = world.status("toy")
    require((status["masterEpoch"], status["incarnation"]) == (epoch, 1), f"{status}")


async def grows_and_shrinks(world: ProcessWorld) -> None:
    before = wish(world)
    require((before["min"], before["max"]) == (2, 4), f"{before}")
    edit("toy", maxReplicas=2)(world)
    await is_told(world, 2)
    require(wish(world)["wish"] > before["wish"] and wish(world)["max"] == 2, f"{wish(world)}")


async def tells_once(world: ProcessWorld) -> None:
    known = wish(world)["wish"]
    kill(0)(world)
    replica()(world)
    await world.until("another leader", lambda: leads(1)(world), seconds=30)
    await world.advance(60)
    require(wish(world)["wish"] == known, f"told again: {wish(world)}, after {known}")
    delete_pod("toy-worker-2")(world)
    await is_told(world, 4)
    require(known < wish(world)["wish"] <= known + 2, "one without the lost pod, one with the new one")


async def mends_what_somebody_wrote(world: ProcessWorld) -> None:
    master = world.pod(MASTER)
    notes = {**master["metadata"]["annotations"], contract.ANNOTATION_MEMBERSHIP: '{"wish":1,"members":[]}'}
    world.server.relabel(kinds.PODS, master, annotations=notes)
    await is_told(world, 4)
    require(wish(world)["wish"] > 1, f"{wish(world)}")


async def follows_a_lost_master(world: ProcessWorld) -> None:
    before, secrets = uids(world), world.server.all(SECRETS)
    [key] = [secret["stringData"][contract.SECRET_KEY] for secret in secrets]
    delete_pod(MASTER)(world)
    await is_told(world, 4, epoch=2)
    after = uids(world)
    require({name for name in after if after[name] != before[name]} == {MASTER}, f"{before}, then {after}")
    await world.until("no master is missing", lambda: "masterLostTime" not in world.status("toy"), seconds=5)
    require(world.status("toy")["failures"] == 0, f"{world.status('toy')}")
    require(world.server.all(SECRETS) == secrets, "the Secret was written again")
    require(not any(key in line for *_, line in world.said.lines), "the Secret was logged")


async def replaces_who_fails(world: ProcessWorld) -> None:
    end(1, "toy-worker-1")(world)
    await world.until("the loss", lambda: world.status("toy")["restarts"] == 1, seconds=5)
    await is_told(world, 4)
    end(1, MASTER)(world)
    await is_told(world, 4, epoch=2, within=30)


async def ends_when_a_launcher_asks_for_it(world: ProcessWorld) -> None:
    end(contract.EXIT_DO_NOT_RETRY, "toy-worker-0")(world)
    failed = condition("toy", "Failed", "RestartLimitReached")
    await world.until("the end", lambda: failed(world), seconds=5)
    require(world.status("toy")["incarnation"] == 1, f"{world.status('toy')}")


async def gives_a_master_without_a_place_that_of_the_highest_worker(world: ProcessWorld) -> None:
    gone = node_of(world.pod(MASTER))
    staying = {name_of(pod) for pod in world.pods("toy") if node_of(pod) != gone}
    node = world.server.find(kinds.NODES, "", gone)
    assert node is not None
    world.server.remove(kinds.NODES, node)
    await is_told(world, len(staying), epoch=2, within=60)
    highest = max(staying, key=lambda name: int(name.rpartition("-")[2]))
    require(set(uids(world)) == staying - {highest} | {MASTER}, f"{staying}, then {uids(world)}")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "story",
    [
        grows_and_shrinks,
        tells_once,
        mends_what_somebody_wrote,
        follows_a_lost_master,
        replaces_who_fails,
        ends_when_a_launcher_asks_for_it,
        gives_a_master_without_a_place_that_of_the_highest_worker,
    ],
    ids=lambda story: story.__name__.replace("_", " "),
)
def test_the_operator_of_an_elastic_job(story: Callable[[ProcessWorld], Awaitable[None]], seed: int) -> None:
    async def lived(world: ProcessWorld) -> None:
        nodes(2, 2)(world)
        replica()(world)
        job(small=2, big=4, runtime={"mode": "Elastic"}, elasticity=ELASTICITY)(world)
        await is_told(world, 4)
        await story(world)

    live(seed, lived)
