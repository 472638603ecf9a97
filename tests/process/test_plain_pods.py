"""When the quotas of plain pods are written, and what happens where they cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_api.pod_names import parse_pod_name
from elastic_operator.build.resource_quota import QUOTA_NAME
from elastic_operator.cluster import objects
from elastic_operator.cluster.pod import Pod
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.team import Teams
from elastic_operator.plan.policies.resolve import ResolvedPolicies
from elastic_operator.read.ledger import Ledger
from elastic_operator.upkeep import upkeep
from elastic_operator.upkeep.plain_pods import PlainPodQuotas
from elastic_operator.upkeep.upkeep import BETWEEN_SECONDS, UPKEEP_RETRY_SECONDS
from tests.cluster_unit.build import pod
from tests.cluster_unit.fake_api import FakeApi, at_rest
from tests.kit.tasks import running
from tests.plan.allocate.world import GPU, make_inputs, make_node, make_team

WRITES = ("POST", "PUT", "DELETE")


def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/resourcequotas/{QUOTA_NAME}"


@dataclass(slots=True)
class World:
    """Namespaces on a server, what plain pods hold in them, and what writes their quotas. Policies guarantee 8 GPUs."""

    api: FakeApi
    namespaces: Store[objects.Namespace] = field(default_factory=Store)
    quotas: Store[objects.CustomObject] = field(default_factory=Store)
    ledger: Ledger = field(default_factory=lambda: Ledger(job_of=lambda _: None, parse=parse_pod_name))
    plain: dict[str, Pod] = field(default_factory=dict)
    unserved: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    """The namespaces whose limits were computed."""
    last_pass: Any = None
    keeper: PlainPodQuotas | None = None

    def begin(self, session: Session) -> PlainPodQuotas:
        for name in ("a", "b", "other"):
            found = self.api.find(f"/api/v1/namespaces/{name}")
            assert found is not None
            self.namespaces.observe(objects.decode(found, objects.Namespace))
        self.keeper = PlainPodQuotas(
            session,
            self.quotas,
            self.namespaces,
            SimpleNamespace(allocation=AllocationSettings(), job_pod_classes=("worker", "master"), watches=self.serves),  # type: ignore[arg-type]
            plain=self.ledger.plain_gpus,
        )
        self.quotas.subscribe(self.keeper.quota_changed)
        return self.keeper

    def run_pass(self, *covered: str, **held: int) -> None:
        """A pass that saw one policy of these namespaces, and so many GPUs held by plain pods."""
        for name in {*self.plain, *held}:
            self.hold(name, held.get(name, 0))
        resolved = ResolvedPolicies(Teams((make_team("team", 8),), dict.fromkeys(covered, "team")))
        self.last_pass = SimpleNamespace(policies=resolved, inputs=make_inputs([make_node()], []))
        self.repeat_pass()

    def repeat_pass(self) -> None:
        """A pass that saw what the last one saw."""
        assert self.keeper is not None
        self.keeper.pass_ended(self.last_pass)

    def hold(self, namespace: str, gpus: int) -> None:
        """The namespace has one plain pod of so many GPUs, or none."""
        old = self.plain.pop(namespace, None)
        new = pod("plain", namespace=namespace, uid=f"uid-{namespace}", gpus=gpus) if gpus else None
        self.ledger.pod_changed(old, new)
        if new is not None:
            self.plain[namespace] = new

    def serves(self, namespace: str) -> bool:
        self.asked.append(namespace)
        return namespace not in self.unserved

    def limit(self, namespace: str) -> str | None:
        found = self.api.find(path(namespace))
        return found["spec"]["hard"][f"requests.{GPU}"] if found else None

    def seen(self, namespace: str) -> dict[str, Any]:
        """The quota, of which the watch has told."""
        found = self.api.find(path(namespace))
        assert found is not None
        self.quotas.observe(objects.decode(found, objects.CustomObject))
        return found

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [(verb, p.split("/")[4]) for verb, p, _, _ in self.api.seen if verb in WRITES]


@pytest.fixture
async def here(api: FakeApi, session: Session) -> AsyncIterator[World]:
    """A server without quotas, and the task that keeps them."""
    world = World(api)
    async with running(world.begin(session).run()) as task:
        yield world
        assert not task.done()


async def test_each_namespace_that_a_policy_covers_has_one_and_no_other_has(here: World):
    here.run_pass("a", "b", a=3)
    await at_rest()
    assert (here.limit("a"), here.limit("b"), here.limit("other")) == ("8", "5", None)


async def test_nothing_is_written_when_nothing_changed(here: World):
    for held in (3, 3, 3):
        here.run_pass("a", a=held)
        await asyncio.sleep(2 * BETWEEN_SECONDS)
    assert here.writes == [("POST", "a")]


async def test_limits_are_computed_again_only_if_a_pass_saw_a_change(here: World):
    here.run_pass("a", a=3)
    await at_rest()
    assert here.asked == ["a"]
    here.seen("a")
    await asyncio.sleep(2 * BETWEEN_SECONDS)
    here.asked.clear()
    here.ledger.pod_changed(None, pod("cpu", namespace="b", cpu="1"))
    for _ in range(3):
        here.repeat_pass()
        await asyncio.sleep(2 * BETWEEN_SECONDS)
    assert here.asked == []
    here.hold("a", 4)
    here.repeat_pass()
    await asyncio.sleep(2 * BETWEEN_SECONDS)
    assert here.asked == ["a"]


async def test_a_limit_as_the_api_server_may_word_it_is_the_same_limit(here: World):
    here.run_pass("a", "b")
    await at_rest()
    spec = here.seen("a")["spec"]
    here.api.put(path("a"), {"spec": {**spec, "hard": {f"requests.{GPU}": "8000m"}}})
    here.seen("a")
    await asyncio.sleep(2 * BETWEEN_SECONDS)
    assert len(here.writes) == 2


async def test_limits_that_fall_are_written_before_others_rise(here: World):
    here.run_pass("a", "b", b=6)
    await at_rest()
    before = len(here.writes)
    here.run_pass("a", "b", a=5)
    await asyncio.sleep(2 * BETWEEN_SECONDS)
    assert (here.limit("a"), here.limit("b")) == ("8", "3")
    assert here.writes[before:] == [("PUT", "b"), ("PUT", "a")]


async def test_a_quota_is_deleted_with_its_policy_or_when_the_namespace_leaves_the_policy(here: World):
    here.run_pass("a", "b")
    await at_rest()
    here.run_pass("b")
    await asyncio.sleep(BETWEEN_SECONDS)
    assert (here.limit("a"), here.limit("b")) == (None, "8")
    here.run_pass()
    await asyncio.sleep(BETWEEN_SECONDS)
    assert here.limit("b") is None
    assert here.writes[-2:] == [("DELETE", "a"), ("DELETE", "b")]


async def test_nothing_is_written_in_a_namespace_that_is_not_served_or_that_is_not_there(here: World):
    here.unserved.add("b")
    here.run_pass("a", "b", "nowhere")
    await asyncio.sleep(60)
    assert here.writes == [("POST", "a")]


async def test_nothing_is_written_in_a_namespace_that_goes(here: World):
    found = here.api.find("/api/v1/namespaces/a")
    assert found is not None
    going = here.api.server.relabel("namespaces", found, deletionTimestamp="2026-01-01T00:00:00Z")
    here.namespaces.observe(objects.decode(going, objects.Namespace))
    here.run_pass("a")
    await asyncio.sleep(60)
    assert here.writes == []


async def test_a_deleted_quota_is_created_again(here: World):
    here.run_pass("a")
    await at_rest()
    uid = here.seen("a")["metadata"]["uid"]
    here.api.remove(path("a"))
    here.quotas.observe_deleted(uid)
    await asyncio.sleep(BETWEEN_SECONDS)
    assert here.limit("a") == "8"


@pytest.mark.parametrize(
    "change",
    [{"hard": {f"requests.{GPU}": "80"}}, {"hard": {f"requests.{GPU}": "8", "pods": "0"}}, {"hard": {}}],
    ids=["a higher limit", "another limit", "no limit"],
)
async def test_a_changed_quota_is_restored(here: World, change: dict[str, Any]):
    here.run_pass("a")
    await at_rest()
    made = here.seen("a")["spec"]
    here.api.put(path("a"), {"spec": {**made, **change}})
    here.seen("a")
    await asyncio.sleep(BETWEEN_SECONDS)
    assert here.seen("a")["spec"] == made


async def test_a_quota_whose_scope_is_removed_is_restored(here: World):
    here.run_pass("a")
    await at_rest()
    made = here.seen("a")["spec"]
    here.api.put(path("a"), {"spec": {"hard": made["hard"]}})
    here.seen("a")
    await asyncio.sleep(BETWEEN_SECONDS)
    assert here.seen("a")["spec"] == made


async def test_what_pods_use_of_it_is_no_news(here: World):
    here.run_pass("a")
    await at_rest()
    here.api.put(path("a"), {**here.seen("a"), "status": {"used": {f"requests.{GPU}": "2"}}})
    here.seen("a")
    await asyncio.sleep(60)
    assert here.writes == [("POST", "a")]


async def test_a_quota_that_was_created_unseen_is_not_created_again_and_again(here: World):
    here.api.put(path("a"), {"spec": {"hard": {}}})
    here.run_pass("a")
    await asyncio.sleep(60)
    assert here.writes == [("POST", "a")]
    here.seen("a")
    await asyncio.sleep(BETWEEN_SECONDS)
    assert here.limit("a") == "8"


@pytest.mark.parametrize("code", [403, 422, 500])
async def test_a_write_that_fails_is_tried_again_without_news_and_logged_once(
    here: World, code: int, caplog: pytest.LogCaptureFixture
):
    here.api.fail("POST", code, code)
    here.run_pass("a")
    await asyncio.sleep(60)
    assert here.limit("a") == "8"
    first, second, third = here.api.moments["POST"]
    assert second - first == third - second == BETWEEN_SECONDS + UPKEEP_RETRY_SECONDS
    assert len([record for record in caplog.records if record.name == upkeep.__name__]) == 1


async def test_a_quota_that_cannot_be_written_does_not_keep_the_others(here: World):
    here.api.fail("POST", 403)
    here.run_pass("a", "b")
    await at_rest()
    assert (here.limit("a"), here.limit("b")) == (None, "8")


async def test_without_the_lease_nothing_is_written(here: World, session: Session):
    session.remaining = lambda: 0.0
    here.run_pass("a")
    await asyncio.sleep(60)
    assert here.writes == []
    session.remaining = lambda: 60.0
    await asyncio.sleep(BETWEEN_SECONDS + UPKEEP_RETRY_SECONDS)
    assert here.limit("a") == "8"


async def test_before_the_first_pass_nothing_is_written_or_taken_away(here: World):
    here.api.put(path("a"), {"spec": {"hard": {}}})
    here.seen("a")
    await asyncio.sleep(60)
    assert here.writes == []
