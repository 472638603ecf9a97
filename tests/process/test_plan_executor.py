"""The writes of one plan, in their order, and what another writer does meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from elastic_api.job import PLURAL, VERSION
from elastic_api.what_if import ANNOTATION_WHAT_IF, KEEP, ONCE
from elastic_operator.build.request import BuildSettings
from elastic_operator.cluster import objects
from elastic_operator.cluster.errors import ApiError, Outdated
from elastic_operator.cluster.events import EventRecorder
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.stores import Stores
from elastic_operator.loop.writes.plan_executor import PlanExecutor, Work
from elastic_operator.plan.facts.decisions import Plan
from elastic_operator.plan.facts.job import Job
from elastic_worker.contract import GROUP
from tests.api.jobs import make_job as make_body
from tests.cluster_unit.fake_api import FakeApi, json
from tests.kit.requests import DENIED
from tests.plan.jobs import make_job, make_spec, make_status

PATH = f"/apis/{GROUP}/{VERSION}/namespaces/a/{PLURAL}/toy"


def stored(api: FakeApi, **status: object) -> objects.CustomObject:
    body = make_body("toy")
    body["metadata"] |= {"namespace": "a", "generation": 1}
    known = api.find(PATH)
    body["metadata"]["uid"] = known["metadata"]["uid"] if known else "job-uid"
    return objects.decode(api.put(PATH, body | {"status": status}), objects.CustomObject)


@pytest.mark.parametrize("is_edited", [True, False])
async def test_a_status_is_written_over_an_edit_but_not_over_a_late_write_of_the_last_leader(
    api: FakeApi, session: Session, is_edited: bool
):
    stores = Stores(*(Store() for _ in range(8)))
    before = stored(api, incarnation=1, replicas=2)
    stores.jobs.observe(before)
    job = replace(make_job(namespace="a"), uid=before.metadata.uid)
    executor = PlanExecutor(session, stores, EventRecorder(session, instance="one"), BuildSettings())
    late = {"incarnation": 1, "replicas": 2} if is_edited else {"incarnation": 2, "replicas": 0}
    stores.jobs.observe(stored(api, **late))
    work = executor.carry_out(Work(job, Plan(status=make_status(replicas=3)), before.status), lambda: ())
    if is_edited:
        await work
        assert api.find(PATH)["status"]["replicas"] == 3
    else:
        with pytest.raises(Outdated):
            await work
        assert api.find(PATH)["status"] == late
        assert "PATCH" not in api.requests


def expired(api: FakeApi, session: Session, job: Job) -> tuple[Stores, Callable[[], Awaitable[None]]]:
    """Stores that have the job as it is now, and the deletion of it, because its time is over."""
    stores, body = Stores(*(Store() for _ in range(8))), objects.decode(api.find(PATH), objects.CustomObject)
    stores.jobs.observe(body)
    executor = PlanExecutor(session, stores, EventRecorder(session, instance="one"), BuildSettings())

    async def delete() -> None:
        known, plan = replace(job, namespace="a", uid=body.metadata.uid), Plan(status=job.status, delete_job=True)
        await executor.carry_out(Work(known, plan, body.status, writes_status=False), lambda: ())

    return stores, delete


def relabel(api: FakeApi, **meta: object) -> None:
    known = api.find(PATH)
    assert known is not None
    api.put(PATH, known | {"metadata": meta})


async def test_a_deleted_job_with_a_finalizer_is_known_as_such_before_the_watch_shows_it(
    api: FakeApi, session: Session
):
    stored(api)
    relabel(api, finalizers=["example.com/backup"])
    stores, delete = expired(api, session, make_job())
    await delete()
    assert [job.metadata.deletion_timestamp is not None for job in stores.jobs] == [True]


async def test_a_deleted_job_without_finalizers_is_gone_at_once(api: FakeApi, session: Session):
    stored(api)
    stores, delete = expired(api, session, make_job())
    await delete()
    assert not [*stores.jobs]
    assert not api.find(PATH)


async def test_a_question_that_was_edited_meanwhile_stays_and_is_read_again(api: FakeApi, session: Session):
    stored(api)
    relabel(api, annotations={ANNOTATION_WHAT_IF: ONCE})
    stores, delete = expired(api, session, make_job((), spec=make_spec(suspend=True), what_if=ONCE))
    relabel(api, annotations={ANNOTATION_WHAT_IF: KEEP})
    await delete()
    assert api.find(PATH)
    assert [job.metadata.annotations.what_if for job in stores.jobs] == [KEEP]


async def test_a_namesake_of_a_job_that_is_gone_already_stays_and_is_read(api: FakeApi, session: Session):
    stored(api)
    stores, delete = expired(api, session, make_job())
    api.remove(PATH)
    again = stored(api)
    await delete()
    assert api.find(PATH)
    assert [job.metadata.uid for job in stores.jobs] == [again.metadata.uid]


async def test_a_webhook_that_forbids_the_deletion_of_a_job_does_not_hide_the_job(api: FakeApi, session: Session):
    stored(api)
    stores, delete = expired(api, session, make_job())
    api.fail("DELETE", json({"kind": "Status", "message": DENIED, "reason": "Conflict", "code": 409}, code=409))
    with pytest.raises(ApiError) as refused:
        await delete()
    assert not refused.value.retry_policy.is_transient, "it is not asked again at once"
    assert [*stores.jobs]
