"""The writes of one plan, in their order, and what another writer does meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_api.job import PLURAL, VERSION
from elastic_operator.build.request import BuildSettings
from elastic_operator.cluster import objects
from elastic_operator.cluster.errors import Conflict
from elastic_operator.cluster.events import EventRecorder
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.stores import Stores
from elastic_operator.loop.writes.plan_executor import PlanExecutor
from elastic_operator.plan.facts.decisions import Plan
from elastic_worker.contract import GROUP
from tests.api.jobs import make_job as make_body
from tests.cluster_unit.fake_api import FakeApi
from tests.plan.jobs import make_job, make_status

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
    work = executor.carry_out(
        job,
        Plan(status=make_status(replicas=3)),
        stored_status=before.status.unpack(),
        writes_status=True,
        sent=set(),
        pods=lambda: (),
    )
    if is_edited:
        await work
        assert api.find(PATH)["status"]["replicas"] == 3
    else:
        with pytest.raises(Conflict):
            await work
        assert api.find(PATH)["status"] == late
        assert "PATCH" not in api.requests
