"""Events are told once, counted when repeated, and never in the way."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from elastic_operator.cluster import events
from elastic_operator.cluster.events import EventRecorder, job_subject
from elastic_operator.cluster.session import Session
from elastic_operator.plan.facts.decisions import Event
from tests.cluster_unit.fake_api import FakeApi, hang, status
from tests.kit.tasks import running
from tests.simulate.server import EVENTS

SCALED = Event("ScaledUp", "from 2 to 4 pods")


@pytest.fixture
def dropped() -> list[int]:
    """One entry for each event that was dropped."""
    return []


@pytest.fixture
async def idle(session: Session, dropped: list[int]) -> EventRecorder:
    """One that tells nothing yet."""
    return EventRecorder(session, instance="one", on_drop=lambda: dropped.append(1))


@pytest.fixture
async def recorder(idle: EventRecorder) -> AsyncIterator[EventRecorder]:
    """One that tells what it is given."""
    async with running(idle.run()):
        yield idle


def told(api: FakeApi) -> list[dict]:
    return api.server.all(EVENTS)


async def test_an_event_is_told_on_its_job(api, recorder):
    recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
    await recorder.flush()
    (event,) = told(api)
    assert event["metadata"]["namespace"] == "a"
    assert (event["reason"], event["note"], event["type"]) == ("ScaledUp", SCALED.message, "Normal")
    assert event["reportingController"] == "elastic-pytorch.dev/operator"
    assert event["reportingInstance"] == "one"
    assert event["regarding"] == {
        "apiVersion": "elastic-pytorch.dev/v1beta1",
        "kind": "ElasticPyTorchJob",
        "namespace": "a",
        "name": "toy",
        "uid": "uid-1",
    }
    assert "series" not in event


async def test_repetitions_are_counted_on_the_same_event(api, recorder):
    for _ in range(3):
        recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
        await recorder.flush()
    (event,) = told(api)
    assert event["series"]["count"] == 3


async def test_repetitions_that_pile_up_cost_one_request(api, idle):
    for _ in range(5):
        idle.record(job_subject("a", "toy", "uid-1"), SCALED)
    task = asyncio.create_task(idle.run())
    await idle.flush()
    task.cancel()
    assert sum(api.requests.values()) == 1
    assert told(api)[0]["series"]["count"] == 5


async def test_other_jobs_messages_and_late_repetitions_are_events_of_their_own(api, recorder):
    recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
    recorder.record(job_subject("a", "toy", "uid-2"), SCALED)
    recorder.record(job_subject("a", "toy", "uid-1"), Event("ScaledUp", "from 4 to 6 pods"))
    await recorder.flush()
    assert len(told(api)) == 3
    await asyncio.sleep(events.SERIES_SECONDS - 1)
    recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
    await recorder.flush()
    assert len(told(api)) == 3
    await asyncio.sleep(events.SERIES_SECONDS)
    recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
    await recorder.flush()
    assert len(told(api)) == 4


async def test_an_event_that_expired_on_the_server_is_told_anew(api, recorder):
    recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
    await recorder.flush()
    api.server.remove(EVENTS, told(api)[0])
    recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
    await recorder.flush()
    assert told(api)[0]["series"]["count"] == 2


async def test_a_job_that_says_too_much_is_cut_short_and_others_are_not(api, recorder, dropped):
    for i in range(events.BURST + 5):
        recorder.record(job_subject("a", "loud", "uid-1"), Event("Noise", str(i)))
    recorder.record(job_subject("a", "quiet", "uid-2"), SCALED)
    await recorder.flush()
    assert len(dropped) == 5
    assert len(told(api)) == events.BURST + 1
    await asyncio.sleep(events.REFILL_SECONDS)
    for i in range(2):
        recorder.record(job_subject("a", "loud", "uid-1"), Event("Later", str(i)))
    await recorder.flush()
    assert len(dropped) == 6


async def test_the_rates_of_many_jobs_are_forgotten_but_not_that_of_one_that_says_too_much(idle, dropped, monkeypatch):
    """The job whose last event was longest ago was forgotten, however many it had just had."""
    monkeypatch.setattr(events, "MAX_SERIES", 10)
    for i in range(events.BURST):
        idle.record(job_subject("a", "loud", "uid-loud"), Event("Noise", str(i)))
    for i in range(30):
        idle.record(job_subject("a", "quiet", f"uid-{i}"), SCALED)
    assert dropped == []
    idle.record(job_subject("a", "loud", "uid-loud"), Event("Noise", "more"))
    assert dropped == [1]
    await asyncio.sleep(events.REFILL_SECONDS)
    idle.record(job_subject("a", "quiet", "uid-quiet"), SCALED)
    assert len(idle._rates) == 2


async def test_a_full_queue_drops_and_never_blocks(idle, dropped):
    for i in range(events.QUEUE + 10):
        idle.record(job_subject("a", "toy", f"uid-{i}"), SCALED)
    assert len(dropped) == 10


async def test_an_event_that_is_pushed_out_of_memory_before_its_turn_counts_as_dropped(idle, dropped, monkeypatch):
    monkeypatch.setattr(events, "MAX_SERIES", 1)
    for number in range(3):
        idle.record(job_subject("a", f"toy-{number}", f"uid-{number}"), SCALED)
    async with running(idle.run()):
        await idle.flush()
    assert len(dropped) == 2


async def test_refused_events_are_dropped_and_later_ones_told(api, recorder, dropped):
    api.fail("POST", 422, 403)
    for i in range(3):
        recorder.record(job_subject("a", "toy", "uid-1"), Event("E", str(i)))
    await recorder.flush()
    assert [event["note"] for event in told(api)] == ["2"]
    assert len(dropped) == 2


async def _loses_the_answer(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize("fault", [503, status(429, **{"Retry-After": "1"}), _loses_the_answer])
async def test_an_event_that_the_server_cannot_take_now_is_told_later_and_delays_no_other(
    api, recorder, dropped, fault
):
    """An API server that restarted during a reclaim lost its events for good."""
    api.fail("POST", fault)
    for note in ("first", "second"):
        recorder.record(job_subject("a", "toy", "uid-1"), Event("E", note))
    await recorder.flush()
    assert [event["note"] for event in told(api)] == ["second"]
    await asyncio.sleep(events.MAX_RETRY_SECONDS)
    assert [event["note"] for event in told(api)] == ["second", "first"]
    assert not dropped


async def test_an_event_that_is_told_later_has_the_repetitions_of_the_meantime(api, recorder, dropped):
    api.fail("POST", 503)
    for _ in range(2):
        recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
        await recorder.flush()
    await asyncio.sleep(events.MAX_RETRY_SECONDS)
    assert [event["series"]["count"] for event in told(api)] == [2]
    assert not dropped


async def test_an_event_that_the_server_never_takes_is_dropped_after_some_tries(api, recorder, dropped):
    api.always["POST"] = 503
    recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
    await asyncio.sleep(events.MAX_TRIES * events.MAX_RETRY_SECONDS)
    assert (api.requests["POST"], len(dropped)) == (events.MAX_TRIES, 1)


async def test_only_so_many_events_wait_for_another_try(api, session, dropped, monkeypatch):
    monkeypatch.setattr(events, "QUEUE", 3)
    recorder, api.always["POST"] = EventRecorder(session, instance="one", on_drop=lambda: dropped.append(1)), 503
    async with running(recorder.run()):
        for i in range(5):
            recorder.record(job_subject("a", "toy", "uid-1"), Event("E", str(i)))
            await recorder.flush()
        assert len(dropped) == 2
        del api.always["POST"]
        await asyncio.sleep(events.MAX_RETRY_SECONDS)
    assert sorted(event["note"] for event in told(api)) == ["0", "1", "2"]


async def test_a_request_repeated_after_a_lost_answer_is_told_once(api, recorder, dropped):
    api.fail("POST", status(409, "AlreadyExists"))
    recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
    await recorder.flush()
    assert len(dropped) == 0


async def test_flushing_gives_up_when_the_server_hangs(api, recorder):
    api.always["POST"] = hang
    recorder.record(job_subject("a", "toy", "uid-1"), SCALED)
    await recorder.flush()
    assert time.monotonic() == 2


@pytest.mark.parametrize(("letter", "kept"), [("x", 1021), ("é", 510), ("机", 340), ("🙂", 255)])
async def test_long_messages_are_cut_to_the_bytes_that_the_api_takes(api, recorder, letter, kept):
    recorder.record(job_subject("a", "toy", "uid-1"), Event("E", letter * 5000))
    recorder.record(job_subject("a", "toy", "uid-1"), Event("E", "x" + letter * 5000))
    await recorder.flush()
    notes = [event["note"] for event in told(api)]
    assert notes[0] == letter * kept + "..."
    assert all(1020 <= len(note.encode()) <= 1024 for note in notes)


@pytest.mark.parametrize("letter", ["x", "é", "机", "🙂"])
async def test_a_message_that_fits_is_told_as_it_is(api, recorder, letter):
    message = letter * (1024 // len(letter.encode()))
    recorder.record(job_subject("a", "toy", "uid-1"), Event("E", message))
    await recorder.flush()
    assert told(api)[0]["note"] == message


@pytest.mark.parametrize("name", ["p" * 253, "p" * 235 + "-q" + "r" * 16, "p" * 235 + "." + "q" * 17, "p" * 236])
async def test_an_event_about_an_object_with_a_long_name_has_a_name_that_the_api_takes(api, recorder, name):
    recorder.record(events.Subject("v1", "Pod", "a", name, "uid-1"), SCALED)
    await recorder.flush()
    (event,) = told(api)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", event["metadata"]["name"])
    assert len(event["metadata"]["name"]) <= 253
    assert event["regarding"]["name"] == name
