"""What our writes do on a real API server: strict validation, deletions, disruptions, Services, events.

Names that are taken, preconditions and statuses are in `tests/cluster_unit/test_api_requests.py`; that a real API
server answers so, in `test_same_answers.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_operator.build.service import build_endpoint_slice, build_service
from elastic_operator.cluster import api_requests, pod_requests
from elastic_operator.cluster.connection import load_connection
from elastic_operator.cluster.errors import BadRequest, NameTaken, NotFound
from elastic_operator.cluster.events import EventRecorder, job_subject
from elastic_operator.cluster.session import Session
from elastic_operator.plan.facts.decisions import Event
from elastic_operator.plan.facts.requirements import Load
from elastic_operator.read import convert
from tests.api.jobs import make_job
from tests.apiserver.jobs_api import Jobs, accepted

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def session(kubeconfig: Path, jobs: Jobs) -> AsyncIterator[Session]:
    """A session in whose namespace pods can be made."""
    async with Session(load_connection(str(kubeconfig))) as session:
        account = f"/api/v1/namespaces/{jobs.namespace}/serviceaccounts/default"
        async with asyncio.timeout(30):
            while not await exists(session, account):  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.05)
        yield session


async def exists(session: Session, path: str) -> bool:
    try:
        await session.get(path)
    except NotFound:
        return False
    return True


def make_owner(jobs: Jobs) -> SimpleNamespace:
    job = accepted(jobs.create(make_job()))
    return SimpleNamespace(namespace=jobs.namespace, name="toy", uid=job["metadata"]["uid"], job=job)


def make_pod(owner: SimpleNamespace, **spec: Any) -> dict[str, Any]:
    reference = {
        "apiVersion": owner.job["apiVersion"],
        "kind": owner.job["kind"],
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "toy-worker-0", "namespace": owner.namespace, "ownerReferences": [reference]},
        "spec": {"containers": [{"name": "pytorch", "image": "none"}], "terminationGracePeriodSeconds": 30, **spec},
    }


async def test_a_field_that_nobody_knows_is_refused_by_name(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    with pytest.raises(BadRequest, match=r"spec\.nodeSelektor"):
        await pod_requests.create_pod(session, make_pod(owner, nodeSelektor={}))


async def test_a_bound_pod_is_leaving_after_our_delete_without_having_been_disrupted(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    pod = await pod_requests.create_pod(session, make_pod(owner, nodeName="nowhere"))
    leaving = await pod_requests.delete_pod(session, jobs.namespace, pod.metadata.name, uid=pod.metadata.uid)
    assert leaving is not None
    assert leaving.metadata.deletion_grace_period_seconds == 30
    assert int(leaving.metadata.resource_version) > int(pod.metadata.resource_version)
    own = convert.own_pod(leaving, Load({}), role="worker", index=0)
    assert own.deleting_since is not None
    assert abs(own.deleting_since - session.clock.time()) < 5
    assert own.disrupted == ""
    with pytest.raises(NameTaken, match="still being deleted"):
        await pod_requests.create_pod(session, make_pod(owner))


@pytest.mark.parametrize(
    ("node", "finalizers", "grace_seconds"),
    [("nowhere", [], 0), ("", [], None), ("", ["example.com/kept"], None)],
    ids=["by-force", "not-bound", "kept"],
)
async def test_a_pod_is_gone_at_once_by_force_or_before_it_is_bound_unless_a_finalizer_keeps_it(
    session: Session, jobs: Jobs, node: str, finalizers: list[str], grace_seconds: int | None
):
    owner = make_owner(jobs)
    manifest = make_pod(owner, **({"nodeName": node} if node else {}))
    manifest["metadata"]["finalizers"] = finalizers
    pod = await pod_requests.create_pod(session, manifest)
    name, uid = pod.metadata.name, pod.metadata.uid
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{name}"
    left = await pod_requests.delete_pod(session, jobs.namespace, name, uid=uid, grace_seconds=grace_seconds)
    assert (left is not None) is await exists(session, path) is bool(finalizers)
    if left is not None:
        await session.patch(path, {"metadata": {"finalizers": None}})
        assert not await exists(session, path)
    assert await pod_requests.delete_pod(session, jobs.namespace, name, uid=uid) is None


async def test_an_eviction_is_a_disruption(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    pod = await pod_requests.create_pod(session, make_pod(owner, nodeName="nowhere"))
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod.metadata.name}"
    status = {"status": {"phase": "Running"}}
    await session.patch(f"{path}/status", status)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.metadata.name}}
    await session.post(f"{path}/eviction", eviction)
    evicted = pod_requests.decode(await session.get(path), pod_requests.Pod)
    assert convert.disruption(evicted).startswith("evicted, as by a drain of its node")


async def test_a_service_gets_its_address_and_its_endpoints_follow_the_master(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    service = await api_requests.ensure_service(session, build_service(owner))
    again = await api_requests.ensure_service(session, build_service(owner))
    assert service.spec.cluster_ip
    assert again == service
    for address in ("10.9.0.1", "10.9.0.1", "10.9.0.2", None):
        manifest = build_endpoint_slice(owner, service_ip=service.spec.cluster_ip, pod_ip=address)
        known = await api_requests.ensure_endpoint_slice(session, manifest)
        addresses = [a for endpoint in known.endpoints or () for a in endpoint.addresses]
        assert addresses == ([address] if address else [])


async def test_events_are_told_on_the_job_and_counted(session: Session, jobs: Jobs):
    owner, dropped = make_owner(jobs), list[int]()
    recorder = EventRecorder(session, instance="test", on_drop=lambda: dropped.append(1))
    task = asyncio.create_task(recorder.run())
    for _ in range(3):
        recorder.record(job_subject(jobs.namespace, "toy", owner.uid), Event("ScaledUp", "from 2 to 4 pods"))
        await recorder.flush()
    task.cancel()
    assert not dropped
    found = await session.get(f"/apis/events.k8s.io/v1/namespaces/{jobs.namespace}/events")
    (event,) = [item for item in found["items"] if item["reason"] == "ScaledUp"]
    assert event["series"]["count"] == 3
    assert event["regarding"]["uid"] == owner.uid
