"""Two nodes of four GPUs, a team that borrows, the team that owns what it borrows, and one that has no right to any."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.apiserver.faults.lab import FakeKubelets, World, elastic_job
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import Operators, eventually
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.reclaim.lab import Notebooks, release_all
from tests.apiserver.reclaim.observed import Observed, Start

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
def world(api: httpx.Client, jobs: Jobs) -> Iterator[World]:
    """The borrowers' jobs, and the nodes. No finalizer outlives the test, and no pod."""
    with FakeKubelets(api, 4).running() as kubelets:
        world = World(jobs, kubelets)
        yield world
        kubelets.lets_go = True
        release_all(api)
        api.delete(jobs.path).raise_for_status()
        api.delete(world.pods_path, params={"gracePeriodSeconds": "0"}).raise_for_status()
        eventually("an end of the pods", lambda: not world.pods(), report=world.report)


@pytest.fixture
def notebooks(new_namespace: Callable[[], Jobs], world: World) -> Iterator[Callable[[], Notebooks]]:
    """Makes namespaces with plain pods, which are deleted while it is still known whose they are."""
    made: list[Notebooks] = []

    def make() -> Notebooks:
        made.append(Notebooks(world.api, new_namespace().namespace))
        return made[-1]

    yield make
    release_all(world.api)
    for pods in made:
        world.api.delete(pods.path, params={"gracePeriodSeconds": "0"}).raise_for_status()


@pytest.fixture
def owner(policies: Policies, world: World, notebooks: Callable[[], Notebooks]) -> Notebooks:
    """The pods of a team to which four GPUs are guaranteed; two are to the borrowers."""
    theirs = notebooks()
    policies.create("borrower", namespaces=[world.jobs.namespace], flavors=quota(2))
    policies.create("owner", namespaces=[theirs.namespace], flavors=quota(4))
    return theirs


@pytest.fixture
def guest(policies: Policies, notebooks: Callable[[], Notebooks]) -> Notebooks:
    """The pods of a team that is entitled to nothing."""
    theirs = notebooks()
    policies.create("guest", namespaces=[theirs.namespace], flavors=quota(0, limit=0))
    return theirs


@pytest.fixture(scope="session")
def watcher(kubeconfig: Path) -> Iterator[Proxy]:
    """The proxy through which all operators here go."""
    with Proxy.of(kubeconfig) as proxy:
        yield proxy


@pytest.fixture
def start(operators: Operators, watcher: Proxy) -> Start:
    """Starts operators that are watched; the names of settings are those of the variables, RECLAIM__MODE."""
    return lambda **settings: Observed.start(operators, watcher, settings)


@pytest.fixture
def observed(start: Start, world: World, owner: Notebooks) -> Observed:  # noqa: ARG001 - the policies come first
    """An operator, and the borrowers' job on all eight GPUs."""
    running = start()
    world.start(elastic_job(small=2, big=8))
    world.wait_settled("toy", 8)
    return running


@pytest.fixture
def priority_class(api: httpx.Client) -> Iterator[Callable[..., str]]:
    """Makes PriorityClasses: value, and further fields; returns the name."""
    made: list[str] = []

    def make(value: int, **fields: Any) -> str:
        name = f"test-{uuid.uuid4().hex[:8]}"
        accepted(api.post(CLASSES, json={"metadata": {"name": name}, "value": value, **fields}))
        made.append(name)
        return name

    yield make
    for name in made:
        api.delete(f"{CLASSES}/{name}").raise_for_status()
