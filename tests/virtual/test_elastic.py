"""The operator's side of an Elastic job: the membership for the master, the Secret, and the change of masters."""

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
from tests.virtual.actions import condition, delete_job, delete_pod, edit, end, job, kill, leads, nodes, replica
from tests.virtual.world import ProcessWorld, run_world

MASTER = "toy-master-0"
ELASTICITY = {"scaleUpDelaySeconds": 0, "gracePeriodSeconds": 1, "checkpointPath": "/checkpoints"}
apply = job(small=2, big=4, runtime={"mode": "Elastic"}, elasticity=ELASTICITY)


def note(world: ProcessWorld, key: str) -> str:
    """The master pod's annotation; "" where there is none, or no master."""
    masters = [pod for pod in world.pods("toy") if name_of(pod) == MASTER]
    text: str = masters[0]["metadata"].get("annotations", {}).get(key, "") if masters else ""
    return text


def membership(world: ProcessWorld) -> dict[str, Any]:
    """The membership that the master gets."""
    told: dict[str, Any] = json.loads(note(world, contract.ANNOTATION_MEMBERSHIP) or '{"wish": 0, "members": []}')
    return told


def uids(world: ProcessWorld) -> dict[str, str]:
    """Of the pods that stay, by name."""
    return {name_of(pod): pod["metadata"]["uid"] for pod in world.pods("toy")}


async def wait_for_membership(world: ProcessWorld, size: int, *, epoch: int = 1, within: float = 5.0) -> None:
    """Wait until so many pods run and the membership lists exactly these. No pod has another incarnation."""

    def look() -> bool:
        told_uids = {member["name"]: member["uid"] for member in membership(world)["members"]}
        is_master = note(world, contract.ANNOTATION_MASTER_EPOCH) == str(epoch)
        return world.settled("toy", size) and told_uids == uids(world) and is_master

    await world.until(f"the membership of {size}", look, seconds=within)
    status = world.status("toy")
    require((status["masterEpoch"], status["incarnation"]) == (epoch, 1), f"{status}")


async def grows_and_shrinks(world: ProcessWorld) -> None:
    before = membership(world)
    require((before["min"], before["max"]) == (2, 4), f"{before}")
    edit("toy", maxReplicas=2)(world)
    await wait_for_membership(world, 2)
    require(membership(world)["wish"] > before["wish"] and membership(world)["max"] == 2, f"{membership(world)}")


async def tells_once(world: ProcessWorld) -> None:
    known = membership(world)["wish"]
    kill(0)(world)
    replica()(world)
    await world.until("another leader", lambda: leads(1)(world), seconds=30)
    await world.advance(60)
    require(membership(world)["wish"] == known, f"told again: {membership(world)}, after {known}")
    delete_pod("toy-worker-2")(world)
    await wait_for_membership(world, 4)
    require(known < membership(world)["wish"] <= known + 2, "one without the lost pod, one with the new one")


async def mends_what_somebody_wrote(world: ProcessWorld) -> None:
    master = world.pod(MASTER)
    notes = {**master["metadata"]["annotations"], contract.ANNOTATION_MEMBERSHIP: '{"wish":1,"members":[]}'}
    world.server.relabel(kinds.PODS, master, annotations=notes)
    await wait_for_membership(world, 4)
    require(membership(world)["wish"] > 1, f"{membership(world)}")


async def follows_a_lost_master(world: ProcessWorld) -> None:
    before, secrets = uids(world), world.server.all(SECRETS)
    [key] = [secret["stringData"][contract.SECRET_KEY] for secret in secrets]
    delete_pod(MASTER)(world)
    await wait_for_membership(world, 4, epoch=2)
    after = uids(world)
    require({name for name in after if after[name] != before[name]} == {MASTER}, f"{before}, then {after}")
    await world.until("no master is missing", lambda: "masterLostTime" not in world.status("toy"), seconds=5)
    require(world.status("toy")["failures"] == 0, f"{world.status('toy')}")
    require(world.server.all(SECRETS) == secrets, "the Secret was written again")
    require(not any(key in line for *_, line in world.logs.lines), "the Secret was logged")


async def replaces_who_fails(world: ProcessWorld) -> None:
    end(1, "toy-worker-1")(world)
    await world.until("the loss", lambda: world.status("toy")["restarts"] == 1, seconds=5)
    await wait_for_membership(world, 4)
    end(1, MASTER)(world)
    await wait_for_membership(world, 4, epoch=2, within=30)


