"""A creation that the last leader sent, and that the API server carries out late."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest

from elastic_operator.cluster import pod_requests
from elastic_worker import contract
from tests.simulate import server as kinds
from tests.simulate.facts import name_of
from tests.simulate.test_quarantine import add_job, pods_of, run_scenario
from tests.simulate.world import World

ELASTIC = {"runtime": {"mode": "Elastic"}}


@pytest.mark.parametrize(("spec", "incarnation"), [({}, 2), (ELASTIC, 1)], ids=["Torchrun", "Elastic"])
def test_a_late_master_is_deleted_and_costs_its_successor_nothing(spec: dict[str, Any], incarnation: int) -> None:
    async def scenario(world: World) -> None:
        for _ in range(2):
            world.add_node(4, "a")
        job = add_job(world, "red", minReplicas=3, maxReplicas=3, **spec)
        await world.advance(60)
        [master] = (pod for pod in pods_of(world, job) if contract.ROLE_MASTER in name_of(pod))
        late = {
            "metadata": deepcopy(master["metadata"]),
            "spec": deepcopy(master["spec"]),
            "status": {"phase": "Pending"},
        }
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            late["metadata"].pop(field, None)
        late["spec"].pop("nodeName", None)
        create_pod, arrived = pod_requests.create_pod, list[str]()

        async def create(session: Any, manifest: Mapping[str, Any]) -> Any:
            if manifest["metadata"]["name"] == name_of(master) and not arrived:
                listeners, world.server.listeners = world.server.listeners, []  # the watch shows it later
                world.server.create(kinds.PODS, late)
                world.server.listeners = listeners
                arrived.append(name_of(master))
            return await create_pod(session, manifest)

        world.server.delete_pod(master, grace=0)
        with patch.object(pod_requests, "create_pod", create):
            await world.advance(120)
        assert arrived
        assert len(pods_of(world, job)) == 3
        status = world.server.find(kinds.JOBS, "red", name_of(job))["status"]
        incarnations = {pod["metadata"]["labels"][contract.LABEL_INCARNATION] for pod in pods_of(world, job)}
        assert incarnations == {str(incarnation)}
        assert (status["incarnation"], status["restarts"]) == (incarnation, 1)
        assert status.get("masterEpoch") == (2 if spec else None)

    run_scenario(scenario)
