"""Writes that are late, repeated or made in ignorance do no harm, and say so when a name is another's."""

from __future__ import annotations

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.cluster import api_requests, pod_requests
from elastic_operator.cluster.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    NameTaken,
    NotFound,
    RetryPolicy,
)
from elastic_operator.cluster.objects import CustomObject, Pod, decode
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.write_queue import Urgency
from elastic_worker.contract import LABEL_INCARNATION
from tests.cluster_unit.build import owner, pod_dict
from tests.cluster_unit.fake_api import json, status
from tests.kit.requests import DENIED, conflict
from tests.simulate.server import merged

PODS = "/api/v1/namespaces/a/pods"
SERVICES = "/api/v1/namespaces/a/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices"
NETWORK_POLICIES = "/apis/networking.k8s.io/v1/namespaces/a/networkpolicies"
RESOURCE_QUOTAS = "/api/v1/namespaces/a/resourcequotas"
JOB = "/apis/elastic-pytorch.dev/v1beta1/namespaces/a/elasticpytorchjobs/toy"
DELETED_AT = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def manifest(name: str = "toy-worker-0", **fields) -> dict:
    body = {"apiVersion": "v1", "kind": "Pod", **pod_dict(name, owners=(owner(),), **fields)}
    del body["metadata"]["resourceVersion"]
    return body


def service(**meta) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "toy-master", "namespace": "a", "ownerReferences": [owner()], **meta},
        "spec": {"clusterIP": "10.0.0.7"},
    }


def endpoint_slice(*addresses: str, port: int = 29400) -> dict:
    endpoints = [{"addresses": [address]} for address in addresses]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "toy-master", "namespace": "a", "ownerReferences": [owner()]},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"port": port}],
    }


