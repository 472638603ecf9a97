"""Autoscaled pools on a real API server with a real kube-scheduler: what makes an autoscaler add nodes, or not."""

from __future__ import annotations

import pytest

from tests.apiserver.operators import eventually
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.provisioning.conftest import Start
from tests.apiserver.provisioning.lab import Pool

pytestmark = pytest.mark.apiserver


def test_a_job_runs_on_the_node_that_an_autoscaler_adds_for_its_pods(start: Start, pool: Pool) -> None:
    start()
    pool.submit(big=4)
    waiting = pool.wait_asked()
    assert sorted(waiting) == ["toy-master-0", "toy-worker-0"]
    assert all("affinity" not in pod["spec"] for pod in pool.pods())
    pool.wait_limited("WaitingForNodes", saying="autoscaler to add nodes until 20")
    assert pool.reason("Ready") == "Queued"
    eventually("the event", lambda: "WaitingForNodes" in pool.events())
    pool.grow(1)
    assert pool.wait_running(2) == waiting
    pool.grow(2)
    assert waiting.items() <= pool.wait_running(4).items()


@pytest.mark.extended
def test_room_on_a_node_there_is_serves_as_well(start: Start, pool: Pool) -> None:
    pool.grow(1)
    foreign = pool.occupy(2)
    start()
    pool.submit()
    waiting = pool.wait_asked()
    for path in foreign:
        pool.api.delete(path).raise_for_status()
    assert pool.wait_running(2) == waiting


@pytest.mark.extended
def test_while_nodes_are_not_asked_for_a_node_that_comes_is_used(start: Start, pool: Pool) -> None:
    start(timeout_seconds=10)
    pool.submit()
    pool.wait_asked()
    pool.wait_taken_back()
    pool.grow(1)
    pool.wait_running(2)
    assert pool.status()["retry"]["attempt"] == 1


def test_a_job_beyond_its_quota_has_no_pods_that_wait(start: Start, pool: Pool, policies: Policies) -> None:
    policies.create("team", namespaces=[pool.jobs.namespace], flavors=quota(3, limit=0))
    start()
    pool.submit("large", small=4, big=4)
    pool.wait_limited("BorrowingDisabled", "large")
    pool.submit("first")
    pool.wait_asked(2, "first")
    pool.submit("second")
    pool.wait_limited("BorrowingLimitReached", "second")
    pool.grow(1)
    pool.wait_running(2, "first")
    assert (pool.pods("large"), pool.pods("second")) == ([], [])
