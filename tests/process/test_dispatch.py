import asyncio
import logging
import time
from math import inf
from typing import Any

import pytest

from elastic_operator.cluster import objects
from elastic_operator.cluster.errors import (
    ClusterError,
    Conflict,
    Fenced,
    Forbidden,
    PodRefused,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from elastic_operator.cluster.meta import Meta
from elastic_operator.cluster.pruned_fields import PrunedFields
from elastic_operator.loop.writes.dispatch import Dispatcher
from elastic_operator.loop.writes.failed_writes import FailedWrites
from elastic_operator.loop.writes.plan_executor import Work
from elastic_operator.loop.writes.status_times import MESSAGE_SECONDS, REPORT_SECONDS
from elastic_operator.memory import DirtySet
from elastic_operator.metrics import Metrics
from elastic_operator.plan.facts.decisions import DeletePod, Event, NewPods, Plan, Route, Slot
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.read.assumed_pods import ASSUMED_SECONDS
from elastic_operator.read.ledger import Ledger
from tests.build.objects import Owner
from tests.plan.jobs import BOTH, make_job, plan, started


class Refused:
    """An executor whose every write fails in the same way."""

    def __init__(self, error: ClusterError) -> None:
        self.error = error

    async def carry_out(self, _work: Any, _pods: Any) -> None:
        raise self.error


class Stopped:
    """An executor that is stopped when the master's creation has been sent, and the worker's has not."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def carry_out(self, work: Work, _pods: Any) -> None:
        work.sent.add("toy-master-0")
        self.begun.set()
        await asyncio.Event().wait()


class Shapes:
    """All pods ask for nothing."""

    def shape(self, _job: Any, _role: str) -> PodShape:
        return PodShape(requests={})


def dispatch(executor: Any, plan: Plan, *, ledger: Ledger | None = None, done: Any = lambda _: None) -> Dispatcher:
    """A dispatcher that was handed that plan for `make_job()`."""
    job, executor.pruned_fields = make_job(), PrunedFields("jobs")
    dispatcher = Dispatcher(
        executor=executor,
        shapes=Shapes(),
        ledger=ledger or Ledger(job_of=lambda _: None, parse=lambda *_: None),
        failed_writes=FailedWrites(DirtySet()),
        metrics=Metrics(),
        is_fresh=lambda: True,
        on_done=done,
        on_internal_error=lambda _uid, _error: None,
    )
    meta = Meta(name=job.name, namespace=job.namespace, uid=job.uid, resource_version="1")
    dispatcher.start(objects.CustomObject(metadata=meta, status=objects.EMPTY), job, plan)
    return dispatcher


async def failed_write(error: ClusterError) -> Dispatcher:
    """A dispatcher that was told by its executor of that error."""
    done = asyncio.Event()
    dispatcher = dispatch(Refused(error), Plan(status=make_job().status, delete_job=True), done=lambda _: done.set())
    await done.wait()
    return dispatcher


@pytest.mark.parametrize(
    ("error", "warnings", "waits"),
    [
        (Conflict("the object has been modified", status=409), 0, False),
        (Fenced("the lease is over"), 0, True),
        (Unreachable("no answer"), 1, True),
    ],
    ids=["a write that met another", "another replica leads", "a server out of reach"],
)
async def test_only_trouble_is_warned_of_and_counted(caplog, error, warnings, waits):
    caplog.set_level(logging.INFO)
    dispatcher = await failed_write(error)
    assert [record.levelno >= logging.WARNING for record in caplog.records].count(True) == warnings
    assert dispatcher.metrics.reconcile_errors._value.get() == warnings
    assert (dispatcher.failed_writes.failed_write(make_job().uid).wait(0.0) > 0) == waits


async def test_rejected_pods_clear_their_error_once_the_status_has_it():
    """Stores that are not fresh make no pods, and no second status, event and longer wait either."""
    job, done = make_job(), asyncio.Event()
    plan = Plan(status=job.status, write_status_first=True)
    dispatcher = dispatch(Noted(), plan, done=lambda _: done.set())
    await done.wait()
    done.clear()
    dispatcher.failed_writes.add(job, PodRefused(Forbidden("exceeded quota", status=403), role="worker"), 0.0)
    dispatcher.is_fresh = lambda: False
    await asyncio.sleep(1.0)
    meta = Meta(name=job.name, namespace=job.namespace, uid=job.uid, resource_version="1")
    dispatcher.start(objects.CustomObject(metadata=meta, status=objects.EMPTY), job, plan)
    await done.wait()
    assert dispatcher.failed_writes.failed_write(job.uid).feedback.pods_rejected == ""


async def test_of_a_plan_that_is_cut_short_only_pods_that_may_exist_still_take_room():
    job, executor, ledger = make_job(), Stopped(), Ledger(job_of=lambda _: None, parse=lambda *_: None)
    creates = NewPods(tuple(Slot(role, 0, "n1", True) for role in ("master", "worker")), 1, (1, 2))
    dispatcher = dispatch(executor, Plan(status=job.status, creates=creates), ledger=ledger)
    await executor.begun.wait()
    assert [one.name for one in ledger.assumed.of_job(job.uid)] == ["toy-master-0", "toy-worker-0"]
    await dispatcher.stop()
    await asyncio.sleep(0)  # the end of a task is told a turn later
    assert [one.name for one in ledger.assumed.of_job(job.uid)] == ["toy-master-0"]
    assert ledger.seconds_until_expiry() <= ASSUMED_SECONDS


@pytest.mark.parametrize("name", ["toy-master-0", "toy-worker-0"], ids=["sent", "not sent"])
async def test_the_end_of_a_deleted_jobs_plan_leaves_the_pods_of_its_successor_alone(name: str) -> None:
    """The job was deleted and created again under its name. Its successor's pod of that name is still under way."""
    executor, job, ledger = Stopped(), make_job(), Ledger(job_of=lambda _: None, parse=lambda *_: None)
    creates = NewPods(tuple(Slot(role, 0, "n1", True) for role in ("master", "worker")), 1, (1, 2))
    dispatcher = dispatch(executor, Plan(status=job.status, creates=creates), ledger=ledger)
    await executor.begun.wait()
    successor = Owner(job.namespace, job.name, "uid-of-the-successor")
    for slot in creates.slots:
        ledger.assumed.add(successor, slot, PodShape(requests={}))
    await dispatcher.stop()
    await asyncio.sleep(0)  # the end of a task is told a turn later
    assert [one.until for one in ledger.assumed.of_job(successor.uid) if one.name == name] == [inf]


async def test_pods_of_a_plan_that_could_not_be_begun_are_not_counted() -> None:
    """Nothing would ever forget them: the job would never get these pods."""
    job, ledger = make_job(), Ledger(job_of=lambda _: None, parse=lambda *_: None)
    dispatcher = dispatch(Noted(), Plan(status=job.status), ledger=ledger)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    def broken() -> None:
        raise ZeroDivisionError

    meta = Meta(name=job.name, namespace=job.namespace, uid=job.uid, resource_version="1")
    plan = Plan(status=job.status, creates=NewPods((Slot("master", 0, "n1", True),), 1, (1, 1)))
    with pytest.raises(ZeroDivisionError):
        dispatcher.start(objects.CustomObject(metadata=meta, status=objects.EMPTY), job, plan, begin_gate=broken)
    assert not ledger.assumed.of_job(job.uid)


class OnlyMasters(Shapes):
    """Shapes that raise an error at the worker."""

    def shape(self, job: Any, role: str) -> PodShape:
        if role == "worker":
            raise ZeroDivisionError
        return super().shape(job, role)


async def test_no_pod_is_counted_if_the_shape_of_another_raises_an_error() -> None:
    """The plan does not begin, so nothing would forget the first pod."""
    job, ledger = make_job(), Ledger(job_of=lambda _: None, parse=lambda *_: None)
    dispatcher = dispatch(Noted(), Plan(status=job.status), ledger=ledger)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    dispatcher.shapes = OnlyMasters()
    meta = Meta(name=job.name, namespace=job.namespace, uid=job.uid, resource_version="1")
    creates = NewPods(tuple(Slot(role, 0, "n1", True) for role in ("master", "worker")), 1, (1, 2))
    with pytest.raises(ZeroDivisionError):
        dispatcher.start(
            objects.CustomObject(metadata=meta, status=objects.EMPTY), job, Plan(status=job.status, creates=creates)
        )
    assert not ledger.assumed.of_job(job.uid)


class Noted:
    """An executor that does everything at once; `told` says of each plan whether the status went with it, and `events`
    are all of theirs.
    """

    def __init__(self) -> None:
        self.told: list[bool] = []
        self.carried_out: list[tuple[int, int]] = []
        """The deletions and creations of each plan with any."""
        self.events: list[Event] = []

    async def carry_out(self, work: Work, _pods: Any) -> None:
        plan = work.plan
        self.told.append(work.writes_status)
        if plan.deletes or plan.slots:
            self.carried_out.append((len(plan.deletes), len(plan.slots)))
        self.events += plan.events


class Handed:
    """A dispatcher, and a job that runs: what is told of it differs from what is written in some fields."""

    def __init__(self) -> None:
        self.executor = Noted()
        self.job = make_job(status=started())
        self.planned = plan(self.job, BOTH)
        self.written = self.planned.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.dispatcher = dispatch(self.executor, Plan(status=self.planned.status))

    async def start(self, written: dict[str, Any], *, begin_gate: Any = lambda: None, **plan: Any) -> float:
        """Seconds until it is decided on again, and not before what was started is over."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.executor.told.clear()
        meta = Meta(name=self.job.name, namespace=self.job.namespace, uid=self.job.uid, resource_version="1")
        body = objects.CustomObject(metadata=meta, status=objects.Packed({**self.written, **written}))
        wait = self.dispatcher.start(body, self.job, Plan(status=self.planned.status, **plan), begin_gate=begin_gate)
        await asyncio.sleep(0)
        return wait


REPORTS = [{"readyReplicas": 0}, {"gpus": 0}, {"worldSize": 0}, {"runningSince": "2026-01-01T00:00:00Z"}]
DECISIONS = [{"replicas": 1}, {"targetReplicas": 4}, {"incarnation": 7}, {"pods": []}, {"restarts": 3}]


@pytest.mark.parametrize("written", REPORTS, ids=str)
async def test_what_pods_do_is_told_with_what_they_do_within_a_second(written: dict[str, Any]) -> None:
    handed = Handed()
    assert 0 < await handed.start(written) <= REPORT_SECONDS
    handed.dispatcher.status_times._known[handed.job.uid].behind_since -= REPORT_SECONDS
    assert await handed.start(written) == inf
    assert handed.executor.told == [True]


@pytest.mark.parametrize("written", DECISIONS, ids=str)
async def test_what_the_next_decision_starts_from_is_written_at_once(written: dict[str, Any]) -> None:
    handed = Handed()
    assert await handed.start(written) == inf
    assert handed.executor.told == [True]


async def test_so_is_that_the_whole_group_runs_and_whatever_comes_with_an_event() -> None:
    handed = Handed()
    waits = [{**one, "reason": "Rendezvousing"} for one in handed.written["conditions"] if one["type"] == "Ready"]
    others = [one for one in handed.written["conditions"] if one["type"] != "Ready"]
    await handed.start({"conditions": [*others, *waits]})
    assert handed.executor.told == [True]
    await handed.start({"gpus": 0}, events=(Event("Told", "Something happened."),))
    assert handed.executor.told == [True]


async def test_the_status_of_a_job_that_waits_for_its_next_try_is_written_with_its_events() -> None:
    """The next plan starts from that status, and has them no more."""
    handed, grows = Handed(), Event("ScaledUp", "The job grows from 1 to 2 pods.")
    handed.dispatcher.failed_writes.add(handed.job, Unreachable("no answer"), inf)
    await handed.start({"targetReplicas": 1}, events=(grows,))
    assert (handed.executor.told, handed.executor.events) == ([True], [grows])


async def test_while_a_job_waits_for_its_next_try_its_newest_status_is_written_after_a_few_seconds() -> None:
    """Its pods may become ready just after a status said that another pod is refused."""
    handed = Handed()
    for _ in range(10):
        handed.dispatcher.failed_writes.add(handed.job, Unreachable("no answer"), time.monotonic())
    await handed.start({"targetReplicas": 1})
    assert handed.executor.told == [True]
    wait = await handed.start({"targetReplicas": 4})
    assert MESSAGE_SECONDS - 1 < wait <= MESSAGE_SECONDS
    assert handed.executor.told == []
    await asyncio.sleep(wait)
    await handed.start({"targetReplicas": 4})
    assert handed.executor.told == [True]


async def test_a_status_that_could_not_be_written_waits_for_the_next_try_of_all_writes() -> None:
    """Each try that fails makes the next one later. Without this, statuses alone would put off all other writes."""
    handed = Handed()
    handed.dispatcher.executor = refused = Refused(Unreachable("no answer"))
    refused.pruned_fields = PrunedFields("jobs")
    for _ in range(10):
        handed.dispatcher.failed_writes.add(handed.job, Unreachable("no answer"), time.monotonic())
    await handed.start({"targetReplicas": 1})
    assert await handed.start({"targetReplicas": 1}) > 2 * MESSAGE_SECONDS


async def test_a_status_that_met_the_write_of_another_client_is_written_after_a_few_seconds() -> None:
    """No write of the operator has failed, so its back-off says nothing about this one."""
    handed = Handed()
    handed.dispatcher.executor = refused = Refused(Conflict("the object has been modified", status=409))
    refused.pruned_fields = PrunedFields("jobs")
    for _ in range(10):
        handed.dispatcher.failed_writes.add(handed.job, Unreachable("no answer"), time.monotonic())
    await handed.start({"targetReplicas": 1})
    assert MESSAGE_SECONDS - 1 < await handed.start({"targetReplicas": 1}) <= MESSAGE_SECONDS


async def test_failed_creations_are_not_forgotten_if_none_was_tried_because_the_stores_are_old() -> None:
    handed = Handed()
    handed.dispatcher.failed_writes.add(handed.job, Unreachable("no answer"), -inf)
    handed.dispatcher.is_fresh = lambda: False
    await handed.start({"targetReplicas": 1}, creates=GROWTH)
    await asyncio.sleep(0)
    assert handed.executor.told == [True]
    assert handed.dispatcher.failed_writes.failed_write(handed.job.uid).attempts.times == 1


QUOTA = PodRefused(Forbidden("exceeded quota", status=403), role="worker")
GROWTH = NewPods((Slot("worker", 1, "n1", True),), 1, (1, 2))


async def test_a_job_whose_pods_are_refused_gives_pods_up_before_its_next_try() -> None:
    """Others wait for their GPUs. Only creations wait for the next try, and it comes no sooner."""
    handed = Handed()
    for _ in range(10):
        handed.dispatcher.failed_writes.add(handed.job, QUOTA, time.monotonic())
    deletes = tuple(DeletePod(pod, "others need it") for pod in handed.job.pods[1:])
    await handed.start({}, write_status_first=True, deletes=deletes, creates=GROWTH)
    assert handed.executor.carried_out == [(1, 0)]
    assert await handed.start({}, creates=GROWTH) > 2 * MESSAGE_SECONDS
    await handed.start({}, deletes=deletes)
    assert handed.executor.carried_out == [(1, 0), (1, 0)]
    await handed.start({}, creates=GROWTH)
    assert handed.executor.carried_out[-1] == (0, 1), "a plan that was carried out as a whole ends the wait"


@pytest.mark.parametrize(
    "last", [Unreachable("no answer"), TooManyRequests("slow down", status=429)], ids=lambda error: type(error).__name__
)
async def test_a_job_whose_other_writes_fail_gives_no_pods_up_before_its_next_try(last: ClusterError) -> None:
    handed = Handed()
    for error in (*10 * [QUOTA], last):
        handed.dispatcher.failed_writes.add(handed.job, error, time.monotonic())
    deletes = tuple(DeletePod(pod, "others need it") for pod in handed.job.pods[1:])
    assert await handed.start({}, write_status_first=True, deletes=deletes) > 2 * MESSAGE_SECONDS
    assert handed.executor.carried_out == []


async def test_a_job_gives_no_pods_up_while_the_server_that_refuses_its_pods_asks_for_patience() -> None:
    handed = Handed()
    busy = PodRefused(ServerError("webhook is busy", status=503, retry_after=5.0), role="worker")
    for _ in range(10):
        handed.dispatcher.failed_writes.add(handed.job, busy, time.monotonic())
    deletes = tuple(DeletePod(pod, "others need it") for pod in handed.job.pods[1:])
    wait = await handed.start({}, deletes=deletes)
    assert 4.0 < wait <= 5.0
    assert handed.executor.carried_out == []
    await asyncio.sleep(wait)
    await handed.start({}, deletes=deletes)
    assert handed.executor.carried_out == [(1, 0)]


async def test_the_status_of_a_job_that_the_server_throttles_waits_as_long_as_the_server_asks() -> None:
    """Its own back-off is longer. Writes that only say so would add to the load of the server."""
    handed, now, slow_down = Handed(), time.monotonic(), TooManyRequests("slow down", status=429, retry_after=5.0)
    for _ in range(10):
        handed.dispatcher.failed_writes.add(handed.job, slow_down, now)
    assert 0 < await handed.start({"targetReplicas": 1}) <= 5.0
    assert handed.executor.told == []
    handed.dispatcher.failed_writes.add(handed.job, slow_down, now - 5.0)
    assert await handed.start({"targetReplicas": 1}) > 5.0
    assert handed.executor.told == [True]


async def test_where_the_service_leads_does_not_wait_and_the_status_does() -> None:
    handed = Handed()
    assert await handed.start({"gpus": 0}, route=Route("10.0.0.1", "n1")) == inf
    assert handed.executor.told == [False]
    assert 0 < await handed.start({"gpus": 0}) <= REPORT_SECONDS, "it waits no longer for that"


async def test_where_nothing_but_the_wording_is_new_it_waits_for_seconds() -> None:
    handed = Handed()
    worded = [{**one, "message": "other words"} for one in handed.written["conditions"]]
    assert REPORT_SECONDS < await handed.start({"conditions": worded}) <= MESSAGE_SECONDS


async def test_a_plan_that_was_not_begun_does_not_make_the_next_wording_wait() -> None:
    """A foreign pod could not be nominated, so the job kept its pods, and nothing was written."""

    async def fails() -> bool:
        return False

    handed = Handed()
    worded = [{**one, "message": "other words"} for one in handed.written["conditions"]]
    await asyncio.sleep(MESSAGE_SECONDS)
    await handed.start({"targetReplicas": 1}, begin_gate=lambda: fails)
    assert handed.executor.told == []
    assert await handed.start({"conditions": worded}) == inf
    assert handed.executor.told == [True]
