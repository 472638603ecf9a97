"""Scenarios in which time decides: time sharing within a team, nodes that do not come, and unchanged statuses."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_operator.settings import Settings
from tests.simulate import server as kinds
from tests.virtual.actions import (
    HOME,
    condition,
    creations,
    delete_pod,
    deletions,
    event,
    has_status,
    job,
    kill,
    leads,
    no,
    nodes,
    occupy,
    replica,
    settled,
)
from tests.virtual.scenario import Action, Condition, Scenario, Step, run_scenario
from tests.virtual.world import SETTINGS, ProcessWorld

QUANTUM_SECONDS, TIMEOUT_SECONDS = 5, 10
ASKING = SETTINGS.model_copy(
    update={
        "provisioning": "PendingPods",
        "provisioning_delay_seconds": 1,
        "provisioning_timeout_seconds": TIMEOUT_SECONDS,
    }
)


def policy(name: str, guaranteed: int, **spec: Any) -> Action:
    """The quota of the team of the scenarios' namespace."""
    flavors = [{"name": "a", "guaranteed": guaranteed}]
    body = {"metadata": {"name": name}, "spec": {"namespaces": [HOME], "flavors": flavors, **spec}}
    return lambda world: world.server.create(kinds.POLICIES, body)


def rigid(name: str) -> Action:
    """A job that needs all eight GPUs: two pods of four."""
    return job(name, small=2, big=2, gpus=4)


def edit_policy(name: str, **spec: Any) -> Action:
    """Somebody changes its spec."""

    def do(world: ProcessWorld) -> None:
        body = world.server.find(kinds.POLICIES, "", name)
        assert body is not None
        world.server.edit(kinds.POLICIES, body, {**body["spec"], **spec})

    return do


def runs_alone(name: str, other: str) -> Condition:
    """The one has its pods, the other none."""
    return lambda world: world.settled(name, 2) and not world.pods(other)


def has_its_turn(name: str, other: str) -> Condition:
    """It runs alone, since this step began, and its turn is the only one."""

    def look(world: ProcessWorld) -> bool:
        began = world.status(name).get("turnStarted")
        return bool(
            runs_alone(name, other)(world)
            and began
            and world.since_step_began(began) >= -1
            and "turnStarted" not in world.status(other)
        )

    return look


def turns_were_changed(world: ProcessWorld) -> bool:
    """From all to nothing and back, for each; no pod was made or taken back once more than that."""
    changes = [(c["from"], c["to"]) for c in world.status("one")["history"][-4:]]
    pods = {f"{name}-{role}-0": times for name, times in (("one", 3), ("two", 2)) for role in ("master", "worker")}
    return (
        changes == [(2, 0), (0, 2), (2, 0), (0, 2)]
        and creations(world) == pods
        and deletions(world) == dict.fromkeys(pods, 2)
    )


def policy_is_written(name: str) -> Condition:
    """The operator wrote the policy's status in this step."""
    return lambda world: world.replicas[0].line.requests(
        since=world.step_began, where=lambda request: request.writes and f"/gpuquotapolicies/{name}/" in request.path
    )


def pods_that_ask(count: int) -> Condition:
    """So many pods wait for a node, pinned to none; each was made when it was due."""

    def look(world: ProcessWorld) -> bool:
        pods, due = world.pods("toy"), world.status("toy").get("failedSize", {}).get("notBefore", "")
        return len(pods) == count and all(
            "affinity" not in pod["spec"]
            and not pod["spec"].get("nodeName")
            and pod["metadata"]["creationTimestamp"] >= due
            for pod in pods
        )

    return look


