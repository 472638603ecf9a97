"""A namespace of `watchNamespaces` is deleted, and the chart's Role with it: the operator goes on in the others."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from elastic_operator.watches import STALE_SECONDS
from tests.apiserver.faults.lab import World, await_service_account, elastic_job
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import eventually
from tests.apiserver.rights.conftest import Install, Start

pytestmark = [pytest.mark.apiserver, pytest.mark.extended, pytest.mark.timeout(420)]


@pytest.fixture
def doomed(world: World) -> Iterator[World]:
    """Another namespace on the same nodes."""
    name = f"doomed-{uuid.uuid4().hex[:8]}"
    world.api.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
    await_service_account(world.api, name)
    yield World(Jobs(world.api, name), world.kubelets)
    world.api.delete(f"/api/v1/namespaces/{name}")


def delete_namespace(world: World) -> None:
    """Delete the namespace; returns when it is gone with all that was in it."""
    path = f"/api/v1/namespaces/{world.jobs.namespace}"
    world.api.delete(path).raise_for_status()
    eventually("the end of the namespace", lambda: world.api.get(path).status_code == 404, seconds=90)


def test_jobs_elsewhere_are_served_by_this_leader_and_the_next(
    install: Install, world: World, doomed: World, start: Start
) -> None:
    served = [doomed.jobs.namespace, world.jobs.namespace]
    install("--set", f"settings.watchNamespaces={{{','.join(served)}}}")
    first = start(WATCH_NAMESPACES=f"[{', '.join(served)}]")
    for place in (doomed, world):
        place.start(elastic_job("toy", small=1, big=1))
        place.wait_settled("toy", 1)
    delete_namespace(doomed)
    time.sleep(STALE_SECONDS * 1.2)  # a store without an answer for this long keeps all jobs as they are
    world.start(elastic_job("second", small=1, big=1))
    world.wait_settled("second", 1)
    first.kill()
    start(WATCH_NAMESPACES=f"[{', '.join(served)}]")
    world.start(elastic_job("third", small=1, big=1))
    world.wait_settled("third", 1)
