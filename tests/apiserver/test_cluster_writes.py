"""What our writes do on a real API server: preconditions, strict validation, deletions, statuses, events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_operator.build.service import build_endpoint_slice, build_service
from elastic_operator.cluster import apply, convert
from elastic_operator.cluster.connection import load_connection
from elastic_operator.cluster.errors import BadRequest, Conflict, NameTaken, NotFound
from elastic_operator.cluster.events import EventRecorder
from elastic_operator.cluster.session import Session
from elastic_operator.plan.decisions import Event
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


def make_owner(jobs: Jobs, name: str = "toy") -> SimpleNamespace:
    job = accepted(jobs.create(make_job(name)))
    return SimpleNamespace(namespace=jobs.namespace, name=name, uid=job["metadata"]["uid"], job=job)


def make_pod(owner: SimpleNamespace, name: str = "toy-worker-0", *, owned: bool = True, **spec: Any) -> dict[str, Any]:
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
        "metadata": {"name": name, "namespace": owner.namespace, "ownerReferences": [reference] if owned else []},
        "spec": {"containers": [{"name": "pytorch", "image": "none"}], "terminationGracePeriodSeconds": 30, **spec},
    }


async def test_a_pod_is_created_once_however_often_it_is_asked_for(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    first = await apply.create_pod(session, make_pod(owner), job_uid=owner.uid)
    again = await apply.create_pod(session, make_pod(owner), job_uid=owner.uid)
    assert first.metadata.uid == again.metadata.uid
    assert first.metadata.owner_references[0].uid == owner.uid


async def test_a_pod_of_the_user_s_keeps_its_name(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    await session.post(f"/api/v1/namespaces/{jobs.namespace}/pods", make_pod(owner, owned=False))
    with pytest.raises(NameTaken, match="belongs to nobody"):
        await apply.create_pod(session, make_pod(owner), job_uid=owner.uid)


async def test_a_field_that_nobody_knows_is_refused_by_name(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    with pytest.raises(BadRequest, match=r"spec\.nodeSelektor"):
        await apply.create_pod(session, make_pod(owner, nodeSelektor={}), job_uid=owner.uid)


async def test_a_delete_with_another_uid_deletes_nothing(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    pod = await apply.create_pod(session, make_pod(owner), job_uid=owner.uid)
    assert await apply.delete_pod(session, jobs.namespace, pod.metadata.name, uid=owner.uid) is None
    assert await exists(session, f"/api/v1/namespaces/{jobs.namespace}/pods/{pod.metadata.name}")


async def test_a_bound_pod_is_leaving_after_our_delete_without_having_been_disrupted(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    pod = await apply.create_pod(session, make_pod(owner, nodeName="nowhere"), job_uid=owner.uid)
    leaving = await apply.delete_pod(session, jobs.namespace, pod.metadata.name, uid=pod.metadata.uid)
    assert leaving is not None
    assert leaving.metadata.deletion_grace_period_seconds == 30
    assert int(leaving.metadata.resource_version) > int(pod.metadata.resource_version)
    own = convert.own_pod(leaving, role="worker", index=0, requests={}, gpu_resources=())
    assert own.deleting_since is not None
    assert abs(own.deleting_since - session.api_time()) < 5
    assert own.disrupted == ""
    with pytest.raises(NameTaken, match="still being deleted"):
        await apply.create_pod(session, make_pod(owner), job_uid=owner.uid)


async def test_a_pod_deleted_by_force_is_gone(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    pod = await apply.create_pod(session, make_pod(owner, nodeName="nowhere"), job_uid=owner.uid)
    name, uid = pod.metadata.name, pod.metadata.uid
    assert await apply.delete_pod(session, jobs.namespace, name, uid=uid, grace_seconds=0) is None
    assert not await exists(session, f"/api/v1/namespaces/{jobs.namespace}/pods/{name}")
    assert await apply.delete_pod(session, jobs.namespace, name, uid=uid) is None


async def test_a_pod_that_waits_for_a_node_is_gone_at_once(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    pod = await apply.create_pod(session, make_pod(owner), job_uid=owner.uid)
    assert await apply.delete_pod(session, jobs.namespace, pod.metadata.name, uid=pod.metadata.uid) is None
    assert not await exists(session, f"/api/v1/namespaces/{jobs.namespace}/pods/{pod.metadata.name}")


async def test_a_pod_that_a_finalizer_keeps_is_not_gone(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    manifest = make_pod(owner)
    manifest["metadata"]["finalizers"] = ["example.com/kept"]
    pod = await apply.create_pod(session, manifest, job_uid=owner.uid)
    kept = await apply.delete_pod(session, jobs.namespace, pod.metadata.name, uid=pod.metadata.uid)
    assert kept is not None
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod.metadata.name}"
    await session.patch(path, {"metadata": {"finalizers": None}})
    assert not await exists(session, path)


async def test_an_eviction_is_a_disruption(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    pod = await apply.create_pod(session, make_pod(owner, nodeName="nowhere"), job_uid=owner.uid)
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod.metadata.name}"
    status = {"status": {"phase": "Running"}}
    await session.patch(f"{path}/status", status)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.metadata.name}}
    await session.post(f"{path}/eviction", eviction)
    evicted = apply.decode(await session.get(path), apply.Pod)
    assert convert.disruption(evicted).startswith("evicted, as by a drain of its node")


async def test_a_service_gets_its_address_and_its_endpoints_follow_the_master(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    service = await apply.ensure_service(session, build_service(owner), job_uid=owner.uid)
    again = await apply.ensure_service(session, build_service(owner), job_uid=owner.uid)
    assert service.spec.cluster_ip
    assert again == service
    for address in ("10.9.0.1", "10.9.0.1", "10.9.0.2", None):
        manifest = build_endpoint_slice(owner, service_ip=service.spec.cluster_ip, pod_ip=address)
        known = await apply.ensure_endpoint_slice(session, manifest, job_uid=owner.uid)
        addresses = [a for endpoint in known.endpoints or () for a in endpoint.addresses]
        assert addresses == ([address] if address else [])


async def test_a_status_is_written_once_and_what_it_no_longer_says_is_removed(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    revision = owner.job["metadata"]["resourceVersion"]
    first = {"replicas": 2, "gpus": 4, "retry": {"reason": "r", "notBefore": "2026-01-01T00:00:00Z", "attempt": 1}}
    written = await apply.patch_job_status(session, jobs.namespace, "toy", resource_version=revision, old={}, new=first)
    assert written is not None
    with pytest.raises(Conflict):
        await apply.patch_job_status(session, jobs.namespace, "toy", resource_version=revision, old={}, new=first)
    second = {"replicas": 3, "gpus": 4}
    revision = written["metadata"]["resourceVersion"]
    written = await apply.patch_job_status(
        session, jobs.namespace, "toy", resource_version=revision, old=written["status"], new=second
    )
    assert written is not None
    assert "retry" not in written["status"]
    assert written["status"]["replicas"] == 3
    assert written["metadata"]["generation"] == 1


async def test_a_job_is_deleted_only_by_its_own_uid(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    await apply.delete_job(session, jobs.namespace, "toy", uid="00000000-0000-0000-0000-000000000000")
    assert (await apply.get_job(session, jobs.namespace, "toy"))["metadata"]["uid"] == owner.uid
    await apply.delete_job(session, jobs.namespace, "toy", uid=owner.uid)
    with pytest.raises(NotFound):
        await apply.get_job(session, jobs.namespace, "toy")


async def test_events_are_told_on_the_job_and_counted(session: Session, jobs: Jobs):
    owner = make_owner(jobs)
    recorder = EventRecorder(session, instance="test")
    task = asyncio.create_task(recorder.run())
    for _ in range(3):
        recorder.record(jobs.namespace, "toy", owner.uid, Event("ScaledUp", "from 2 to 4 pods"))
        await recorder.flush()
    task.cancel()
    assert recorder.dropped == 0
    found = await session.get(f"/apis/events.k8s.io/v1/namespaces/{jobs.namespace}/events")
    (event,) = [item for item in found["items"] if item["reason"] == "ScaledUp"]
    assert event["series"]["count"] == 3
    assert event["regarding"]["uid"] == owner.uid
