"""When the statuses of policies are written, and what happens where they cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any
from unittest.mock import patch

import pytest

from elastic_api.policy import COLLECTION, PolicyStatus
from elastic_operator.cluster import objects
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.planner import PassDecisions, Planner
from elastic_operator.plan.policies.status import PolicyUsage
from elastic_operator.quarantine import Quarantine
from elastic_operator.read.policies import Policies
from elastic_operator.upkeep import upkeep
from elastic_operator.upkeep.policy_status import PolicyStatuses
from elastic_operator.upkeep.upkeep import BETWEEN_SECONDS, UPKEEP_RETRY_SECONDS
from tests.api.policies import make_flavor, make_policy
from tests.cluster_unit.fake_api import FakeApi, at_rest
from tests.kit.tasks import running
from tests.plan.allocate.world import NOW, make_inputs, make_job, make_node
from tests.plan.quota.cases import on
from tests.simulate.server import POLICIES, Body, Key


@dataclass(slots=True)
class World:
    """Policies on a server, and what writes their statuses."""

    api: FakeApi
    store: Store[objects.CustomObject]
    statuses: PolicyStatuses
    planner: Planner
    policies: Policies

    def apply(self, name: str, **spec: Any) -> None:
        """A user writes a policy, and the watch tells of it."""
        path, policy = f"{COLLECTION}/{name}", make_policy(name, **spec)
        known = self.api.find(path)
        stored = self.api.server.edit(POLICIES, known, policy["spec"]) if known else self.api.put(path, policy)
        self.store.observe(objects.decode(stored, objects.CustomObject))

    def run_pass(self, pods: int = 2) -> None:
        """One pass in which team a's job has so many pods."""
        resolved = self.policies.refresh()
        job = make_job("j", pods, team="a", on=on("n1", pods))
        inputs = replace(make_inputs([make_node("n1", 8)], [job]), teams=resolved.teams)
        self.planner.decided = PassDecisions(resolved, {}, inputs, allocate(inputs), True, inf, None)
        self.statuses.pass_ended()

    def status(self, name: str) -> dict[str, Any]:
        found = self.api.find(f"{COLLECTION}/{name}")
        assert found is not None
        return dict(found.get("status", {}))

    def used(self, name: str) -> int | None:
        return (self.status(name).get("total") or {}).get("used")

    @property
    def writes(self) -> int:
        return self.api.requests["PATCH"]


@pytest.fixture
async def here(api: FakeApi, session: Session) -> AsyncIterator[World]:
    """A server without policies, and the task that writes."""
    store: Store[objects.CustomObject] = Store()
    planner = Planner()
    statuses = PolicyStatuses(session, store, planner, now=lambda: NOW)
    async with running(statuses.run()) as task:
        policies = Policies(store, Store(), AllocationSettings(), Quarantine())
        yield World(api, store, statuses, planner, policies)
        assert not task.done()


def quota(guaranteed: int) -> list[dict[str, Any]]:
    return [make_flavor(guaranteed=guaranteed)]


async def test_after_a_pass_every_policy_has_its_status(here: World):
    here.apply("a", namespaces=["a"], flavors=quota(1))
    here.apply("b", namespaces=["b"], flavors=quota(7))
    here.run_pass()
    await at_rest()
    total = {"guaranteed": 1, "used": 2, "borrowed": 1, "lent": 0, "pending": 0}
    assert (here.status("a")["total"], here.status("a")["observedGeneration"]) == (total, 1)
    assert here.status("b")["total"]["lent"] == 1


async def test_what_metrics_show_of_a_policy_is_what_its_status_says_and_ends_with_it(here: World):
    assert here.statuses.all_stats() == ()
    here.apply("a", namespaces=["a"], flavors=quota(1))
    here.run_pass()
    await at_rest()
    (stats,) = here.statuses.all_stats()
    assert stats.name == "a"
    known = {"guaranteed": 1, "used": 2, "borrowed": 1, "lent": 0, "pending": 0, "fair_share": 2}
    assert stats.flavors == {"default": known}
    assert (stats.conditions["Ready"], stats.conditions["Conflict"]) == (True, False)
    limited = make_flavor(guaranteed=1, borrowing={"limit": 3})
    here.apply("a", namespaces=["a"], flavors=[limited])
    assert here.statuses.all_stats() == (stats,)
    here.run_pass()
    await asyncio.sleep(BETWEEN_SECONDS)
    assert here.statuses.all_stats()[0].flavors["default"]["limit"] == 4
    (policy,) = here.store
    here.store.observe_deleted(policy.metadata.uid)
    assert here.statuses.all_stats() == ()


async def test_what_an_older_definition_drops_is_not_written_over_and_over(here: World):
    store = here.api.server._store

    def dropping(key: Key, old: Body | None, new: Body) -> Body:
        known = {name: value for name, value in new.get("status", {}).items() if name != "total"}
        return store(key, old, {**new, "status": known} if "status" in new else new)

    with patch.object(here.api.server, "_store", dropping):
        here.apply("a", namespaces=["a"], flavors=quota(1))
        for _ in range(5):
            here.run_pass()
            await asyncio.sleep(BETWEEN_SECONDS)
    assert (here.writes, here.used("a")) == (1, None)


