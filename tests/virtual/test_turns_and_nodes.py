"""Stories of one operator in which time decides: turns within a team, nodes that do not come, statuses left alone."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_operator.settings import Settings
from tests.simulate import server as kinds
from tests.virtual.deeds import (
    HOME,
    condition,
    delete_pod,
    event,
    has_status,
    job,
    kill,
    leads,
    made,
    no,
    nodes,
    occupy,
    replica,
    settled,
    taken_back,
)
from tests.virtual.story import Deed, Fact, Row, Story, tell
from tests.virtual.world import SETTINGS, ProcessWorld

QUANTUM_SECONDS, TIMEOUT_SECONDS = 5, 10
ASKING = SETTINGS.model_copy(
    update={
        "provisioning": "PendingPods",
        "provisioning_delay_seconds": 1,
        "provisioning_timeout_seconds": TIMEOUT_SECONDS,
    }
)


def policy(name: str, guaranteed: int, **spec: Any) -> Deed:
    """The quota of the team of the stories' namespace."""
    flavors = [{"name": "a", "guaranteed": guaranteed}]
    body = {"metadata": {"name": name}, "spec": {"namespaces": [HOME], "flavors": flavors, **spec}}
    return lambda world: world.server.create(kinds.POLICIES, body)


def rigid(name: str) -> Deed:
    """A job that needs all eight GPUs: two pods of four."""
    return job(name, small=2, big=2, gpus=4)


def edit_policy(name: str, **spec: Any) -> Deed:
    """Somebody changes its spec."""

    def do(world: ProcessWorld) -> None:
        body = world.server.find(kinds.POLICIES, "", name)
        assert body is not None
        world.server.edit(kinds.POLICIES, body, {**body["spec"], **spec})

    return do


def runs_alone(name: str, other: str) -> Fact:
    """The one has its pods, the other none."""
    return lambda world: world.settled(name, 2) and not world.pods(other)


def has_its_turn(name: str, other: str) -> Fact:
    """It runs alone, since this row began, and its turn is the only one."""

    def look(world: ProcessWorld) -> bool:
        began = world.status(name).get("turnStarted")
        return bool(
            runs_alone(name, other)(world)
            and began
            and world.since_row_began(began) >= -1
            and "turnStarted" not in world.status(other)
        )

    return look


def turns_were_changed(world: ProcessWorld) -> bool:
    """From all to nothing and back, for each; no pod was made or taken back once more than that."""
    changes = [(c["from"], c["to"]) for c in world.status("one")["history"][-4:]]
    pods = {f"{name}-{role}-0": times for name, times in (("one", 3), ("two", 2)) for role in ("master", "worker")}
    return (
        changes == [(2, 0), (0, 2), (2, 0), (0, 2)]
        and made(world) == pods
        and taken_back(world) == dict.fromkeys(pods, 2)
    )


def policy_is_written(name: str) -> Fact:
    """Its status, since the row began."""
    return lambda world: world.replicas[0].line.requests(
        since=world.row_began, where=lambda request: request.writes and f"/gpuquotapolicies/{name}/" in request.path
    )


def pods_that_ask(count: int) -> Fact:
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


