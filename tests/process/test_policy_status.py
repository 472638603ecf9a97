"""When the statuses of policies are written, and what happens where they cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from elastic_operator.api.policy import COLLECTION
from elastic_operator.cluster import objects
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.loop import policy_status
from elastic_operator.loop.policies import Policies
from elastic_operator.loop.policy_status import BETWEEN_SECONDS, RETRY_SECONDS, PolicyStatuses
from elastic_operator.plan.allocate import allocate
from tests.api.policies import make_flavor, make_policy
from tests.cluster_unit.fake_api import FakeApi, at_rest, fake_api, session_to
from tests.plan.allocate.world import NOW, make_job, make_node, make_snapshot
from tests.plan.quota.cases import on


@dataclass(slots=True)
class World:
    """Policies on a server, and what writes their statuses."""

    api: FakeApi
    store: Store[objects.CustomObject]
    statuses: PolicyStatuses
    policies: Policies

    async def apply(self, name: str, *, generation: int = 1, **spec: Any) -> None:
        """A user writes a policy, and the watch tells of it."""
        policy = make_policy(name, **spec)
        known = self.api.objects.get(f"{COLLECTION}/{name}", {})
        policy["metadata"] |= {"generation": generation, "creationTimestamp": "2026-01-31T12:00:00Z"}
        if "status" in known:
            policy["status"] = known["status"]
        stored = await self.api.put(f"{COLLECTION}/{name}", policy)
        self.store.observe(objects.decode(stored, objects.CustomObject))

    def run_pass(self, pods: int = 2) -> None:
        """One pass in which team a's job has so many pods."""
        resolved = self.policies.look()
        job = make_job("j", pods, team="a", on=on("n1", pods))
        snapshot = make_snapshot([make_node("n1", 8)], [job], teams=resolved.teams, team_of=resolved.team_of)
        self.statuses.told(resolved, snapshot, allocate(snapshot))

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects[f"{COLLECTION}/{name}"].get("status", {})
        return found

    def used(self, name: str) -> int | None:
        return (self.status(name).get("total") or {}).get("used")

    @property
    def writes(self) -> int:
        return self.api.requests["PATCH"]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """A server without policies, and the task that writes."""
    async with fake_api() as api, session_to(api) as session, writing(api, session) as made:
        yield made


@asynccontextmanager
async def writing(api: FakeApi, session: Session) -> AsyncIterator[World]:
    store: Store[objects.CustomObject] = Store()
    statuses = PolicyStatuses(session, store, now=lambda: NOW)
    task = asyncio.create_task(statuses.run())
    try:
        yield World(api, store, statuses, Policies(store, Store(), flavors=["default"]))
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def quota(guaranteed: int) -> list[dict[str, Any]]:
    return [make_flavor(guaranteed=guaranteed)]


async def test_after_a_pass_every_policy_has_its_status():
    async with world() as here:
        await here.apply("a", namespaces=["a"], flavors=quota(1), generation=4)
        await here.apply("b", namespaces=["b"], flavors=quota(1))
        here.run_pass()
        await at_rest()
    total = {"guaranteed": 1, "used": 2, "borrowed": 1, "lent": 0, "pending": 0}
    assert (here.status("a")["total"], here.status("a")["observedGeneration"]) == (total, 4)
    assert here.status("b")["total"]["lent"] == 1


async def test_what_metrics_show_of_a_policy_is_what_its_status_says_and_ends_with_it():
    async with world() as here:
        assert here.statuses.pictures() == ()
        await here.apply("a", namespaces=["a"], flavors=quota(1))
        here.run_pass()
        await at_rest()
        (picture,) = here.statuses.pictures()
        assert picture.name == "a"
        known = {"guaranteed": 1, "used": 2, "borrowed": 1, "lent": 0, "pending": 0, "fair_share": 2}
        assert picture.flavors == {"default": known}
        assert (picture.conditions["Ready"], picture.conditions["Conflict"]) == (True, False)
        limited = make_flavor(guaranteed=1, borrowing={"limit": 3})
        await here.apply("a", namespaces=["a"], flavors=[limited], generation=2)
        assert here.statuses.pictures() == (picture,)
        here.run_pass()
        await asyncio.sleep(BETWEEN_SECONDS)
        assert here.statuses.pictures()[0].flavors["default"]["limit"] == 4
        (policy,) = here.store
        here.store.observe_deleted(policy.metadata.uid)
        assert here.statuses.pictures() == ()