async def test_nothing_is_written_when_nothing_changed(here: World):
    here.apply("a", namespaces=["a"])
    here.run_pass()
    for _ in range(5):
        here.run_pass()
        await asyncio.sleep(2 * BETWEEN_SECONDS)
    assert (here.used("a"), here.writes) == (2, 1)


async def test_passes_within_a_second_are_told_with_one_write(here: World):
    here.apply("a", namespaces=["a"])
    here.run_pass(1)
    await at_rest()
    for pods in (2, 3, 4):
        here.run_pass(pods)
        assert here.used("a") == 1
        await asyncio.sleep(0.3)
    await asyncio.sleep(5)
    assert here.used("a") == 4
    assert here.api.moments["PATCH"] == [0, BETWEEN_SECONDS]


async def test_only_what_changed_of_a_status_is_sent(here: World):
    here.apply("a", namespaces=["a"], flavors=quota(2))
    here.run_pass(1)
    await at_rest()
    here.run_pass(2)
    await asyncio.sleep(BETWEEN_SECONDS)
    patches = [body for verb, path, _, body in here.api.seen if verb == "PATCH" and path.endswith("/a/status")]
    assert patches[-1]["status"].keys() == {"total", "flavors"}
    assert patches[-1]["status"]["total"] == {"used": 2}


async def test_a_spec_that_no_pass_has_seen_is_not_reported_on(here: World):
    here.apply("a", namespaces=["a"])
    here.run_pass()
    await at_rest()
    here.run_pass(3)
    here.apply("a", namespaces=["a"], flavors=quota(1))
    await asyncio.sleep(60)
    assert here.status("a")["observedGeneration"] == 1
    assert [stats.flavors["default"]["used"] for stats in here.statuses.all_stats()] == [2]
    here.run_pass(3)
    await at_rest()
    assert (here.used("a"), here.status("a")["observedGeneration"]) == (3, 2)


@pytest.mark.parametrize("code", [403, 409, 422, 500])
async def test_a_write_that_fails_is_tried_again_without_news(here: World, code: int):
    here.api.fail("PATCH", code, code)
    here.apply("a", namespaces=["a"])
    here.run_pass()
    await asyncio.sleep(60)
    assert here.used("a") == 2
    first, second, third = here.api.moments["PATCH"]
    assert second - first == third - second == BETWEEN_SECONDS + UPKEEP_RETRY_SECONDS


async def test_one_policy_whose_status_cannot_be_worked_out_does_not_keep_the_others(here: World):
    for name in ("a", "b"):
        here.apply(name, namespaces=[name])
    work = PolicyUsage.status

    def status(overview: PolicyUsage, name: str, *of_pass: Any, **more: Any) -> PolicyStatus:
        if name == "a":
            raise KeyError("odd")
        return work(overview, name, *of_pass, **more)

    with patch.object(PolicyUsage, "status", status):
        here.run_pass()
        await at_rest()
    assert here.status("b")
    assert not here.status("a")


async def test_nothing_is_written_of_a_pass_after_which_another_one_has_failed(here: World):
    here.api.fail("PATCH", 500)
    here.apply("a", namespaces=["a"])
    here.run_pass()
    await at_rest()
    here.planner.forget()
    await asyncio.sleep(60)
    assert here.writes == 1
    here.run_pass(3)
    await asyncio.sleep(60)
    assert here.used("a") == 3


async def test_a_failure_is_logged_once_however_often_it_is_tried(here: World, caplog: pytest.LogCaptureFixture):
    here.api.always["PATCH"] = 403
    here.apply("a", namespaces=["a"])
    here.run_pass()
    await asyncio.sleep(60)
    assert here.writes > 3
    assert [r.message for r in caplog.records if r.name == upkeep.__name__] == [
        "cannot write the status policy=a reason=403 Forbidden: no (403)"
    ]


async def test_one_policy_that_cannot_be_written_does_not_keep_the_others(here: World):
    here.api.fail("PATCH", 422)
    for name in ("a", "b"):
        here.apply(name, namespaces=[name])
    here.run_pass()
    await at_rest()
    assert here.status("b")
    assert not here.status("a")
    await asyncio.sleep(60)
    assert here.status("a")


async def test_without_the_lease_nothing_is_written_and_nothing_is_logged(
    here: World, session: Session, caplog: pytest.LogCaptureFixture
):
    session.remaining = lambda: 0.0
    here.apply("a", namespaces=["a"])
    here.run_pass()
    await asyncio.sleep(60)
    assert here.writes == 0
    session.remaining = lambda: 60.0
    await asyncio.sleep(BETWEEN_SECONDS + UPKEEP_RETRY_SECONDS)
    assert here.used("a") == 2
    assert not [r for r in caplog.records if r.name == upkeep.__name__]


async def test_a_policy_that_is_gone_is_not_tried_for_ever(here: World):
    here.apply("a", namespaces=["a"])
    here.api.remove(f"{COLLECTION}/a")
    here.run_pass()
    await asyncio.sleep(60)
    assert here.writes == 1


async def test_a_status_that_somebody_wrote_wrongly_is_mended(here: World):
    here.apply("a", namespaces=["a"])
    path = f"{COLLECTION}/a"
    broken = here.api.put(path, {**here.api.find(path), "status": {"total": "much", "odd": 1}})
    here.store.observe(objects.decode(broken, objects.CustomObject))
    here.run_pass()
    await at_rest()
    assert here.used("a") == 2
    assert "odd" not in here.status("a")
