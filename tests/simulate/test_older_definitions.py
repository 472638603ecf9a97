"""An operator under definitions of an older release: the API server drops fields of statuses that it does not know."""

from __future__ import annotations

import logging
from typing import Any
from unittest.mock import patch

import pytest

from tests.simulate import server as kinds
from tests.simulate.server import Body
from tests.simulate.test_quarantine import add_job, pods_of, run_scenario
from tests.simulate.world import World

SINCE = (
    "totalFailures",
    "checkpointAtFailure",
    "stepAtFailure",
    "activeSeconds",
    "activeSince",
    "avoidedNodes",
    "failedSize",
)
"""Fields of a job's status that the release before does not know."""


def dropping(world: World) -> Any:
    """Where this holds, the server stores no such field, and none of a change in a job's history."""
    store = world.server._store

    def pruned(key: kinds.Key, old: Body | None, new: Body) -> Body:
        if key[0] == kinds.JOBS and "status" in new:
            status = {name: value for name, value in new["status"].items() if name not in SINCE}
            changes = [{k: v for k, v in one.items() if k != "excused"} for one in status.get("history", ())]
            new = {**new, "status": status | {"history": changes}}
        return store(key, old, new)

    return patch.object(world.server, "_store", pruned)


def writes_of_statuses(world: World) -> list[str]:
    """Grows with each change of a job."""
    found: list[str] = []
    world.server.listeners.append(lambda plural, _, new: found.extend([plural] * bool(new and plural == kinds.JOBS)))
    return found


def test_pruned_fields_are_written_once_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        with dropping(world):
            job = add_job(world, "green", minReplicas=1, maxReplicas=2)
            await world.advance(60)
            assert len(pods_of(world, job)) == 2
            written = writes_of_statuses(world)
            await world.go_on(rounds=200)
            assert written == []
            add_job(world, "green", minReplicas=1, maxReplicas=1)
            await world.advance(60)
        (warning,) = [record.message for record in caplog.records if "older release" in record.message]
        assert "elasticpytorchjobs" in warning
        assert all(f"status.{name}" in warning for name in ("activeSeconds", "avoidedNodes", "totalFailures"))

    run_scenario(scenario)


def test_once_the_definitions_are_of_this_release_all_is_written_with_whatever_is_written_next() -> None:
    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        with dropping(world):
            job = add_job(world, "green", minReplicas=1, maxReplicas=1)
            await world.advance(60)
        world.server.edit(kinds.JOBS, now_of(world, job), {**job["spec"], "suspend": True})
        await world.advance(60)
        assert now_of(world, job)["status"]["activeSeconds"] >= 60
        world.server.edit(kinds.JOBS, now_of(world, job), job["spec"])
        await world.advance(60)
        assert "activeSince" in now_of(world, job)["status"]

    run_scenario(scenario)


def test_a_deadline_ends_the_job_though_its_account_is_dropped() -> None:
    async def scenario(world: World) -> None:
        world.add_node(4, "a")
        with dropping(world):
            job = add_job(world, "green", minReplicas=1, maxReplicas=2, activeDeadlineSeconds=600)
            await world.advance(580)
            assert "completionTime" not in now_of(world, job)["status"]
            await world.advance(60)
            assert "completionTime" in now_of(world, job)["status"]

    run_scenario(scenario)


def now_of(world: World, job: Body) -> Body:
    """The job as it is stored now."""
    found = world.server.find(kinds.JOBS, job["metadata"]["namespace"], job["metadata"]["name"])
    assert found is not None
    return found
