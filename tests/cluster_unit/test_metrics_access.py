"""Who may read metrics is asked of the API server, as seldom as is safe."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from elastic_operator.cluster import metrics_access
from elastic_operator.cluster.metrics_access import ALLOWED, NO_ANSWER, NO_TOKEN, UNKNOWN_TOKEN, MetricsAccess
from tests.cluster_unit.fake_api import hang, json

PROMETHEUS = {
    "username": "system:serviceaccount:monitoring:prometheus",
    "uid": "u1",
    "groups": ["system:serviceaccounts"],
    "extra": {"authentication.kubernetes.io/pod-name": ["prometheus-0"]},
}
USERS = {"good": PROMETHEUS, "other": {"username": "system:serviceaccount:team-a:default"}}


class Reviews:
    """Answers as an API server on which some users may read metrics."""

    def __init__(self) -> None:
        self.may = {PROMETHEUS["username"]}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append((body["kind"], body["spec"]))
        if request.path == "/apis/authentication.k8s.io/v1/tokenreviews":
            user = USERS.get(body["spec"]["token"])
            status: dict[str, Any] = {"authenticated": True, "user": user} if user else {"error": "no such token"}
        else:
            assert request.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            status = {"allowed": body["spec"]["user"] in self.may}
        return json(body | {"status": status}, code=201)


@pytest.fixture
def reviews(api):
    found = api.always["POST"] = Reviews()
    return found


@pytest.fixture
def gate(session, reviews):  # noqa: ARG001 - the API answers reviews
    return MetricsAccess(session)


@pytest.mark.parametrize("header", ["", "good", "Bearer", "Bearer ", "Basic good", "Bearergood"])
async def test_who_shows_no_token_is_refused_without_asking(gate, reviews, header):
    assert await gate.authorize(header) == NO_TOKEN
    assert reviews.asked == []


async def test_an_unknown_token_is_refused(gate, reviews):
    assert await gate.authorize("Bearer bad") == UNKNOWN_TOKEN
    assert reviews.asked == [("TokenReview", {"token": "bad"})]


async def test_who_may_get_the_url_is_let_in_with_all_that_is_known_of_them(gate, reviews):
    assert await gate.authorize("bearer  good ") == ALLOWED
    user = {"user" if key == "username" else key: value for key, value in PROMETHEUS.items()}
    url = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    assert reviews.asked == [("TokenReview", {"token": "good"}), ("SubjectAccessReview", user | url)]


async def test_who_may_not_is_told_who_they_are(gate):
    status, told = await gate.authorize("Bearer other")
    assert status == 403
    assert "system:serviceaccount:team-a:default may not get /metrics" in told


async def test_an_answer_is_good_for_a_minute_and_no_longer(gate, reviews):
    assert await gate.authorize("Bearer good") == ALLOWED
    reviews.may.clear()
    await asyncio.sleep(metrics_access.ALLOWED_SECONDS - 1)
    assert await gate.authorize("Bearer good") == ALLOWED
    assert len(reviews.asked) == 2
    await asyncio.sleep(1)
    assert (await gate.authorize("Bearer good")).status == 403


async def test_who_was_refused_is_looked_at_again_soon(gate, reviews):
    assert (await gate.authorize("Bearer other")).status == 403
    reviews.may.add("system:serviceaccount:team-a:default")
    await asyncio.sleep(metrics_access.ACCESS_REFUSED_SECONDS - 1)
    assert (await gate.authorize("Bearer other")).status == 403
    assert len(reviews.asked) == 2
    await asyncio.sleep(1)
    assert await gate.authorize("Bearer other") == ALLOWED


@pytest.mark.parametrize("fault", [500, 403, hang])
async def test_where_the_api_server_gives_no_answer_only_who_was_let_in_lately_is(api, gate, reviews, fault):
    assert await gate.authorize("Bearer good") == ALLOWED
    assert await gate.authorize("Bearer bad") == UNKNOWN_TOKEN
    api.always["POST"] = fault
    await asyncio.sleep(metrics_access.OUTAGE_SECONDS - 20)
    assert await gate.authorize("Bearer good") == ALLOWED
    assert await gate.authorize("Bearer bad") == NO_ANSWER
    assert await gate.authorize("Bearer other") == NO_ANSWER
    await asyncio.sleep(20)
    assert await gate.authorize("Bearer good") == NO_ANSWER
    api.always["POST"] = reviews
    assert await gate.authorize("Bearer good") == ALLOWED


async def test_many_new_tokens_are_reviewed_a_few_at_a_time_and_delay_no_known_token(api, gate, reviews):
    assert await gate.authorize("Bearer good") == ALLOWED
    await asyncio.sleep(metrics_access.ALLOWED_SECONDS)
    api.always["POST"] = hang
    flood = [asyncio.create_task(gate.authorize(f"Bearer {number}")) for number in range(20)]
    await asyncio.sleep(0.1)
    assert api.requests["POST"] == 2 + metrics_access.MAX_STRANGERS
    api.always["POST"] = reviews
    assert await gate.authorize("Bearer good") == ALLOWED
    assert [asked[0] for asked in reviews.asked[2:]] == ["TokenReview", "SubjectAccessReview"]
    for task in flood:
        task.cancel()


async def test_many_strangers_do_not_make_it_forget_who_was_let_in(gate, reviews):
    assert await gate.authorize("Bearer good") == ALLOWED
    for number in range(metrics_access.MAX_TOKENS + 1):
        assert await gate.authorize(f"Bearer {number}") == UNKNOWN_TOKEN
    before = len(reviews.asked)
    assert await gate.authorize("Bearer good") == ALLOWED
    assert len(reviews.asked) == before
    assert len(gate._verdicts) == metrics_access.MAX_TOKENS
