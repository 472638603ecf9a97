"""Random life on a real API server with a real kube-scheduler and KWOK's nodes: jobs, plain pods, nodes, policies and
leaders come and go, and whenever the cluster rests, everybody has what the rules give them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import httpx
import pytest

from devcluster.cluster import Cluster
from devcluster.progress import Progress
from elastic_operator.api import crd
from elastic_operator.api.definition import Definition
from elastic_operator.cluster.errors import AlreadyExists
from tests.apiserver.administrator import DEFINITIONS, client_of, install
from tests.apiserver.operators import Operators, eventually
from tests.life.mirror import LiveServer, Photo
from tests.life.world import Happening, LiveWorld
from tests.simulate import happenings as simulated
from tests.simulate import server as kinds
from tests.simulate.facts import name_of, node_of, place_of
from tests.workers import own_name, warm_parent

NAME = "life"
SHORT_SECONDS = 60.0
LONG_SECONDS = 60.0 * float(os.environ.get("LIFE_MINUTES", "30"))
BETWEEN_SECONDS = (0.1, 1.5)
REST_EVERY = 12
CLASSES = {"low": 0, "high": 10, "elastic-pytorch-worker": 0, "elastic-pytorch-master": 1}


def leader_changes(world: LiveWorld) -> str:
    """The operator that leads, or the one that stands by, is killed."""
    return world.change_leader()


AS_SIMULATED = (
    simulated.job_comes,
    simulated.job_goes,
    simulated.job_is_edited,
    simulated.job_is_suspended_or_resumed,
    simulated.pod_fails,
    simulated.job_succeeds,
    simulated.pod_is_deleted,
    simulated.node_comes,
    simulated.node_goes,
    simulated.node_is_cordoned_or_not,
    simulated.foreign_comes,
    simulated.foreign_ends,
    simulated.policy_comes_or_is_edited,
    simulated.policy_goes,
)
"""What can happen to a real cluster as it does to the simulated one, as often as there."""
HAPPENINGS: dict[Happening, int] = {
    **{happening: simulated.HAPPENINGS[happening] for happening in AS_SIMULATED},
    leader_changes: 2,
}


@pytest.fixture
def server(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[tuple[LiveServer, Operators]]:
    """An own control plane with KWOK, and operators to start there."""
    with Cluster.up(own_name(NAME), nodes=0, progress=Progress(quiet=True)) as cluster:
        cluster.add_fake_nodes(0, gpus=0)
        with client_of(cluster.kubeconfig) as api:
            _set_up(api)
            operators = Operators(cluster.kubeconfig, tmp_path, warm_parent(pytestconfig))
            yield LiveServer(api), operators
            operators.end()


def _set_up(api: httpx.Client) -> None:
    """The definitions, the operator's namespace, and classes of priority."""
    for one in (crd.JOB, crd.POLICY):
        install(api, one).raise_for_status()
        eventually(f"the service of {one.name}", lambda one=one: _is_served(api, one))
    api.post("/api/v1/namespaces", json={"metadata": {"name": "elastic-system"}})
    classes = {name: {"value": value, "preemptionPolicy": "Never"} for name, value in CLASSES.items()}
    of_pods = {
        name: {"value": one["priority"], "preemptionPolicy": one["preemptionPolicy"]}
        for name, one in kinds.PRIORITIES.items()
        if name
    }
    for name, spec in {**classes, **of_pods}.items():
        body = {"metadata": {"name": name}, **spec}
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", json=body).raise_for_status()


def _is_served(api: httpx.Client, definition: Definition) -> bool:
    status = api.get(f"{DEFINITIONS}/{definition.name}").json().get("status", {})
    return any(c["type"] == "Established" and c["status"] == "True" for c in status.get("conditions") or [])


def live(server: LiveServer, operators: Operators, seed: int, seconds: float) -> int:
    """A life of that seed; returns how much happened. What goes wrong is told with all that had happened."""
    dice, told = Random(seed), list[str]()
    try:
        world = LiveWorld(server, operators, dice)
        for beginning in (*[simulated.node_comes] * 4, *[simulated.policy_comes_or_is_edited] * 3):
            told.append(beginning(world))  # type: ignore[arg-type]
        world.come_to_rest()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            happening = dice.choices(list(HAPPENINGS), list(HAPPENINGS.values()))[0]
            try:
                what = happening(world)
            except AlreadyExists:
                continue
            if not what:
                continue
            told.append(f"{server.moments.passed:.1f} s: {what}")
            time.sleep(dice.uniform(*BETWEEN_SECONDS))
            world.look()
            if len(told) % REST_EVERY == 0:
                world.come_to_rest()
        world.come_to_rest()
    except Exception as error:
        error.add_note("\n  ".join([f"seed {seed}, after these {len(told)} events:", *told]))
        error.add_note("\n  ".join(["what there is:", *what_there_is(server.photo())]))
        raise
    return len(told)


def what_there_is(photo: Photo) -> Iterator[str]:
    """Nodes, jobs with why they are not bigger, and pods, a line each."""
    for node in photo.all(kinds.NODES):
        yield f"node {name_of(node)} {node['status']['allocatable']} {node['spec']}"
    for job in photo.all(kinds.JOBS):
        why = [c["message"] for c in job["status"].get("conditions", []) if c["type"] == "FullSize"]
        yield f"job {job['metadata']['namespace']}/{name_of(job)} of {job['status'].get('replicas')}: {why}"
    for pod in photo.all(kinds.PODS):
        status, where = pod["status"], f"{place_of(pod)} ({node_of(pod)})"
        nominated = status.get("nominatedNodeName", "")
        yield f"pod {pod['metadata']['namespace']}/{name_of(pod)} {status.get('phase')} at {where} for {nominated}"


@pytest.mark.apiserver
@pytest.mark.extended
@pytest.mark.lengthy
@pytest.mark.timeout(600)
def test_a_minute_of_random_life_breaks_no_rule(server: tuple[LiveServer, Operators]) -> None:
    assert live(*server, seed=1, seconds=SHORT_SECONDS) > REST_EVERY


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 900)
def test_half_an_hour_of_random_life_breaks_no_rule(server: tuple[LiveServer, Operators]) -> None:
    seed = int(os.environ.get("LIFE_SEED", str(int(time.time()))))
    assert live(*server, seed=seed, seconds=LONG_SECONDS) > REST_EVERY
