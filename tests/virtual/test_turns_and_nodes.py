"""Stories of one operator in which time decides: turns within a team, nodes that do not come, statuses left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elastic_operator.settings import Settings
from tests.simulate import server as kinds
from tests.simulate.api import Request
from tests.virtual.deeds import HOME, condition, event, has_status, job, kill, leads, nodes, replica, settled
from tests.virtual.story import Deed, Row, Story, tell
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


def runs_alone(name: str, other: str) -> Callable[[ProcessWorld], object]:
    """The one has its pods, the other none."""
    return lambda world: world.settled(name, 2) and not world.pods(other)


def turns_were_changed(world: ProcessWorld) -> bool:
    """From all to nothing and back, for each."""
    changes = [(c["from"], c["to"]) for c in world.status("one")["history"][-4:]]
    return changes == [(2, 0), (0, 2), (2, 0), (0, 2)]


def of_policies(request: Request) -> bool:
    """A write of a policy's status."""
    return request.writes and "/gpuquotapolicies/" in request.path


def policy_is_written(world: ProcessWorld) -> object:
    """Since the row began."""
    return world.replicas[0].line.requests(since=world.row_began, where=of_policies)


def pods_that_ask(count: int) -> Callable[[ProcessWorld], object]:
    """So many pods wait for a node, pinned to none."""
    return lambda world: (
        len(pods := world.pods("toy")) == count
        and all("affinity" not in pod["spec"] and not pod["spec"].get("nodeName") for pod in pods)
    )


TURNS: Story = (
    Row(
        "one runs",
        (nodes(2, 4), policy("team", 8, timeSharing={"quantumSeconds": QUANTUM_SECONDS}), replica(), rigid("one")),
    ),
    Row("it has everything", comes=(settled("one", 2),)),
    *(
        Row(f"{name} has its turn", does, (runs_alone(name, other),), within=2 * QUANTUM_SECONDS, at_least=least)
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
    Row("who came first runs on", (rigid("two"),), (runs_alone("one", "two"),), stays=600),
)
STATUS: Story = (
    Row("a job runs", (nodes(2, 4), policy("team", 4), replica(), job(big=4)), (settled("toy", 4), policy_is_written)),
    Row("what is so is written", stays=5),
    Row("and not again", comes=(settled("toy", 4),), stays=600, never=(policy_is_written,)),
    Row("but when it changes", (job("other", big=8),), (policy_is_written,)),
)
NODES: Story = (
    Row("pods ask for nodes", (replica(), job(small=2, big=2)), (pods_that_ask(2),), within=4),
    Row(
        "they are taken back",
        comes=(lambda world: not world.pods("toy"), event("toy", "ScaleUpBlocked")),
        at_least=TIMEOUT_SECONDS - 2,
        within=TIMEOUT_SECONDS + 3,
    ),
    Row("with a back-off", comes=(lambda world: world.status("toy")["retry"]["attempt"] == 1,)),
    Row("another leads", (kill(0), replica()), (leads(1),), within=20, never=(lambda world: world.pods("toy"),)),
    Row("it keeps to the back-off", comes=(pods_that_ask(2),), within=60, at_least=5),
    Row("a node comes", (nodes(1, 4),), (settled("toy", 2), has_status("toy", failures=0)), within=3, stays=60),
    Row("all is well", comes=(condition("toy", "Ready", "Running"),)),
)
STORIES: dict[str, tuple[Story, Settings]] = {
    "jobs that cannot both run take turns": (TURNS, SETTINGS),
    "without time sharing who came first runs on": (WITHOUT_TURNS, SETTINGS),
    "a policy's status is not written again while nothing changes": (STATUS, SETTINGS),
    "pods for which no node comes are taken back, and another leader keeps to the back-off": (NODES, ASKING),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", STORIES)
def test_everything_has_its_time(name: str, seed: int) -> None:
    story, settings = STORIES[name]
    tell(story, seed, settings=settings)
