"""One leads at a time, whatever hangs, fails or is late."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from elastic_operator.cluster.errors import Fenced
from elastic_operator.cluster.lease import ANNOTATION_REVISIONS, LeaderElector, LeaseTiming, in_own_thread, micro_time
from elastic_operator.cluster.own_loop import run_in_own_loop
from elastic_operator.cluster.session import Session
from tests.cluster_unit.fake_api import FakeApi, at_rest, connection_to, hang, json, session_to, status
from tests.kit.tasks import running
from tests.kit.wait import until

LEASE = "/apis/coordination.k8s.io/v1/namespaces/sys/leases/op"
PODS = "/api/v1/namespaces/a/pods"
POD = {"metadata": {"name": "p"}, "spec": {"containers": []}}
TIMING = LeaseTiming()
SHORT = LeaseTiming(
    lease_duration_seconds=1.5, renew_deadline_seconds=1, renew_seconds=0.2, retry_period_seconds=0.2, poll_seconds=0.1
)
in_threads = pytest.mark.processes
POLL = 1.2 * TIMING.poll_seconds
"""So late may a candidate look."""


def candidate(identity: str = "one", timing: LeaseTiming = TIMING) -> LeaderElector:
    return LeaderElector(namespace="sys", name="op", identity=identity, timing=timing)


async def beat(elector: LeaderElector) -> None:
    while True:
        elector.heartbeat()
        await asyncio.sleep(TIMING.renew_seconds)


@asynccontextmanager
async def electing(api: FakeApi, identity: str):
    """A replica that runs for the lease."""
    elector = candidate(identity)
    async with session_to(api) as session, running(elector.run(session)), running(beat(elector)):
        yield elector


@pytest.fixture
async def leader(api: FakeApi):
    """A replica that leads, and its task, which ends when it lost the lease."""
    elector = candidate()
    async with session_to(api) as session, running(elector.run(session)) as task, running(beat(elector)):
        assert await seconds_until_leading(elector) == 0
        yield elector, task


def holder(api: FakeApi) -> str:
    return api.find(LEASE)["spec"]["holderIdentity"] if api.find(LEASE) else ""


async def seconds_until_leading(elector: LeaderElector) -> float:
    begun = time.monotonic()
    async with asyncio.timeout(60):
        await elector.wait_until_leading()
    return time.monotonic() - begun


async def test_the_first_makes_the_lease_and_renews_it(api, leader):
    elector, task = leader
    assert elector.is_leader
    first = dict(api.find(LEASE)["spec"])
    await asyncio.sleep(3.1 * TIMING.renew_seconds)
    spec = api.find(LEASE)["spec"]
    assert api.moments["PUT"] == [5, 10, 15]
    assert spec["holderIdentity"] == "one"
    assert spec["renewTime"] > first["renewTime"]
    assert (spec["acquireTime"], spec["leaseTransitions"]) == (first["acquireTime"], 0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec["renewTime"])
    assert not task.done()


async def test_of_two_that_claim_a_free_lease_one_leads_and_the_other_says_once_who_holds_it(
    api, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    async with electing(api, "one") as one, electing(api, "two") as two:
        await at_rest()
        first = holder(api)
        for _ in range(75):
            await asyncio.sleep(TIMING.poll_seconds)
            assert [name for name, it in (("one", one), ("two", two)) if it.is_leader] == [holder(api)] == [first]
        told = [record.getMessage() for record in caplog.records if "standing by" in record.getMessage()]
        assert [line.rpartition("holder=")[2] for line in told] == [first]


async def test_the_lease_of_who_is_cancelled_is_taken_over_at_the_next_look(api, leader):
    one, task = leader
    async with electing(api, "two") as two:
        await asyncio.sleep(2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not one.is_leader
        assert await seconds_until_leading(two) <= POLL
        assert api.find(LEASE)["spec"]["leaseTransitions"] >= 1


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_leader_that_stops_hands_over_its_revisions_with_the_lease(api, leader):
    one, task = leader
    one.revisions = {PODS: 7}
    async with electing(api, "two") as two:
        await asyncio.sleep(POLL)
        await stop(task)
        await seconds_until_leading(two)
        assert two.handed_over == {PODS: 7}
        assert "annotations" not in api.find(LEASE)["metadata"]


async def test_revisions_of_a_holder_that_the_successor_has_not_seen_count_as_none(api, leader):
    one, task = leader
    one.revisions = {PODS: 7}
    await stop(task)
    async with electing(api, "two") as two:
        await seconds_until_leading(two)
        assert two.handed_over == {}


def revisions_of(holder: str) -> str:
    return f'{{"holder": "{holder}", "revisions": {{"{PODS}": 7}}}}'


@pytest.mark.parametrize("written", ["", "{", "[1]", '{"holder": "last"}', revisions_of("one before it")])
async def test_an_annotation_that_the_last_holder_has_not_written_counts_as_none(api, written):
    """An older operator keeps the annotation of the holder before it."""
    meta = {"name": "op", "namespace": "sys", "annotations": {ANNOTATION_REVISIONS: written, "a": "b"}}
    api.put(LEASE, {"metadata": meta, "spec": {"holderIdentity": "last"}})
    async with electing(api, "two") as two:
        await asyncio.sleep(POLL)
        api.put(LEASE, {"metadata": meta, "spec": {"holderIdentity": ""}})
        await seconds_until_leading(two)
        assert two.handed_over == {}
        assert api.find(LEASE)["metadata"]["annotations"] == {"a": "b"}


async def test_revisions_in_the_lease_of_a_holder_that_died_count_as_none(api):
    meta = {"name": "op", "namespace": "sys", "annotations": {ANNOTATION_REVISIONS: revisions_of("dead")}}
    api.put(LEASE, {"metadata": meta, "spec": {"holderIdentity": "dead"}})
    async with electing(api, "two") as two:
        await seconds_until_leading(two)
        assert two.handed_over == {}


async def test_more_revisions_than_an_annotation_may_have_are_not_handed_over(api, leader):
    one, task = leader
    one.revisions = {f"{PODS}/{number}": number for number in range(20_000)}
    await stop(task)
    assert holder(api) == ""
    assert not api.find(LEASE)["metadata"].get("annotations")


async def test_a_holder_that_died_is_followed_after_the_lease_and_not_before(api):
    async with electing(api, "one") as one:
        await seconds_until_leading(one)
        api.always["PUT"] = 500  # so that it hands nothing back
    del api.always["PUT"]
    async with electing(api, "two") as two:
        waited = await seconds_until_leading(two)
        assert TIMING.lease_duration_seconds < waited <= TIMING.lease_duration_seconds + POLL


async def test_a_holder_whose_clock_is_wrong_is_judged_by_whether_it_stirs(api):
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 1, "renewTime": "1999-01-01T00:00:00.000000Z"}
    api.put(LEASE, {"spec": spec})
    async with electing(api, "two") as two:
        for _ in range(10):
            await asyncio.sleep(TIMING.lease_duration_seconds - POLL)
            api.put(LEASE, api.find(LEASE))
        assert not two.is_leader
        waited = await seconds_until_leading(two)
        assert TIMING.lease_duration_seconds < waited <= TIMING.lease_duration_seconds + 2 * POLL


@pytest.mark.parametrize("fault", [500, hang])
async def test_a_leader_that_cannot_renew_stops_before_anybody_may_take_over(api, leader, fault):
    elector, task = leader
    await asyncio.sleep(7)
    api.always["PUT"] = fault
    async with asyncio.timeout(TIMING.lease_duration_seconds):
        await task
    assert time.monotonic() == TIMING.renew_seconds + TIMING.renew_deadline_seconds
    async with session_to(api, remaining=elector.remaining) as session:
        with pytest.raises(Fenced):
            await session.post(PODS, {"metadata": {"name": "late"}})


async def test_a_leader_suspended_with_its_machine_beyond_its_fence_writes_nothing(api, leader):
    elector, task = leader
    loop = asyncio.get_running_loop()
    loop.asleep += TIMING.renew_deadline_seconds
    async with session_to(api, remaining=elector.remaining) as session:
        with pytest.raises(Fenced):
            await session.post(PODS, POD)
    async with asyncio.timeout(TIMING.renew_seconds + 0.1):
        await task
    assert api.moments["PUT"] == []


async def test_a_leader_that_was_suspended_for_a_moment_leads_on(leader):
    elector, task = leader
    asyncio.get_running_loop().asleep += (
        TIMING.renew_deadline_seconds - TIMING.renew_seconds - TIMING.retry_period_seconds
    )
    assert elector.is_leader
    await asyncio.sleep(10 * TIMING.renew_seconds)
    assert elector.is_leader
    assert not task.done()


async def test_the_last_nanosecond_of_a_lease_is_not_spent_on_renewals(api, leader):
    """Where a timer fires early, as it may: a virtual loop never comes to the end of a lease by trying."""
    elector, task = leader
    api.always["PUT"] = hang
    elector.deadline = time.monotonic() + TIMING.renew_seconds + 5e-10
    await task
    assert api.moments["PUT"] == [TIMING.renew_seconds]


async def test_one_failed_renewal_costs_nothing(api, leader):
    elector, task = leader
    api.fail("PUT", 500, 500)
    await asyncio.sleep(20)
    assert api.moments["PUT"] == [5, 7, 9, 14, 19]
    assert elector.is_leader
    assert not task.done()


async def test_a_renewal_that_an_error_of_the_operators_own_ends_is_made_again(
    api, leader, caplog: pytest.LogCaptureFixture
):
    """Such as an answer of a form that nobody has thought of."""
    elector, task = leader
    api.fail("PUT", 409)
    api.fail("GET", json({"spec": "no object"}))
    await asyncio.sleep(20)
    assert api.moments["PUT"] == [5, 7, 12, 17]
    assert elector.is_leader
    assert not task.done()
    assert "AttributeError" in caplog.text, "the log has the traceback"


async def test_a_candidate_that_an_error_of_the_operators_own_meets_goes_on(api):
    api.fail("GET", json({"spec": "no object"}))
    async with electing(api, "one") as elector:
        assert await seconds_until_leading(elector) <= (1 + 1) * POLL


@pytest.mark.parametrize("details", [[{"@type": "x"}], {"retryAfterSeconds": "soon"}])
async def test_a_gateways_answer_to_a_renewal_costs_nothing(api, leader, details):
    elector, task = leader
    api.fail("PUT", json({"details": details}, code=503))
    await asyncio.sleep(20)
    assert api.moments["PUT"] == [5, 7, 12, 17]
    assert elector.is_leader
    assert not task.done()


@pytest.mark.parametrize("others", [{}, {"acquireTime": None}, {"leaseTransitions": None, "renewTime": None}])
async def test_a_leader_leads_on_whose_lease_lost_its_optional_fields(api, leader, others):
    """As after a restore, or a merge patch of the field to null."""
    elector, task = leader
    api.put(LEASE, {**api.find(LEASE), "spec": {"holderIdentity": "one", **others}})
    await asyncio.sleep(3 * TIMING.lease_duration_seconds)
    assert elector.is_leader
    assert not task.done()
    assert api.find(LEASE)["spec"]["acquireTime"]


async def test_the_time_counts_from_before_the_renewal(api, leader):
    async def slow(request):
        await asyncio.sleep(3)
        return await api.answer(request)

    api.fail("PUT", slow)
    await asyncio.sleep(TIMING.renew_seconds + 3.5)
    assert leader[0].deadline == TIMING.renew_seconds + TIMING.renew_deadline_seconds


async def test_a_leader_whose_lease_another_took_stops_at_its_next_renewal(api, leader):
    elector, task = leader
    lease = api.find(LEASE)
    api.put(LEASE, {**lease, "spec": {**lease["spec"], "holderIdentity": "two"}})
    async with asyncio.timeout(TIMING.renew_deadline_seconds):
        await task
    assert time.monotonic() == TIMING.renew_seconds
    assert not elector.is_leader
    assert holder(api) == "two"


async def test_a_lease_that_somebody_annotated_or_deleted_is_kept(api, leader):
    elector, task = leader
    lease = api.find(LEASE)
    api.put(LEASE, {**lease, "metadata": {**lease["metadata"], "annotations": {"a": "b"}}})
    await asyncio.sleep(3 * TIMING.lease_duration_seconds)
    assert api.find(LEASE)["metadata"]["annotations"] == {"a": "b"}
    api.remove(LEASE)
    await asyncio.sleep(TIMING.renew_seconds)
    assert holder(api) == "one"
    assert elector.is_leader
    assert not task.done()


async def test_a_claim_whose_answer_was_lost_is_made_again(api):
    async def carried_out_but_not_answered(request):
        await api.answer(request)
        return status(503)

    api.fail("POST", carried_out_but_not_answered)
    async with electing(api, "one") as elector:
        assert await seconds_until_leading(elector) <= POLL
        assert holder(api) == "one"


async def test_an_api_server_that_fails_at_first_does_not_end_the_election(api):
    api.fail("GET", 500, 403)
    async with electing(api, "one") as elector:
        assert await seconds_until_leading(elector) <= (1 + 2) * POLL


async def test_who_never_led_releases_nothing(api):
    api.put(LEASE, {"spec": {"holderIdentity": "other"}})
    async with electing(api, "one"):
        await at_rest()
    assert set(api.requests) == {"GET"}


async def test_a_leader_without_heartbeats_neither_renews_nor_releases_nor_retakes_the_lease(api, session):
    one, again = candidate(), candidate()
    async with asyncio.timeout(TIMING.stuck_seconds + 2 * TIMING.renew_seconds):
        await one.run(session)
    assert one.remaining() < 0
    assert api.moments["PUT"] == [*range(5, 61, 5)]
    assert holder(api) == "one"
    async with running(again.run(session)):
        await asyncio.sleep(3 * TIMING.lease_duration_seconds)
        assert not again.is_leader
        again.heartbeat()
        assert await seconds_until_leading(again) <= POLL


@in_threads
async def test_a_loop_stuck_beyond_its_fence_still_leads_and_releases_its_lease(api):
    async def work() -> None:
        async with led(api) as (elector, session):
            begun = elector.deadline
            until("renewals", lambda: elector.deadline > begun + SHORT.renew_deadline_seconds, seconds=30)
            await session.post(PODS, POD)

    await run_in_own_loop(work)
    assert api.find(f"{PODS}/p")
    assert holder(api) == ""


@in_threads
async def test_a_loop_that_stands_still_while_its_lease_is_lost_writes_nothing_afterwards(api):
    async def work() -> None:
        async with led(api) as (elector, session):
            queued = asyncio.create_task(session.post(PODS, POD))
            await asyncio.sleep(0)
            api.always["PUT"] = 500
            until("its loss", lambda: not elector.is_leader, seconds=30)
            for write in (queued, session.post(PODS, POD)):
                with pytest.raises(Fenced):
                    await write

    await run_in_own_loop(work)
    assert not api.find(f"{PODS}/p")


@asynccontextmanager
async def led(api: FakeApi):
    """A lease that is renewed beside this loop, and a session that it fences. The server must be in another loop."""
    elector, election = candidate(timing=SHORT), in_own_thread(lambda: Session(connection_to(api)))
    async with session_to(api, remaining=elector.remaining) as session, running(election(elector)):
        await elector.wait_until_leading()
        yield elector, session


def test_times_are_written_in_utc_with_microseconds():
    assert micro_time(1767225600.25) == "2026-01-01T00:00:00.250000Z"


async def test_a_candidate_that_gets_no_answers_asks_less_and_less_and_says_so_once(
    api, caplog: pytest.LogCaptureFixture
):
    api.always["GET"] = 503
    async with electing(api, "one") as elector:
        await asyncio.sleep(60)
        pauses = [later - earlier for earlier, later in pairwise(api.moments["GET"])]
        for pause, least in zip(pauses, [1, 2, 4, *[5] * len(pauses)], strict=False):
            assert least <= pause <= 1.2 * least
        assert len(pauses) > 8
        assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
        del api.always["GET"]
        assert await seconds_until_leading(elector) <= 1.2 * 5
