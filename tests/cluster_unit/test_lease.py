"""One leads at a time, whatever hangs, fails or is late."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from elastic_operator.cluster.errors import Fenced
from elastic_operator.cluster.lease import Elector, Timing, micro_time
from tests.cluster_unit.fake_api import FakeApi, eventually, fake_api, hang, session_to, status

LEASE = "/apis/coordination.k8s.io/v1/namespaces/sys/leases/op"
FAST = Timing(lease_seconds=2.0, fence_seconds=1.4, renew_seconds=0.1, retry_seconds=0.05, poll_seconds=0.05)
LONG = replace(FAST, lease_seconds=6.0)
"""The fence is so far ahead of the lease's end that a slow machine does not make up for it."""


@asynccontextmanager
async def electing(api: FakeApi, identity: str, timing: Timing = FAST):
    """A replica that runs for the lease; its `elector.task` ends when it lost it."""
    async with session_to(api) as session:
        elector = Elector(session, namespace="sys", name="op", identity=identity, timing=timing)
        session.remaining = elector.remaining
        task = asyncio.create_task(elector.run())
        try:
            yield elector, task, session
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def holder(api: FakeApi) -> str:
    return api.objects[LEASE]["spec"]["holderIdentity"] if LEASE in api.objects else ""


async def leading(elector: Elector) -> None:
    await asyncio.wait_for(elector.wait_until_leading(), 5)


async def test_the_first_makes_the_lease_and_renews_it():
    async with fake_api() as api, electing(api, "one") as (elector, task, _):
        await leading(elector)
        assert elector.is_leader
        first = dict(api.objects[LEASE]["spec"])
        await eventually(lambda: api.requests["PUT"] >= 3)
        spec = api.objects[LEASE]["spec"]
        assert spec["holderIdentity"] == "one"
        assert spec["renewTime"] > first["renewTime"]
        assert (spec["acquireTime"], spec["leaseTransitions"]) == (first["acquireTime"], 0)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec["renewTime"])
        assert not task.done()