async def test_nothing_is_written_when_nothing_changed():
    async with world() as here:
        await here.apply("a", namespaces=["a"])
        here.run_pass()
        for _ in range(5):
            here.run_pass()
            await asyncio.sleep(2 * BETWEEN_SECONDS)
        assert (here.used("a"), here.writes) == (2, 1)


async def test_passes_within_a_second_are_told_with_one_write():
    async with world() as here:
        await here.apply("a", namespaces=["a"])
        here.run_pass(1)
        await at_rest()
        for pods in (2, 3, 4):
            here.run_pass(pods)
            assert here.used("a") == 1
            await asyncio.sleep(0.3)
        await asyncio.sleep(5)
        assert here.used("a") == 4
        assert here.api.moments["PATCH"] == [0, BETWEEN_SECONDS]


async def test_only_what_changed_of_a_status_is_sent():
    async with world() as here:
        await here.apply("a", namespaces=["a"], flavors=quota(2))
        here.run_pass(1)
        await at_rest()
        here.run_pass(2)
        await asyncio.sleep(BETWEEN_SECONDS)
        patches = [body for verb, path, _, body in here.api.seen if verb == "PATCH" and path.endswith("/a/status")]
    assert patches[-1]["status"].keys() == {"total", "flavors"}
    assert patches[-1]["status"]["total"] == {"used": 2}


async def test_a_spec_that_no_pass_has_seen_is_not_reported_on():
    async with world() as here:
        await here.apply("a", namespaces=["a"])
        here.run_pass()
        await at_rest()
        here.run_pass(3)
        await here.apply("a", namespaces=["a"], flavors=quota(1), generation=2)
        await asyncio.sleep(60)
        assert here.status("a")["observedGeneration"] == 1
        assert [picture.flavors["default"]["used"] for picture in here.statuses.pictures()] == [2]
        here.run_pass(3)
        await at_rest()
        assert (here.used("a"), here.status("a")["observedGeneration"]) == (3, 2)


@pytest.mark.parametrize("code", [403, 409, 422, 500])
async def test_a_write_that_fails_is_tried_again_without_news(code: int):
    async with world() as here:
        here.api.fail("PATCH", code, code)
        await here.apply("a", namespaces=["a"])
        here.run_pass()
        await asyncio.sleep(60)
        assert here.used("a") == 2
        first, second, third = here.api.moments["PATCH"]
        assert second - first == third - second == BETWEEN_SECONDS + RETRY_SECONDS


async def test_a_failure_is_logged_once_however_often_it_is_tried(caplog: pytest.LogCaptureFixture):
    async with world() as here:
        here.api.always["PATCH"] = 403
        await here.apply("a", namespaces=["a"])
        here.run_pass()
        await asyncio.sleep(60)
        assert here.writes > 3
    assert [r.message for r in caplog.records if r.name == policy_status.__name__] == [
        "policy=a its status cannot be written: 403 Forbidden: no (403)"
    ]


async def test_one_policy_that_cannot_be_written_does_not_keep_the_others():
    async with world() as here:
        here.api.fail("PATCH", 422)
        for name in ("a", "b"):
            await here.apply(name, namespaces=[name])
        here.run_pass()
        await at_rest()
        assert here.status("b")
        assert not here.status("a")
        await asyncio.sleep(60)
        assert here.status("a")


async def test_without_the_lease_nothing_is_written_and_nothing_is_logged(caplog: pytest.LogCaptureFixture):
    async with fake_api() as api, session_to(api) as session:
        session.remaining = lambda: 0.0
        async with writing(api, session) as here:
            await here.apply("a", namespaces=["a"])
            here.run_pass()
            await asyncio.sleep(60)
            assert here.writes == 0
            session.remaining = lambda: 60.0
            await asyncio.sleep(BETWEEN_SECONDS + RETRY_SECONDS)
            assert here.used("a") == 2
    assert not [r for r in caplog.records if r.name == policy_status.__name__]


async def test_a_policy_that_is_gone_is_not_tried_for_ever():
    async with world() as here:
        await here.apply("a", namespaces=["a"])
        await here.api.remove(f"{COLLECTION}/a")
        here.run_pass()
        await asyncio.sleep(60)
        assert here.writes == 1


async def test_a_status_that_somebody_wrote_wrongly_is_mended():
    async with world() as here:
        await here.apply("a", namespaces=["a"])
        path = f"{COLLECTION}/a"
        broken = await here.api.put(path, {**here.api.objects[path], "status": {"total": "much", "odd": 1}})
        here.store.observe(objects.decode(broken, objects.CustomObject))
        here.run_pass()
        await at_rest()
        assert here.used("a") == 2
        assert "odd" not in here.status("a")