def secret(token: str) -> dict:
    meta = {"name": "toy-elastic", "namespace": "a"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": token}}


def resource_quota() -> dict:
    meta = {"name": "plain-pods", "namespace": "a"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": "1"}}}


def network_policy() -> dict:
    meta = {"name": "toy", "namespace": "a", "ownerReferences": [owner()]}
    spec = {"podSelector": {"matchLabels": {"job": "toy"}}}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}


async def test_a_pod_is_created_under_strict_validation(api, session):
    pod = await pod_requests.create_pod(session, manifest())
    assert pod.metadata.resource_version == str(api.server.revision)
    assert api.seen[0][2] == {"fieldValidation": "Strict"}


async def test_a_pod_that_is_there_already_and_ours_is_created(session):
    first = await pod_requests.create_pod(session, manifest())
    assert await pod_requests.create_pod(session, manifest()) == first


@pytest.mark.parametrize(
    ("there", "message"),
    [
        (pod_dict(), "has no owner. Delete that Pod, or give the job another name."),
        (pod_dict(owners=(owner("x", kind="ReplicaSet", name="web"),)), "belongs to ReplicaSet web"),
        (pod_dict(owners=(owner(controller=False),)), "has no owner"),
        (pod_dict(owners=(owner("old-uid"),)), "belongs to ElasticPyTorchJob toy"),
        (pod_dict(owners=(owner("old-uid"),), **DELETED_AT), "still being deleted"),
        (pod_dict(owners=(owner(),), **DELETED_AT), "still being deleted"),
    ],
)
async def test_a_name_that_another_holds_is_reported_in_words(api, session, there, message):
    api.put(f"{PODS}/toy-worker-0", there | {"metadata": there["metadata"] | {"name": "toy-worker-0"}})
    with pytest.raises(NameTaken, match=f"^Pod toy-worker-0 .*{message}"):
        await pod_requests.create_pod(session, manifest())


async def test_a_name_freed_between_the_refusal_and_the_look_is_taken_for_now(api, session):
    api.fail("POST", status(409, "AlreadyExists"))
    with pytest.raises(NameTaken, match=r"^Pod toy-worker-0 was only just deleted\.$"):
        await pod_requests.create_pod(session, manifest())


async def test_a_refused_manifest_is_the_caller_s_to_report(api, session):
    api.fail("POST", 400)
    with pytest.raises(BadRequest):
        await pod_requests.create_pod(session, manifest())


@pytest.mark.parametrize("stored", ["", "7"])
async def test_a_pod_whose_incarnation_a_webhook_changes_is_refused_and_does_not_stay(api, session, stored):
    def admit(_request, _plural, body):
        body["metadata"]["labels"] = {LABEL_INCARNATION: stored}

    api.memory.admission.append(admit)
    for send in (pod_requests.create_pod, pod_requests.try_pod):
        with pytest.raises(
            Forbidden, match=f"gets '{stored}' in place of '2' in its label {LABEL_INCARNATION}: a mutating"
        ):
            await send(session, manifest(labels={LABEL_INCARNATION: "2"}))
        assert api.find(f"{PODS}/toy-worker-0") is None
    assert [method for method, *_ in api.seen] == ["POST", "DELETE", "POST"], "a dry run creates nothing to delete"


async def test_a_changed_incarnation_is_told_although_the_pod_cannot_be_deleted(api, session):
    api.memory.admission.append(lambda _request, _plural, body: body["metadata"].pop("labels", None))
    api.fail("DELETE", 403)
    with pytest.raises(Forbidden, match=f"in its label {LABEL_INCARNATION}"):
        await pod_requests.create_pod(session, manifest(labels={LABEL_INCARNATION: "2"}))


async def test_a_pod_is_deleted_only_if_it_is_the_one_meant(api, session):
    pod = await pod_requests.create_pod(session, manifest())
    assert await pod_requests.delete_pod(session, "a", "toy-worker-0", uid="another") is None
    assert api.find(f"{PODS}/toy-worker-0")
    assert await pod_requests.delete_pod(session, "a", "toy-worker-0", uid=pod.metadata.uid) is None
    assert not api.find(f"{PODS}/toy-worker-0")
    assert await pod_requests.delete_pod(session, "a", "toy-worker-0", uid=pod.metadata.uid) is None


async def test_a_conflict_that_is_not_of_the_precondition_is_an_error_like_others(api, session):
    """A Conflict is tried again at once, and this one comes again."""
    told = {"kind": "Status", "message": DENIED, "reason": "Conflict", "code": 409}
    for delete in (pod_requests.delete_pod, api_requests.delete_resource_quota):
        api.fail("DELETE", json(told, code=409))
        with pytest.raises(ApiError, match="not now") as raised:
            await delete(session, "a", "p", uid="uid-p")
        assert not isinstance(raised.value, Conflict)


CHANGES = {
    "status of a job": lambda session: api_requests.patch_job_status(
        session, "a", "toy", resource_version="1", stored_status={}, new={"replicas": 1}
    ),
    "annotation": lambda session: pod_requests.annotate_pod(
        session, "a", "p", uid="uid-p", resource_version="1", annotations={"b": "2"}
    ),
    "nomination": lambda session: pod_requests.nominate_pod(
        session, decode(pod_dict("p"), Pod), "n1", {"type": "PodScheduled"}, urgency=Urgency.CHANGE
    ),
    "status of a policy": lambda session: api_requests.patch_policy_status(
        session, decode({"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"}}, CustomObject), {"used": 1}
    ),
    "quota": lambda session: api_requests.write_resource_quota(
        session,
        resource_quota(),
        known=decode({"metadata": {"name": "plain-pods", "uid": "u", "resourceVersion": "1"}}, CustomObject),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(
    ("message", "is_conflict"),
    [
        (conflict('pods "denied"'), True),
        (conflict('pods "p"', "Precondition failed: UID in precondition: 1, UID in object meta: 2"), True),
        (DENIED, False),
        ('admission webhook "w" denied the request: ' + conflict('pods "p"'), False),
        ("no message", False),
    ],
    ids=["version", "uid", "webhook", "webhook with a conflict of its own", "proxy"],
)
async def test_only_a_conflict_about_the_version_or_the_uid_is_decided_on_again_at_once(
    api, session, change, message, is_conflict
):
    refusal = json({"kind": "Status", "message": message, "reason": "Conflict", "code": 409}, code=409)
    api.fail("PATCH", refusal)
    api.fail("PUT", refusal)
    with pytest.raises(ApiError) as raised:
        await change(session)
    assert isinstance(raised.value, Conflict) is is_conflict
    assert raised.value.retry_policy.is_reported is not is_conflict


async def test_a_resource_quota_is_deleted_only_if_it_is_the_one_meant(api, session):
    quota = await api_requests.write_resource_quota(session, resource_quota(), known=None)
    for uid, is_left in (("another", True), (quota.metadata.uid, False), (quota.metadata.uid, False)):
        await api_requests.delete_resource_quota(session, "a", quota.metadata.name, uid=uid)
        assert bool(api.find(f"{RESOURCE_QUOTAS}/{quota.metadata.name}")) is is_left


@pytest.mark.parametrize(
    ("message", "policy"),
    [
        (conflict('resourcequotas "gpus"'), RetryPolicy.RETRY),
        (DENIED, RetryPolicy.RETRY_UNTIL_FIXED),
        ("no message", RetryPolicy.RETRY_UNTIL_FIXED),
    ],
    ids=["quota", "webhook", "proxy"],
)
async def test_a_conflict_of_a_creation_may_pass_only_if_it_is_the_api_server_s_own(api, session, message, policy):
    """The admission of quotas answers with one where many objects come at once. Nothing has changed then."""
    refusal = {"kind": "Status", "message": message, "reason": "Conflict", "code": 409}
    for creation in (
        pod_requests.create_pod(session, manifest()),
        pod_requests.try_pod(session, manifest()),
        api_requests.ensure_secret(session, secret("first")),
        api_requests.ensure_service(session, service()),
        api_requests.write_resource_quota(session, resource_quota(), known=None),
    ):
        api.fail("POST", json(refusal, code=409))
        with pytest.raises(ApiError) as raised:
            await creation
        assert raised.value.retry_policy is policy


async def test_a_pod_that_stays_for_its_grace_or_a_finalizer_is_told(api, session):
    for kept in ({"deletionGracePeriodSeconds": 30}, {"deletionGracePeriodSeconds": 0, "finalizers": ["x"]}):
        api.fail("DELETE", json(pod_dict("p", **DELETED_AT, **kept)))
        pod = await pod_requests.delete_pod(session, "a", "p", uid="uid-p")
        assert pod.metadata.deletion_timestamp is not None


@pytest.mark.parametrize("answer", [{"kind": "Status", "status": "Success", "metadata": {}}, pod_dict("p")])
async def test_a_pod_that_somebody_else_deleted_at_the_same_moment_is_gone(api, session, answer):
    answer = {**answer, "metadata": {k: v for k, v in answer["metadata"].items() if k != "resourceVersion"}}
    api.fail("DELETE", json(answer))
    assert await pod_requests.delete_pod(session, "a", "p", uid="uid-p") is None


async def test_the_grace_is_the_pod_s_own_unless_it_is_deleted_by_force(api, session):
    await pod_requests.delete_pod(session, "a", "p", uid="u")
    await pod_requests.delete_pod(session, "a", "p", uid="u", grace_seconds=0)
    assert [body.get("gracePeriodSeconds") for *_, body in api.seen] == [None, 0]


async def test_a_service_is_created_once_and_told_with_its_address(api, session):
    for _ in range(2):
        ensured = await api_requests.ensure_service(session, service())
        assert ensured.spec.cluster_ip == "10.0.0.7"
    assert [verb for verb, *_ in api.seen] == ["POST", "POST", "GET"]


async def test_a_service_that_is_there_is_found_where_a_quota_refuses_another_one(api, session):
    made = await api_requests.ensure_service(session, service())
    api.fail("POST", 403)
    assert await api_requests.ensure_service(session, service()) == made


async def test_a_service_that_a_quota_refuses_is_refused(api, session):
    api.fail("POST", 403)
    with pytest.raises(Forbidden):
        await api_requests.ensure_service(session, service())
    assert api.find(f"{SERVICES}/toy-master") is None


async def test_a_service_that_goes_between_two_looks_is_created(api, session):
    api.fail("POST", status(409, "AlreadyExists"))
    ensured = await api_requests.ensure_service(session, service())
    assert ensured.spec.cluster_ip == "10.0.0.7"
    assert [verb for verb, *_ in api.seen] == ["POST", "GET", "POST"]


async def test_a_service_of_that_name_that_is_another_s_is_left_alone(api, session):
    api.put(f"{SERVICES}/toy-master", service(ownerReferences=[]))
    left = r"Service toy-master exists and has no owner. .* left behind: `kubectl -n \S+ delete pods,services,"
    with pytest.raises(NameTaken, match=left):
        await api_requests.ensure_service(session, service())


async def test_an_endpoint_slice_is_written_only_when_its_address_or_its_port_differs(api, session):
    known = None
    for wanted in (*map(endpoint_slice, ("10.1.0.1", "10.1.0.1", "10.1.0.2")), *[endpoint_slice(port=20004)] * 2):
        known = await api_requests.ensure_endpoint_slice(session, wanted, known=known)
    assert [verb for verb, *_ in api.seen] == ["POST", "PUT", "PUT"]
    assert api.find(f"{SLICES}/toy-master")["endpoints"] == []


async def test_an_endpoint_slice_with_a_wrong_node_is_written_again(api, session):
    known = None
    for node in ("n1", "n1", "n2"):  # a new master may have the address of the last one, on another node
        wanted = endpoint_slice("10.1.0.1")
        wanted["endpoints"][0]["nodeName"] = node
        known = await api_requests.ensure_endpoint_slice(session, wanted, known=known)
    assert [verb for verb, *_ in api.seen] == ["POST", "PUT"]


async def test_an_unseen_endpoint_slice_is_found_and_written_only_if_it_differs(api, session):
    for address in ("10.1.0.1", "10.1.0.1", "10.1.0.2"):
        await api_requests.ensure_endpoint_slice(session, endpoint_slice(address))
    assert [verb for verb, *_ in api.seen] == ["POST", "POST", "GET", "POST", "GET", "PUT"]


async def test_an_endpoint_slice_that_was_seen_long_ago_is_looked_at_again(api, session):
    old = await api_requests.ensure_endpoint_slice(session, endpoint_slice("10.1.0.1"))
    await api_requests.ensure_endpoint_slice(session, endpoint_slice("10.1.0.2"), known=old)
    await api_requests.ensure_endpoint_slice(session, endpoint_slice("10.1.0.3"), known=old)
    assert api.find(f"{SLICES}/toy-master")["endpoints"] == [{"addresses": ["10.1.0.3"]}]
    api.remove(f"{SLICES}/toy-master")
    await api_requests.ensure_endpoint_slice(session, endpoint_slice("10.1.0.3"), known=old)
    assert api.find(f"{SLICES}/toy-master")["endpoints"] == [{"addresses": ["10.1.0.3"]}]


async def test_an_endpoint_slice_that_is_another_s_by_now_is_left_alone(api, session):
    old = await api_requests.ensure_endpoint_slice(session, endpoint_slice("10.1.0.1"))
    api.put(f"{SLICES}/toy-master", {**endpoint_slice("10.1.0.9"), "metadata": {"ownerReferences": []}})
    with pytest.raises(NameTaken):
        await api_requests.ensure_endpoint_slice(session, endpoint_slice("10.1.0.2"), known=old)
    assert api.find(f"{SLICES}/toy-master")["endpoints"] == [{"addresses": ["10.1.0.9"]}]


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_network_policy_is_created_or_found_whatever_is_expected(is_new, api, session):
    for _ in range(2):
        await api_requests.ensure_network_policy(session, network_policy(), is_new=is_new)
    expected = ["POST", "POST", "GET"] if is_new else ["GET", "POST", "GET"]
    assert [verb for verb, *_ in api.seen] == expected
    api.put(f"{NETWORK_POLICIES}/toy", {**network_policy(), "spec": {"podSelector": {"matchLabels": {"a": "b"}}}})
    await api_requests.ensure_network_policy(session, network_policy(), is_new=is_new)
    assert api.find(f"{NETWORK_POLICIES}/toy")["spec"] == network_policy()["spec"]


async def test_an_endpoint_slice_that_changed_meanwhile_is_not_overwritten(api, session):
    await api_requests.ensure_endpoint_slice(session, endpoint_slice("10.1.0.1"))
    now = api.find(f"{SLICES}/toy-master")
    api.fail("GET", json({**now, "metadata": {**now["metadata"], "resourceVersion": "1"}}))
    with pytest.raises(Conflict):
        await api_requests.ensure_endpoint_slice(session, endpoint_slice("10.1.0.2"))


async def test_a_status_patch_has_the_differences_and_requires_the_state_it_was_decided_on(api, session):
    job = api.put(JOB, {"spec": {}, "status": {"replicas": 1, "retry": {"attempt": 1}}})
    old, rv = job["status"], job["metadata"]["resourceVersion"]
    new = {"replicas": 2, "gpus": 4}
    answer = await api_requests.patch_job_status(session, "a", "toy", resource_version=rv, stored_status=old, new=new)
    assert answer["status"] == new
    assert api.seen[-1][3]["status"] == {"replicas": 2, "gpus": 4, "retry": None}
    with pytest.raises(Conflict):
        await api_requests.patch_job_status(session, "a", "toy", resource_version=rv, stored_status=old, new=new)


async def test_a_status_that_is_as_wanted_costs_no_request(api, session):
    same = {"replicas": 1, "conditions": [{"type": "Ready"}]}
    args = {"resource_version": "1", "stored_status": same, "new": {**same}}
    assert await api_requests.patch_job_status(session, "a", "toy", **args) is None
    assert not api.seen


async def test_the_status_of_a_job_that_is_gone_is_not_found(session):
    with pytest.raises(NotFound):
        await api_requests.patch_job_status(
            session, "a", "toy", resource_version="1", stored_status={}, new={"replicas": 1}
        )


async def test_a_pod_is_annotated_as_it_was_seen_and_keeps_its_other_annotations(api, session):
    made = await pod_requests.create_pod(session, manifest(annotations={"a": "1"}))
    known = {"uid": made.metadata.uid, "resource_version": made.metadata.resource_version}
    pod = await pod_requests.annotate_pod(session, "a", "toy-worker-0", **known, annotations={"b": "2"})
    assert api.find(f"{PODS}/toy-worker-0")["metadata"]["annotations"] == {"a": "1", "b": "2"}
    assert api.seen[-1][3]["metadata"]["uid"] == made.metadata.uid
    assert await pod_requests.pod_now(session, Store(), made.metadata) == pod
    with pytest.raises(Conflict):
        await pod_requests.annotate_pod(session, "a", "toy-worker-0", **known, annotations={"b": "3"})
    with pytest.raises(NotFound):
        await pod_requests.annotate_pod(session, "a", "toy-worker-1", **known, annotations={"b": "3"})


async def test_a_secret_is_created_once_and_never_read(api, session):
    for token in ("first", "second"):
        await api_requests.ensure_secret(session, secret(token))
    assert api.find("/api/v1/namespaces/a/secrets/toy-elastic")["stringData"] == {"token": "first"}
    assert [verb for verb, *_ in api.seen] == ["POST", "POST"]


values = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@given(objects, objects)
def test_the_difference_of_two_statuses_makes_the_one_into_the_other(old, new):
    assert merged(old, api_requests.merge_diff(old, new)) == new
    assert api_requests.merge_diff(new, new) == {}


async def test_a_job_is_deleted_only_if_it_is_the_one_meant_and_its_pods_after_it(api, session):
    job = api.put(JOB, {})
    with pytest.raises(Conflict):
        await api_requests.delete_job(session, "a", "toy", uid="re-created")
    assert api.find(JOB)
    assert await api_requests.delete_job(session, "a", "toy", uid=job["metadata"]["uid"]) is None
    assert await api_requests.delete_job(session, "a", "toy", uid=job["metadata"]["uid"]) is None
    assert not api.find(JOB)
    assert api.seen[-1][3]["propagationPolicy"] == "Background"


async def test_the_end_of_a_log_is_read_and_cut_at_its_front(api, session):
    api.fail("GET", web.Response(body=b"x" * 50 + "é end".encode()))
    assert (await pod_requests.read_log_tail(session, "a", "p", "c", lines=100, max_bytes=5)).endswith(" end")
    assert api.seen[0][1] == f"{PODS}/p/log"
    assert api.seen[0][2]["tailLines"] == "100"