async def test_the_second_waits_as_long_as_the_first_renews_and_says_once_who_holds_the_lease(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level("INFO")
    async with fake_api() as api, electing(api, "one") as (one, _, _), electing(api, "two") as (two, _, _):
        await eventually(lambda: one.is_leader or two.is_leader)
        follower = two if one.is_leader else one
        await asyncio.sleep(1.5 * FAST.lease_seconds)
        assert not follower.is_leader
        told = [record.getMessage() for record in caplog.records if "standing by" in record.getMessage()]
        assert [line.rpartition("holder=")[2] for line in told] == ["one" if follower is two else "two"]
        assert sorted([one.is_leader, two.is_leader]) == [False, True]


async def test_a_released_lease_is_taken_over_at_once():
    async with fake_api() as api, electing(api, "one") as (one, task, _):
        await leading(one)
        async with electing(api, "two") as (two, _, _):
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await one.release()
            assert not one.is_leader
            begun = time.monotonic()
            await leading(two)
            assert time.monotonic() - begun < FAST.fence_seconds
            assert api.objects[LEASE]["spec"]["leaseTransitions"] >= 1


async def test_a_holder_that_died_is_followed_after_the_lease_and_not_before():
    async with fake_api() as api:
        async with electing(api, "one") as (one, _, _):
            await leading(one)
        async with electing(api, "two") as (two, _, _):
            begun = time.monotonic()
            await leading(two)
            assert time.monotonic() - begun >= FAST.lease_seconds


async def test_a_holder_whose_clock_is_wrong_is_judged_by_whether_it_stirs():
    async with fake_api() as api:
        spec = {"holderIdentity": "one", "leaseDurationSeconds": 1, "renewTime": "1999-01-01T00:00:00.000000Z"}
        await api.put(LEASE, {"spec": spec})
        async with electing(api, "two") as (two, _, _):
            for _ in range(15):
                await asyncio.sleep(FAST.lease_seconds / 10)
                await api.put(LEASE, api.objects[LEASE])
            assert not two.is_leader
            await leading(two)


@pytest.mark.parametrize("fault", [500, hang])
async def test_a_leader_that_cannot_renew_stops_before_anybody_may_take_over(fault):
    async with fake_api() as api, electing(api, "one", LONG) as (elector, task, session):
        await leading(elector)
        await eventually(lambda: api.requests["PUT"] >= 1)
        api.always["PUT"] = fault
        await asyncio.wait_for(elector.lost.wait(), LONG.lease_seconds)
        with pytest.raises(Fenced):
            await session.post("/api/v1/namespaces/a/pods", {"metadata": {"name": "late"}})
        await asyncio.wait_for(task, 5)


async def test_one_failed_renewal_costs_nothing():
    async with fake_api() as api, electing(api, "one") as (elector, task, _):
        await leading(elector)
        api.fail("PUT", 500, 500)
        await eventually(lambda: api.requests["PUT"] >= 5)
        assert elector.is_leader
        assert not task.done()


async def test_the_time_counts_from_before_the_renewal():
    async with fake_api() as api:

        async def slow(request):
            await asyncio.sleep(0.3)
            return await api._put(request, await request.json())

        async with electing(api, "one") as (elector, _, _):
            await leading(elector)
            before = elector.deadline
            api.fail("PUT", slow)
            await eventually(lambda: elector.deadline != before)
            assert elector.remaining() <= FAST.fence_seconds - 0.3


async def test_a_leader_whose_lease_another_took_stops_at_once():
    async with fake_api() as api, electing(api, "one") as (elector, task, _):
        await leading(elector)
        lease = api.objects[LEASE]
        await api.put(LEASE, {**lease, "spec": {**lease["spec"], "holderIdentity": "two"}})
        await asyncio.wait_for(task, FAST.fence_seconds - 0.2)
        assert not elector.is_leader
        assert holder(api) == "two"


async def test_a_lease_that_somebody_annotated_or_deleted_is_kept():
    async with fake_api() as api, electing(api, "one") as (elector, task, _):
        await leading(elector)
        lease = api.objects[LEASE]
        await api.put(LEASE, {**lease, "metadata": {**lease["metadata"], "annotations": {"a": "b"}}})
        done = api.requests["PUT"]
        await eventually(lambda: api.requests["PUT"] >= done + 3)
        assert api.objects[LEASE]["metadata"]["annotations"] == {"a": "b"}
        await api.remove(LEASE)
        await eventually(lambda: holder(api) == "one")
        assert elector.is_leader
        assert not task.done()


async def test_of_two_that_claim_a_free_lease_one_leads():
    async with fake_api() as api, electing(api, "one") as (one, _, _), electing(api, "two") as (two, _, _):
        await eventually(lambda: one.is_leader or two.is_leader)
        await asyncio.sleep(0.3)
        assert sorted([one.is_leader, two.is_leader]) == [False, True]
        assert holder(api) == ("one" if one.is_leader else "two")


async def test_a_claim_whose_answer_was_lost_is_made_again():
    async with fake_api() as api:

        async def carried_out_but_not_answered(request):
            await api._post(request, await request.json())
            return status(503)

        api.fail("POST", carried_out_but_not_answered)
        async with electing(api, "one") as (elector, _, _):
            await leading(elector)
            assert holder(api) == "one"


async def test_an_api_server_that_fails_at_first_does_not_end_the_election():
    async with fake_api() as api:
        api.fail("GET", 500, 403)
        async with electing(api, "one") as (elector, _, _):
            await leading(elector)


async def test_who_never_led_releases_nothing():
    async with fake_api() as api, session_to(api) as session:
        await api.put(LEASE, {"spec": {"holderIdentity": "other"}})
        await Elector(session, namespace="sys", name="op", identity="one").release()
        assert not api.seen


def test_times_are_written_in_utc_with_microseconds():
    assert micro_time(1767225600.25) == "2026-01-01T00:00:00.250000Z"


async def test_a_candidate_that_gets_no_answers_asks_less_and_less_and_says_so_once(caplog: pytest.LogCaptureFixture):
    async with fake_api() as api:
        api.always["GET"] = 503
        async with electing(api, "one") as (elector, _, _):
            await asyncio.sleep(1.5)
            # Every 0.05 s that would be 30 requests; doubled pauses make 5 or 6 of it.
            assert 3 <= api.requests["GET"] <= 8
            assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
            del api.always["GET"]
            await leading(elector)