TURNS: Scenario = (
    Step(
        "one runs",
        (nodes(2, 4), policy("team", 8, timeSharing={"quantumSeconds": QUANTUM_SECONDS}), replica(), rigid("one")),
    ),
    Step("it has everything", expect=(settled("one", 2),)),
    *(
        Step(
            f"{name} has its turn",
            does,
            (has_its_turn(name, other),),
            within_seconds=2 * QUANTUM_SECONDS,
            not_before_seconds=least,
        )
        for name, other, does, least in (
            ("two", "one", (rigid("two"),), 0),
            ("one", "two", (), QUANTUM_SECONDS - 1.5),
            ("two", "one", (), QUANTUM_SECONDS - 1.5),
            ("one", "two", (), QUANTUM_SECONDS - 1.5),
        )
    ),
    Step("each change is told", expect=(turns_were_changed,)),
)
WITHOUT_TURNS: Scenario = (
    Step("one runs", (nodes(2, 4), policy("team", 8), replica(), rigid("one")), (settled("one", 2),)),
    Step("who came first runs on", (rigid("two"),), (runs_alone("one", "two"), no(deletions)), hold_seconds=600),
    Step(
        "until they are to share",
        (edit_policy("team", timeSharing={"quantumSeconds": QUANTUM_SECONDS}),),
        (runs_alone("two", "one"),),
    ),
)
STATUS: Scenario = (
    Step(
        "a job runs",
        (nodes(2, 4), policy("team", 4), replica(), job(big=4)),
        (settled("toy", 4), policy_is_written("team")),
    ),
    Step("what is so is written", hold_seconds=5),
    Step("and not again", expect=(settled("toy", 4),), hold_seconds=600, never=(policy_is_written("team"),)),
    *(
        Step(
            "nor for another one",
            (does,),
            (policy_is_written("b"),),
            hold_seconds=60,
            never=(policy_is_written("team"),),
        )
        for does in (policy("b", 1, namespaces=["nobody"]), edit_policy("b", flavors=[{"name": "a", "guaranteed": 0}]))
    ),
    Step("but when it changes", (job("other", big=8),), (policy_is_written("team"),)),
)
IN_VAIN: Scenario = (
    Step("pods ask for nodes", (replica(), job(small=2, big=2)), (pods_that_ask(2),), within_seconds=4),
    Step(
        "they are taken back",
        expect=(
            lambda world: not world.pods("toy"),
            event("toy", "ScaleUpBlocked", f"No node was added within {TIMEOUT_SECONDS} s"),
        ),
        not_before_seconds=TIMEOUT_SECONDS - 2,
        within_seconds=TIMEOUT_SECONDS + 3,
    ),
    Step(
        "with a back-off",
        expect=(
            lambda world: {"waitsFor": "Nodes", "attempt": 1}.items() <= world.status("toy")["failedSize"].items(),
            condition("toy", "FullSize", "NodeSelectorUnsatisfied", "New nodes are requested from 20"),
        ),
    ),
)
NODES: Scenario = (
    *IN_VAIN,
    Step(
        "another leads", (kill(0), replica()), (leads(1),), within_seconds=20, never=(lambda world: world.pods("toy"),)
    ),
    Step("it keeps to the back-off", expect=(pods_that_ask(2),), within_seconds=60, not_before_seconds=5),
    Step(
        "a node comes",
        (nodes(1, 4),),
        (settled("toy", 2), has_status("toy", failures=0)),
        within_seconds=3,
        hold_seconds=60,
    ),
    Step("all is well", expect=(condition("toy", "Ready", "Running"),)),
)
MEANWHILE: Scenario = (
    *IN_VAIN,
    Step(
        "a node comes",
        (nodes(1, 4),),
        (settled("toy", 2), lambda world: world.status("toy")["failedSize"]["attempt"] == 1),
    ),
)
ROOM: Scenario = (
    Step(
        "a node is full",
        (nodes(1, 2), occupy(2), replica(), job(small=2, big=2)),
        (pods_that_ask(2), condition("toy", "FullSize", "WaitingForNodes", "autoscaler to add nodes until 20")),
    ),
    Step("somebody goes", (delete_pod("foreign-0"), delete_pod("foreign-1")), (settled("toy", 2),), hold_seconds=60),
    Step("it was not asked again", expect=(lambda world: set(creations(world).values()) == {1},)),
)
SCENARIOS: dict[str, tuple[Scenario, Settings]] = {
    "jobs that cannot both run take turns": (TURNS, SETTINGS),
    "without time sharing who came first runs on": (WITHOUT_TURNS, SETTINGS),
    "a policy's status is not written again while nothing changes": (STATUS, SETTINGS),
    "pods for which no node comes are taken back, and another leader keeps to the back-off": (NODES, ASKING),
    "while nodes are not asked for a node that comes is used": (MEANWHILE, ASKING),
    "room on a node there is serves as well": (ROOM, ASKING),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SCENARIOS)
def test_delays_and_turns_end_on_time(name: str, seed: int) -> None:
    scenario, settings = SCENARIOS[name]
    run_scenario(scenario, seed, settings=settings)
