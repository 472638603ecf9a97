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
from elastic_operator.plan.decisions import Plan
from tests.plan.jobs import make_job


class Refused:
    """An actor whose every write fails in the same way."""

    def __init__(self, error: ClusterError) -> None:
        self.error = error

    async def carry_out(self, *_args: Any, **_options: Any) -> None:
        raise self.error


async def failed_write(error: ClusterError) -> tuple[Dispatcher, str]:
    """A dispatcher that was told by its actor of that error, and the uid of the job it was about."""
    job, done = make_job(), asyncio.Event()
    dispatcher = Dispatcher(
        actor=Refused(error),
        reader=None,
        ledger=None,
        troubles=Troubles(),
        metrics=Metrics(),
        fresh=lambda: True,
        done=lambda _: done.set(),
    )
    body = objects.CustomObject(
        metadata=Meta(name=job.name, namespace=job.namespace, uid=job.uid, resource_version="1"), status={}
    )
    dispatcher.start(body, job, Plan(status=job.status, delete_job=True))
    await done.wait()
    return dispatcher, job.uid


@pytest.mark.parametrize(
    ("error", "warnings"),
    [(Conflict("the object has been modified", status=409), 0), (Unreachable("no answer"), 1)],
    ids=["a write that met another", "a server out of reach"],
)
async def test_only_trouble_is_warned_of(caplog, error, warnings):
    caplog.set_level(logging.INFO)
    dispatcher, uid = await failed_write(error)
    assert [record.levelno >= logging.WARNING for record in caplog.records].count(True) == warnings
    assert (dispatcher.troubles.wait(uid, 0.0) > 0) == bool(warnings)
