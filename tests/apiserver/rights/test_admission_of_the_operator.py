"""Whoever has the token of the operator's account can write nothing but what belongs to jobs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.jobs import make_job
from tests.apiserver.faults.lab import MERGE, STRATEGIC
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually
from tests.apiserver.rights import account
from tests.apiserver.rights.conftest import Estate, Install

pytestmark = pytest.mark.apiserver

Object = dict[str, Any]
CORE = "/api/v1/namespaces/default"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
POD = {"containers": [{"name": "main", "image": "local/none:1"}], "schedulerName": "nobody"}
KINDS: dict[str, tuple[str, Object]] = {
    "pods": (f"{CORE}/pods", {"spec": POD}),
    "secrets": (f"{CORE}/secrets", {}),
    "services": (f"{CORE}/services", {"spec": {"ports": [{"port": 80}]}}),
    "endpointslices": (SLICES, {"addressType": "IPv4", "endpoints": []}),
}


@pytest.fixture(scope="module")
def thief(estate: Estate, install: Install) -> Iterator[httpx.Client]:
    """Somebody who has the token; the chart is installed, and its policies are in force."""
    install()
    eventually("the account", lambda: estate.api.get(f"{CORE}/serviceaccounts/default").is_success)
    with account.client_with(estate.cluster, estate.token) as client:
        path, body = KINDS["pods"]
        eventually("the policy", lambda: "controls" in client.post(path, json=body | named("probe")).text)
        yield client
    for path in (Jobs(estate.api, "default").path, KINDS["pods"][0]):
        estate.api.delete(path)


@pytest.fixture(scope="module")
def owner(estate: Estate, thief: httpx.Client) -> Object:  # noqa: ARG001 - it only has to be there
    """A reference to a job that there is."""
    made = accepted(Jobs(estate.api, "default").create(make_job(f"toy-{uuid.uuid4().hex[:4]}")))
    meta = made["metadata"]
    return {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def named(name: str = "", owner: Object | None = None) -> Object:
    """Metadata of a new object."""
    owners = {"ownerReferences": [owner]} if owner else {}
    return {"metadata": {"name": name or f"x-{uuid.uuid4().hex[:6]}", **owners}}


def said(answer: httpx.Response) -> str:
    """Why it is refused."""
    assert answer.is_client_error, answer.text
    text: str = answer.json()["message"]
    return text


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_made_but_what_a_job_controls(thief: httpx.Client, owner: Object, kind: str) -> None:
    path, body = KINDS[kind]
    pod = owner | {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    for wrong in (named(), named(owner=owner | {"controller": False}), named(owner=pod)):
        assert "only write what an ElasticPyTorchJob controls" in said(thief.post(path, json=body | wrong))
    accepted(thief.post(path, json=body | named(owner=owner)))


def test_no_pod_of_others_is_deleted_or_patched(estate: Estate, thief: httpx.Client) -> None:
    path, body = KINDS["pods"]
    accepted(estate.api.post(path, json=body | named("others")))
    assert "controls" in said(thief.delete(f"{path}/others"))
    change = {"metadata": {"annotations": {"a": "b"}}}
    assert "controls" in said(thief.patch(f"{path}/others", headers=MERGE, json=change))


def test_of_a_jobs_pod_nothing_but_annotations_is_changed(thief: httpx.Client, owner: Object) -> None:
    path, body = KINDS["pods"]
    accepted(thief.post(path, json=body | named("own", owner)))
    own = f"{path}/own"
    accepted(thief.patch(own, headers=MERGE, json={"metadata": {"annotations": {"a": "b"}}}))
    image = {"spec": {"containers": [{"name": "main", "image": "evil:1"}]}}
    for change in (image, {"metadata": {"labels": {"a": "b"}}}, {"metadata": {"finalizers": ["example.com/keep"]}}):
        assert "nothing but annotations" in said(thief.patch(own, headers=STRATEGIC, json=change))
    assert said(thief.patch(own, headers=MERGE, json={"metadata": {"ownerReferences": None}}))
    accepted(thief.delete(own))


def test_of_the_status_of_foreign_pods_only_the_nomination_is_written(estate: Estate, thief: httpx.Client) -> None:
    path, body = KINDS["pods"]
    accepted(estate.api.post(path, json=body | named("foreign")))
    status = f"{path}/foreign/status"
    condition = {"type": "example.com/Told", "status": "True"}
    accepted(thief.patch(status, headers=MERGE, json={"status": {"nominatedNodeName": "n1"}}))
    accepted(
        thief.patch(status, headers=MERGE, json={"status": {"nominatedNodeName": None, "conditions": [condition]}})
    )
    for change in ({"phase": "Failed"}, {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}, {"message": "x"}):
        assert "nothing but the nomination" in said(thief.patch(status, headers=MERGE, json={"status": change}))
    added = {"sidecar.example/inject": "true"}
    for change in ({"labels": {"app": "database"}}, {"annotations": added}):
        assert "no labels and annotations" in said(thief.patch(status, headers=MERGE, json={"metadata": change}))
    accepted(estate.api.patch(f"{path}/foreign", headers=MERGE, json={"metadata": {"annotations": {"a": "b"}}}))
    removed = {"metadata": {"annotations": {"a": None}}}
    assert "no labels and annotations" in said(thief.patch(status, headers=MERGE, json=removed))
    accepted(thief.patch(status, headers=MERGE, json={"status": {"nominatedNodeName": "n1"}}))


def test_others_may_still_write_what_they_like(estate: Estate) -> None:
    for path, body in KINDS.values():
        accepted(estate.api.post(path, json=body | named()))
