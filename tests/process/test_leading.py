"""A process that leads: what is begun again after an error, how soon, and what ends with its lease."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from elastic_operator import heap, process
from elastic_operator.cluster import objects
from elastic_operator.cluster.lease import LeaderElector
from elastic_operator.cluster.reflector import PODS, Reflector
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.job_informer import JobInformer
from elastic_operator.loop import store_view
from elastic_operator.loop.controller import Controller
from elastic_operator.metrics import Metrics
from elastic_operator.process import Process
from elastic_operator.read.specs import ParsedSpec, Specs
from elastic_operator.settings import Settings
from elastic_operator.supervised import run_with_restarts
from elastic_operator.watches import Watches
from tests.api.jobs import make_job
from tests.cluster_unit.build import pod
from tests.cluster_unit.fake_api import FakeApi
from tests.kit.tasks import running

JITTER = 1.2


async def at_once(*_: object) -> None:
    """What a process waits for before it leads is there."""


async def never(_: JobInformer) -> None:
    """kopf, which reports nothing."""
    await asyncio.Event().wait()


async def elected(elector: LeaderElector) -> None:
    """An election that is won at once and never lost."""
    elector._leading.set()
    await asyncio.Event().wait()


@pytest.fixture(name="replica")
async def a_replica(session: Session, monkeypatch: pytest.MonkeyPatch) -> Process:
    """A process with empty stores that need not wait for anything."""
    monkeypatch.setattr(Process, "_wait_until_ours", at_once)
    monkeypatch.setattr(Watches, "catch_up", at_once)
    return Process(Settings(), session, Metrics(), JobInformer(session, Store(), never), who="one")


async def leads_for(replica: Process, seconds: float) -> None:
    """It is elected whenever it tries, for so long."""
    async with running(replica._lead_when_elected(elected)):
        await asyncio.sleep(seconds)


def fails_after(monkeypatch: pytest.MonkeyPatch, replica: Process, *seconds: float) -> list[float]:
    """Lets the process lead for so long each time, and then end by an error; returns when it began."""
    begun: list[float] = []

    async def lead() -> None:
        begun.append(time.monotonic())
        await asyncio.sleep(seconds[min(len(begun), len(seconds)) - 1])
        raise KeyError("acquireTime")

    monkeypatch.setattr(replica, "_lead", lead)
    return begun


async def test_a_lasting_error_of_leading_is_met_less_and_less_often(replica, monkeypatch):
    begun = fails_after(monkeypatch, replica, 0.0)
    await leads_for(replica, 300)
    pauses = [later - earlier for earlier, later in pairwise(begun)]
    for pause, least in zip(pauses, [1, 2, 4, 8, 16, *[30] * len(pauses)], strict=False):
        assert least <= pause <= JITTER * least + 0.001
    assert len(begun) > 10


async def test_an_error_after_a_minute_of_leading_is_new_trouble(replica, monkeypatch):
    begun = fails_after(monkeypatch, replica, 0.0, 0.0, 0.0, 61.0, 0.0)
    await leads_for(replica, 120)
    assert 62 <= begun[4] - begun[3] <= 61 + JITTER + 0.001


async def test_nothing_that_leads_goes_on_after_an_error_at_the_beginning(replica, monkeypatch):
    def side_tasks() -> list[object]:
        name = run_with_restarts.__name__
        return [task for task in asyncio.all_tasks() if name in repr(task.get_coro())]

    async def fail(_: Controller) -> None:
        assert side_tasks()
        failed.append("no pass")
        raise RuntimeError(failed[-1])

    failed: list[str] = []
    listeners = [*replica.stores.jobs._listeners]
    monkeypatch.setattr(Controller, "run", fail)
    await leads_for(replica, 10)
    assert failed
    assert side_tasks() == []
    assert replica.stores.jobs._listeners == listeners, "the stores outlive the leader"


async def test_a_standby_reads_jobs_ahead_so_that_its_first_pass_as_the_leader_parses_none(replica, monkeypatch):
    read: list[str] = []
    made: list[Controller] = []
    elector: list[LeaderElector] = []
    make, parse = replica._controller, Specs._parse

    def note_made(*parts: Any) -> Controller:
        made.append(make(*parts))
        return made[-1]

    def note_read(specs: Specs, body: objects.CustomObject) -> ParsedSpec:
        read.append(body.metadata.name)
        return parse(specs, body)

    async def elect(candidate: LeaderElector) -> None:
        elector.append(candidate)
        await asyncio.Event().wait()

    monkeypatch.setattr(replica, "_controller", note_made)
    monkeypatch.setattr(Specs, "_parse", note_read)
    monkeypatch.setattr(store_view, "FEW_JOBS", 1)
    monkeypatch.setattr(Watches, "fresh", lambda _: True)
    for name in ("one", "two", "three"):
        body = make_job(name)
        body["metadata"] |= {"uid": name, "resourceVersion": "1", "generation": 1}
        replica.stores.jobs.observe(objects.decode(body, objects.CustomObject))
    async with running(replica._lead_when_elected(elect)):
        await asyncio.sleep(2.5 * process.READ_AHEAD_SECONDS)
        assert sorted(read) == ["one", "three", "two"]
        assert replica.controller is None
        ahead = made[0].planner.jobs._memories["one"].obs.job
        replica.stores.jobs.observe_deleted("two")
        await asyncio.sleep(process.READ_AHEAD_SECONDS)
        assert set(made[0].planner.jobs._memories) == {"one", "three"}
        assert {uid for uid, _ in made[0].view.reader.specs._statuses.items()} == {"one", "three"}
        elector[0]._leading.set()
        await asyncio.sleep(1)
        assert replica.controller is made[0]
        assert made[0].planner.decided.obs.keys() == {"one", "three"}
        assert made[0].planner.decided.obs["one"].job is ahead
    assert sorted(read) == ["one", "three", "two"]


@pytest.mark.parametrize("has_caught_up", [True, False])
async def test_only_a_leader_with_up_to_date_stores_hands_over_what_they_have_seen(replica, monkeypatch, has_caught_up):
    elector: list[LeaderElector] = []

    async def elect(candidate: LeaderElector) -> None:
        elector.append(candidate)
        await elected(candidate)

    async def never_caught_up(*_: object) -> None:
        await asyncio.Event().wait()

    if not has_caught_up:
        monkeypatch.setattr(Watches, "catch_up", never_caught_up)
    async with running(replica._lead_when_elected(elect)):
        await asyncio.sleep(1)
    assert bool(elector[0].revisions) == has_caught_up


async def test_a_leader_is_healthy_however_long_it_has_stood_by(replica, monkeypatch):
    elector: list[LeaderElector] = []

    async def elect(candidate: LeaderElector) -> None:
        elector.append(candidate)
        await asyncio.Event().wait()

    def fail(_: Controller) -> None:
        raise RuntimeError("no pass")

    monkeypatch.setattr(Controller, "run_pass", fail)
    async with running(replica._lead_when_elected(elect)):
        await asyncio.sleep(2 * process.STUCK_SECONDS)
        elector[0]._leading.set()
        await asyncio.sleep(process.STUCK_SECONDS - 1)
        assert replica.health() == ""
        assert not replica.controller._batching.in_storm
        await asyncio.sleep(2)
        assert replica.health()


async def test_a_side_task_that_fails_after_it_has_worked_for_long_begins_again_at_once():
    begun: list[float] = []

    async def work() -> None:
        begun.append(time.monotonic())
        await asyncio.sleep(3600)
        raise OSError("once in a month")

    async with running(run_with_restarts("work", work)):
        await asyncio.sleep(12.5 * 3600)
    pauses = [later - earlier - 3600 for earlier, later in pairwise(begun)]
    assert len(pauses) == 12
    assert max(pauses) <= 0.5 * JITTER + 0.001


async def test_a_process_waits_for_its_first_lists_while_a_gateway_answers_with_its_own_page(
    api: FakeApi, session: Session
):
    replica = Process(Settings(), session, Metrics(), JobInformer(session, Store(), never), who="one")
    api.always["LIST"] = gateway
    for wait in (replica._wait_until_ours(), replica.watches.catch_up()):
        waiting = asyncio.create_task(wait)
        await asyncio.sleep(300)
        assert not waiting.done()
        del api.always["LIST"]
        await waiting
        api.always["LIST"] = gateway


async def test_revisions_of_another_history_of_the_api_server_do_not_count(session: Session, monkeypatch):
    """etcd was restored from a backup, and the watches have not found out yet."""
    compared: list[str] = []

    async def compare(watch: Reflector[Any], _since: float | None) -> None:
        compared.append(watch.path)

    monkeypatch.setattr(JobInformer, "catch_up", at_once)
    monkeypatch.setattr(Reflector, "has_seen", lambda _, revisions: bool(revisions))
    monkeypatch.setattr(Reflector, "catch_up", compare)
    replica = Process(Settings(), session, Metrics(), JobInformer(session, Store(), never), who="one")
    await replica.watches.catch_up(0.0, {PODS: 1})
    assert compared == []
    replica.stores.pods.observe(pod("later", rv=1_000_000))
    await replica.watches.catch_up(0.0, {PODS: 1})
    assert PODS in compared


async def gateway(_: web.Request) -> web.Response:
    """The page of a gateway, in place of any list."""
    return web.Response(text="<html>Welcome</html>")


async def test_free_pages_of_the_heap_are_returned_from_time_to_time(monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda _: SimpleNamespace(malloc_trim=asked.append))
    async with running(heap.trim_heap()):
        await asyncio.sleep(2.5 * heap.TRIM_SECONDS)
    assert asked == [0, 0]


async def test_a_c_library_that_cannot_return_pages_is_not_asked(monkeypatch):
    monkeypatch.setattr(heap.ctypes, "CDLL", lambda _: SimpleNamespace())
    await heap.trim_heap()
