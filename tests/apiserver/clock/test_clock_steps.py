"""Whose clock steps loses nothing, and makes nobody wait for the step: real processes beside a real API server.

`tests/virtual/test_waits.py` has all waits, and steps in both directions.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.apiserver.clock.steps import OwnClock, ServerClock
from tests.apiserver.clock.waits import POOLS, Waits
from tests.apiserver.faults.lab import FakeKubelets, World
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import LEASE, Operators, eventually

pytestmark = [pytest.mark.apiserver, pytest.mark.extended]

HOUR = 3600


@pytest.fixture
def waits(api: httpx.Client, jobs: Jobs) -> Iterator[Waits]:
    """Jobs that wait, on nodes of their own."""
    nodes = [f"node-{uuid.uuid4().hex[:6]}" for _ in POOLS * 2]
    names = list(nodes)
    with FakeKubelets(api, 1, nodes).running() as kubelets:
        yield Waits(World(jobs, kubelets))
        nodes[:] = names  # those that a test lost go as well


def lease(api: httpx.Client) -> tuple[Any, ...]:
    spec = api.get(LEASE).json()["spec"]
    return spec["holderIdentity"], spec["leaseTransitions"]


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_clock_step_of_the_api_server_costs_no_pod(operators: Operators, proxy: Proxy, waits: Waits, step: int) -> None:
    clock = proxy.filter = ServerClock()
    operator = operators.start(server=proxy.url)
    waits.begin("lost")
    clock.step(step)
    waits.edit()
    clock.wait_until_told()
    waits.allow(step)
    waits.lose_another_node()
    waits.watch()
    assert waits.amiss() == {}, operator.text()
    assert "clock stepped by" in operator.text()


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_operator_that_starts_after_a_clock_step_deletes_no_pod(
    operators: Operators, proxy: Proxy, waits: Waits, step: int
) -> None:
    clock = proxy.filter = ServerClock()
    operators.start(server=proxy.url)
    waits.begin()
    operators.end()
    clock.step(step)
    operator = operators.start(server=proxy.url)
    eventually("another leader", lambda: operator.leads, report=operator.text)
    waits.allow(step)
    waits.lose_another_node()
    waits.watch()
    assert waits.amiss() == {}, operator.text()


def test_clock_steps_of_the_operator_change_no_wait(
    operators: Operators, proxy: Proxy, waits: Waits, api: httpx.Client, tmp_path: Path
) -> None:
    clock = OwnClock(tmp_path)
    operator = operators.start_cold(server=proxy.url, environ=clock.environ)
    waits.begin("lost")
    before = lease(api)
    clock.set(HOUR)
    eventually("a line under the new clock", lambda: spread(operator.text()) > HOUR - 60)
    waits.lose_another_node()
    clock.set(-HOUR)
    waits.watch()
    assert waits.amiss() == {}, operator.text()
    assert spread(operator.text()) > 2 * HOUR - 60
    assert lease(api) == before
    assert operator.text().count("leading as") == 1


def spread(log: str) -> float:
    """Seconds between the earliest and the latest time in a log."""
    times = [datetime.fromisoformat(line[:19]).timestamp() for line in log.splitlines() if line[:2] == "20"]
    return max(times) - min(times)