TURNS: Story = (
    Row(
        "one runs",
        (nodes(2, 4), policy("team", 8, timeSharing={"quantumSeconds": QUANTUM_SECONDS}), replica(), rigid("one")),
    ),
    Row("it has everything", comes=(settled("one", 2),)),
    *(
        Row(f"{name} has its turn", does, (has_its_turn(name, other),), within=2 * QUANTUM_SECONDS, at_least=least)
        for name, other, does, least in (
            ("two", "one", (rigid("two"),), 0),
            ("one", "two", (), QUANTUM_SECONDS - 1.5),
            ("two", "one", (), QUANTUM_SECONDS - 1.5),
            ("one", "two", (), QUANTUM_SECONDS - 1.5),
        )
    ),
    Row("each change is told", comes=(turns_were_changed,)),
)
WITHOUT_TURNS: Story = (
    Row("one runs", (nodes(2, 4), policy("team", 8), replica(), rigid("one")), (settled("one", 2),)),
    Row("who came first runs on", (rigid("two"),), (runs_alone("one", "two"), no(taken_back)), stays=600),
    Row(
        "until they are to share",
        (edit_policy("team", timeSharing={"quantumSeconds": QUANTUM_SECONDS}),),
        (runs_alone("two", "one"),),
    ),
)
STATUS: Story = (
    Row(
        "a job runs",
        (nodes(2, 4), policy("team", 4), replica(), job(big=4)),
        (settled("toy", 4), policy_is_written("team")),
    ),
    Row("what is so is written", stays=5),
    Row("and not again", comes=(settled("toy", 4),), stays=600, never=(policy_is_written("team"),)),
    *(
        Row("nor for another one", (does,), (policy_is_written("b"),), stays=60, never=(policy_is_written("team"),))
        for does in (policy("b", 1, namespaces=["nobody"]), edit_policy("b", flavors=[{"name": "a", "guaranteed": 0}]))
    ),
    Row("but when it changes", (job("other", big=8),), (policy_is_written("team"),)),
)
IN_VAIN: Story = (
    Row("pods ask for nodes", (replica(), job(small=2, big=2)), (pods_that_ask(2),), within=4),
    Row(
        "they are taken back",
        comes=(
            lambda world: not world.pods("toy"),
            event("toy", "ScaleUpBlocked", f"No node was added within {TIMEOUT_SECONDS} s"),
        ),
        at_least=TIMEOUT_SECONDS - 2,
        within=TIMEOUT_SECONDS + 3,
    ),
    Row(
        "with a back-off",
        comes=(
            lambda world: {"waitsFor": "Nodes", "attempt": 1}.items() <= world.status("toy")["failedSize"].items(),
            condition("toy", "FullSize", "NodeSelectorUnsatisfied", "New nodes are requested from 20"),
        ),
    ),
)
NODES: Story = (
    *IN_VAIN,
    Row("another leads", (kill(0), replica()), (leads(1),), within=20, never=(lambda world: world.pods("toy"),)),
    Row("it keeps to the back-off", comes=(pods_that_ask(2),), within=60, at_least=5),
    Row("a node comes", (nodes(1, 4),), (settled("toy", 2), has_status("toy", failures=0)), within=3, stays=60),
    Row("all is well", comes=(condition("toy", "Ready", "Running"),)),
)
MEANWHILE: Story = (
    *IN_VAIN,
    Row(
        "a node comes",
        (nodes(1, 4),),
        (settled("toy", 2), lambda world: world.status("toy")["failedSize"]["attempt"] == 1),
    ),
)
ROOM: Story = (
    Row(
        "a node is full",
        (nodes(1, 2), occupy(2), replica(), job(small=2, big=2)),
        (pods_that_ask(2), condition("toy", "FullSize", "WaitingForNodes", "autoscaler to add nodes until 20")),
    ),
    Row("somebody goes", (delete_pod("foreign-0"), delete_pod("foreign-1")), (settled("toy", 2),), stays=60),
    Row("it was not asked again", comes=(lambda world: set(made(world).values()) == {1},)),
)
STORIES: dict[str, tuple[Story, Settings]] = {
    "jobs that cannot both run take turns": (TURNS, SETTINGS),
    "without time sharing who came first runs on": (WITHOUT_TURNS, SETTINGS),
    "a policy's status is not written again while nothing changes": (STATUS, SETTINGS),
    "pods for which no node comes are taken back, and another leader keeps to the back-off": (NODES, ASKING),
    "while nodes are not asked for a node that comes is used": (MEANWHILE, ASKING),
    "room on a node there is serves as well": (ROOM, ASKING),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", STORIES)
def test_everything_has_its_time(name: str, seed: int) -> None:
    story, settings = STORIES[name]
    tell(story, seed, settings=settings)
