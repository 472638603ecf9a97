"""The hostile team's acts, and the judgement of a soak, on the API server in memory and with the operator itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import httpx
import pytest

from elastic_operator.metrics import Metrics
from elastic_operator.plan import observed_jobs
from tests.kit.requests import Request
from tests.simulate import server as kinds
from tests.simulate.api import Answer, Api, refusal
from tests.simulate.cluster import Cluster
from tests.simulate.facts import GPU, POOL
from tests.simulate.foreign import foreign_comes, foreign_ends
from tests.simulate.hostile import others_policy_comes_or_is_edited
from tests.simulate.judge import judge
from tests.simulate.operators import Operator
from tests.simulate.random_events import job_comes, job_goes, job_is_edited, job_succeeds
from tests.simulate.violation import ViolationError
from tests.simulate.virtual_clock import VirtualClock
from tests.soak.fake_nodes import FakeNodesWorld
from tests.soak.hostile import ACTS, greedy_job_comes, it_asks_for_what_it_may_not_have
from tests.soak.mirror import LiveServer, Photo
from tests.soak.tenant import AS_TENANT, HOSTILE, LIMIT, POLICY, Tenant, keeps_its_limit
from tests.soak.world import FakeSide, WholeSide

METRICS, SEED = Metrics(), 3
"""Of that seed all acts come about, and so does what the broken operator does not do."""
STEP_SECONDS, QUIET_STEPS, MOST_STEPS = 20.0, 8, 60
USERS = (
    *(job_comes, job_comes, job_goes, job_is_edited, job_succeeds),
    *(others_policy_comes_or_is_edited, foreign_comes, foreign_ends),
)


class InMemory(httpx.BaseTransport):
    """Requests are answered by the API server in memory. What a tenant may not do is refused, where `refuses`."""

    def __init__(self, api: Api) -> None:
        self.api, self.refuses = api, True

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        asked = Request(request.method, request.url.path, body=body)
        refused = self.refuses and request.headers.get("Impersonate-User") == HOSTILE and _is_beyond_edit(asked)
        answer: Answer = refusal(403, "Forbidden", "no") if refused else self.api.answer(asked)
        return httpx.Response(answer.status, content=answer.body)


def _is_beyond_edit(request: Request) -> bool:
    """By the roles and the rules of admission of the chart."""
    body = request.body or {}
    of_a_job = body.get("metadata", {}).get("ownerReferences") or "elastic" in str(body.get("spec", {}))
    is_pod = request.path.endswith("/pods") and of_a_job
    is_elsewhere = f"/namespaces/{HOSTILE}/" not in request.path
    return request.writes and bool(is_pod or is_elsewhere or request.path.endswith("/status"))


class FakeNodes(FakeNodesWorld):
    """Users of the fake nodes, whose namespaces are there."""

    def _make_namespace(self, name: str) -> None:
        pass


class Small:
    """A cluster in memory with its operator, its users, and the hostile team."""

    def __init__(self, clock: VirtualClock, rng: Random) -> None:
        self.cluster = Cluster(clock, rng)
        self.clock, self.rng, self.transport = clock, rng, InMemory(self.cluster.api)
        self.whole = WholeSide(self._client())
        self.users = FakeNodes(FakeSide(self._client()), rng)
        self.tenant = Tenant(LiveServer(self._client(AS_TENANT), namespace=HOSTILE), self.users.machines)
        self.tenant.rng = rng
        for live in (self.whole, self.users.server, self.tenant.server):
            live.clock = clock
        self.cluster.server.create(kinds.NAMESPACES, {"metadata": {"name": HOSTILE, "labels": {}}})
        self.whole.create(kinds.POLICIES, {"metadata": {"name": HOSTILE}, "spec": POLICY})
        for pool, gpus in (("a", 8), ("a", 4), ("b", 4)):
            self.cluster.add_node(gpus, pool)
        self.operator = Operator(self.cluster.api, METRICS)

    def _client(self, headers: dict[str, str] | None = None) -> httpx.Client:
        return httpx.Client(base_url="http://api", transport=self.transport, headers=headers)

    async def rest(self) -> None:
        """Time passes until no pod has come or gone for longer than the operator ever waits by itself."""
        seen, quiet = None, 0
        for _ in range(MOST_STEPS):
            await self.operator.run_pass()
            self.cluster.machines.step()
            self.clock.passed += STEP_SECONDS
            pods = [(pod["metadata"]["uid"], pod["status"]["phase"]) for pod in self.whole.all(kinds.PODS)]
            quiet, seen = (quiet + 1, seen) if pods == seen else (0, pods)
            keeps_its_limit(self.whole.photo())
            if quiet == QUIET_STEPS:
                return
        raise AssertionError(f"pods come and go for {MOST_STEPS} steps")


@pytest.fixture
def small() -> Iterator[Small]:
    clock = VirtualClock()
    with clock.patch_time(Random(SEED)):
        yield Small(clock, Random(SEED))


async def live(small: Small, rounds: int) -> set[str]:
    """All of what the team does, so many times in any order, while users do other things; each time all is judged.

    Returns the names of what could be done.
    """
    acts = [act for kind, act in ACTS.items() for _ in range(kind.times)]
    done = set()
    for act in [act for _ in range(rounds) for act in small.rng.sample(acts, len(acts))]:
        for event in small.rng.sample(USERS, 2):
            event(small.users)  # type: ignore[arg-type]
        if act(small.tenant):
            done.add(act.__name__)
        else:
            greedy_job_comes(small.tenant)
        await small.rest()
        judge(small.whole.photo(), small.rng)  # type: ignore[arg-type]
    return done


def test_a_hostile_team_takes_no_guarantee_from_another_team(small: Small) -> None:
    assert asyncio.run(live(small, 2)) == {act.__name__ for act in ACTS.values()}


def test_an_operator_that_lets_it_keep_the_pods_of_jobs_that_are_over_is_caught(small: Small) -> None:
    with patch.object(observed_jobs, "unwanted_pods", lambda _seen: ()), pytest.raises(ViolationError):
        asyncio.run(live(small, 2))


def test_an_api_server_that_grants_what_the_team_asks_in_vain_is_caught(small: Small) -> None:
    greedy_job_comes(small.tenant)
    it_asks_for_what_it_may_not_have(small.tenant)
    small.transport.refuses = False
    with pytest.raises(ViolationError, match="of the hostile team"):
        it_asks_for_what_it_may_not_have(small.tenant)


def test_a_gpu_above_its_limit_is_caught() -> None:
    resources = {"limits": {GPU: LIMIT + 1}}
    pod = {
        "metadata": {"name": "w", "namespace": HOSTILE, "ownerReferences": [{"uid": "1"}]},
        "spec": {"nodeSelector": {POOL: "a"}, "containers": [{"resources": resources}]},
        "status": {"phase": "Pending"},
    }
    with pytest.raises(ViolationError, match="7 GPUs of a, its limit is 6"):
        keeps_its_limit(Photo(VirtualClock(), {kinds.PODS: [pod]}, aside={}))
