"""The operator's port: whether it is well, whether it is ready, and what it counts."""

from __future__ import annotations

import asyncio
import socket
import threading

import aiohttp
import pytest

from elastic_operator.cluster.metrics_access import ALLOWED, NO_TOKEN, AccessDecision
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.stats import OperatorStats
from elastic_operator.server import serving
from tests.metrics.stats import parse, show


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def answer(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    url = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
        return response.status, await response.read()


async def test_an_unhealthy_process_says_why_and_is_ready_nevertheless():
    wrong = ""
    async with serving(free_port(), Metrics(), health=lambda: wrong, stats=OperatorStats) as port:
        assert await answer(port, "/healthz") == (200, b"ok")
        wrong = "no pass for 300 s"
        assert await answer(port, "/healthz") == (503, b"no pass for 300 s")
        assert await answer(port, "/readyz") == (200, b"ok")


async def test_who_is_not_to_decide_says_why_it_is_not_ready_and_is_well():
    why = "the operator of this cluster is another one"
    async with serving(free_port(), Metrics(), health=str, stats=OperatorStats, unready=lambda: why) as port:
        assert await answer(port, "/readyz") == (503, why.encode())
        assert await answer(port, "/healthz") == (200, b"ok")


async def test_each_request_for_metrics_gets_the_state_of_its_moment():
    jobs = [show()]
    async with serving(
        free_port(), Metrics(), health=str, stats=lambda: OperatorStats(leads=True, jobs=tuple(jobs))
    ) as port:
        assert parse((await answer(port, "/metrics"))[1])["jobs", "status=Running"] == 1
        jobs.clear()
        assert ("jobs", "status=Running") not in parse((await answer(port, "/metrics"))[1])


@pytest.mark.processes  # only another thread can be held up while this one is answered
async def test_rendering_metrics_holds_up_no_other_request_and_is_done_one_at_a_time():
    metrics, begun, let_go, under_way, most = Metrics(), threading.Event(), threading.Event(), [], []

    def slowly(_stats):
        under_way.append(1)
        most.append(len(under_way))
        begun.set()
        let_go.wait(60)
        under_way.pop()
        return b""

    metrics.text = slowly
    async with serving(free_port(), metrics, health=str, stats=OperatorStats) as port:
        asking = [asyncio.create_task(answer(port, "/metrics")) for _ in range(3)]
        assert await asyncio.to_thread(begun.wait, 60)
        assert await answer(port, "/readyz") == (200, b"ok")
        let_go.set()
        assert [status for status, _ in await asyncio.gather(*asking)] == [200] * 3
    assert most == [1, 1, 1]


class Doorkeeper:
    """Lets in whoever says so."""

    async def authorize(self, authorization: str) -> AccessDecision:
        return ALLOWED if authorization == "Bearer good" else NO_TOKEN


async def test_metrics_are_for_whom_the_readers_let_in_and_whether_it_is_well_is_for_all():
    readers = Doorkeeper()
    async with serving(free_port(), Metrics(), health=str, stats=OperatorStats, metrics_access=readers) as port:
        status, told = await answer(port, "/metrics")
        assert (status, told.decode()) == (401, NO_TOKEN.text)
        assert (await answer(port, "/metrics", Authorization="Bearer bad"))[0] == 401
        found = await answer(port, "/metrics", Authorization="Bearer good")
        assert (found[0], b"elastic_pytorch_build_info" in found[1]) == (200, True)
        assert await answer(port, "/healthz") == (200, b"ok")
        assert await answer(port, "/readyz") == (200, b"ok")