async def runs_on_when_the_secret_of_a_namesake_goes_late(world: ProcessWorld) -> None:
    edit("toy", suspend=True)(world)
    await world.until("no pod is left", lambda: not world.server.all(kinds.PODS), seconds=10)
    world.machines.late.add(SECRETS)
    delete_job("toy")(world)
    apply(world)
    await wait_for_membership(world, 4, within=30)
    world.machines.late.clear()
    world.wake_machines()
    await world.advance(5)
    delete_pod("toy-worker-2")(world)
    await wait_for_membership(world, 4)
    require(len(world.server.all(SECRETS)) == 1, f"{world.server.all(SECRETS)}")


async def goes_on_with_the_secret_that_its_pods_know_from_an_older_release(world: ProcessWorld) -> None:
    as_of_an_older_release(world)
    delete_pod("toy-worker-2")(world)
    await wait_for_membership(world, 4)
    delete_pod(MASTER)(world)
    await wait_for_membership(world, 4, epoch=2)
    require(secrets_named(world) == {"toy-elastic"}, f"{secrets_named(world)}")
    require(len(world.server.all(SECRETS)) == 1, "pods that start at different times know different tokens")
    edit("toy", suspend=True)(world)
    await world.until("all go", lambda: not world.server.all(kinds.PODS), seconds=10)
    edit("toy", suspend=False)(world)
    await world.until("all come again", lambda: world.settled("toy", 4), seconds=30)
    require(len(secrets_named(world)) == 1 and "toy-elastic" not in secrets_named(world), f"{secrets_named(world)}")


def token_of(container: dict[str, Any]) -> dict[str, Any]:
    """Where its token comes from."""
    [source] = [v["valueFrom"]["secretKeyRef"] for v in container["env"] if v["name"] == contract.ENV_TOKEN]
    return dict(source)


def secrets_named(world: ProcessWorld) -> set[str]:
    """The Secrets that the job's pods refer to."""
    return {token_of(container)["name"] for pod in world.pods("toy") for container in pod["spec"]["containers"]}


def as_of_an_older_release(world: ProcessWorld) -> None:
    """Secret and pods of the job become what they were before the Secret's name had the job's uid."""
    [secret] = world.server.all(SECRETS)
    world.server.remove(SECRETS, secret)
    world.server.create(SECRETS, {**secret, "metadata": {**secret["metadata"], "name": "toy-elastic"}})
    old = {"name": contract.ENV_TOKEN, "valueFrom": {"secretKeyRef": {"name": "toy-elastic", "key": "token"}}}
    for pod in world.pods("toy"):
        notes = {key: text for key, text in pod["metadata"]["annotations"].items() if key != contract.ANNOTATION_SECRET}
        [main] = pod["spec"]["containers"]
        main = {**main, "env": [old if v["name"] == contract.ENV_TOKEN else v for v in main["env"]]}
        meta = {**pod["metadata"], "annotations": notes}
        world.server.update(kinds.PODS, pod, metadata=meta, spec={**pod["spec"], "containers": [main]})


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
    await wait_for_membership(world, len(staying), epoch=2, within=60)
    highest = max(staying, key=lambda name: int(name.rpartition("-")[2]))
    require(set(uids(world)) == staying - {highest} | {MASTER}, f"{staying}, then {uids(world)}")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "scenario",
    [
        grows_and_shrinks,
        tells_once,
        mends_what_somebody_wrote,
        follows_a_lost_master,
        replaces_who_fails,
        runs_on_when_the_secret_of_a_namesake_goes_late,
        goes_on_with_the_secret_that_its_pods_know_from_an_older_release,
        ends_when_a_launcher_asks_for_it,
        gives_a_master_without_a_place_that_of_the_highest_worker,
    ],
    ids=lambda scenario: scenario.__name__.replace("_", " "),
)
def test_operator_of_an_elastic_job(scenario: Callable[[ProcessWorld], Awaitable[None]], seed: int) -> None:
    async def play(world: ProcessWorld) -> None:
        nodes(2, 2)(world)
        replica()(world)
        apply(world)
        await wait_for_membership(world, 4)
        await scenario(world)

    run_world(seed, play)
