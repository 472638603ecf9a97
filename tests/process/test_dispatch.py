import asyncio
import logging
from typing import Any

import pytest

from elastic_operator.cluster import objects
from elastic_operator.cluster.errors import ClusterError, Conflict, Unreachable
from elastic_operator.cluster.meta import Meta
from elastic_operator.loop.backoff import Troubles
from elastic_operator.loop.dispatch import Dispatcher
from elastic_operator.metrics import Metrics
from elastic_operator.plan.facts.decisions import CreatePod, Plan
from elastic_operator.plan.facts.snapshot import PodShape
from elastic_operator.read.dropped_fields import Unkept
from elastic_operator.read.ledger import ASSUMED_SECONDS, Ledger
from tests.plan.jobs import make_job


class Refused:
    """An actor whose every write fails in the same way."""

    def __init__(self, error: ClusterError) -> None:
        self.error = error

    async def carry_out(self, *_args: Any, **_options: Any) -> None:
        raise self.error


class Stopped:
    """An actor that is stopped when the master's creation has been sent, and the worker's has not."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def carry_out(self, *_args: Any, sent: set[str], **_options: Any) -> None:
        sent.add("toy-master-0")
        self.begun.set()
        await asyncio.Event().wait()


class Shapes:
    """All pods ask for nothing."""

    def shape(self, _job: Any, _role: str) -> PodShape:
        return PodShape(requests={})


def dispatch(actor: Any, plan: Plan, *, ledger: Any = None, done: Any = lambda _: None) -> Dispatcher:
    """A dispatcher that was handed that plan for `make_job()`."""
    job = make_job()
    dispatcher = Dispatcher(
        actor=actor,
        reader=Shapes(),
        ledger=ledger,
        troubles=Troubles(),
        metrics=Metrics(),
        unkept=Unkept("jobs"),
        fresh=lambda: True,
        done=done,
        failed=lambda _uid, _error: None,
    )
    meta = Meta(name=job.name, namespace=job.namespace, uid=job.uid, resource_version="1")
    dispatcher.start(objects.CustomObject(metadata=meta, status={}), job, plan)
    return dispatcher


async def failed_write(error: ClusterError) -> Dispatcher:
    """A dispatcher that was told by its actor of that error."""
    done = asyncio.Event()
    dispatcher = dispatch(Refused(error), Plan(status=make_job().status, delete_job=True), done=lambda _: done.set())
    await done.wait()
    return dispatcher


@pytest.mark.parametrize(
    ("error", "warnings"),
    [(Conflict("the object has been modified", status=409), 0), (Unreachable("no answer"), 1)],
    ids=["a write that met another", "a server out of reach"],
)
async def test_only_trouble_is_warned_of(caplog, error, warnings):
    caplog.set_level(logging.INFO)
    dispatcher = await failed_write(error)
    assert [record.levelno >= logging.WARNING for record in caplog.records].count(True) == warnings
    assert (dispatcher.troubles.wait(make_job().uid, 0.0) > 0) == bool(warnings)


async def test_of_a_plan_that_is_cut_short_only_pods_that_may_exist_still_take_room():
    job, actor, ledger = make_job(), Stopped(), Ledger(job_of=lambda _: None, parse=lambda *_: None)
    creates = (CreatePod("master", 0, "n1", 1, (1, 2)), CreatePod("worker", 0, "n1", 1, (1, 2)))
    dispatcher = dispatch(actor, Plan(status=job.status, creates=creates), ledger=ledger)
    await actor.begun.wait()
    assert [one.name for one in ledger.assumed(job.uid)] == ["toy-master-0", "toy-worker-0"]
    await dispatcher.stop()
    await asyncio.sleep(0)  # the end of a task is told a turn later
    assert [one.name for one in ledger.assumed(job.uid)] == ["toy-master-0"]
    assert ledger.next_expiry() <= ASSUMED_SECONDS
