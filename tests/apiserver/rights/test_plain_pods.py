"""Plain pods hold no more than their team is guaranteed, and evict nobody: by quotas and a rule of the API server's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from elastic_operator.build.resource_quota import QUOTA_NAME, build_resource_quota
from tests.api.jobs import make_container, with_gpus
from tests.apiserver.faults.lab import GPU, MERGE, World, await_service_account, elastic_job
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.rights import account
from tests.apiserver.rights.conftest import Estate, Install, Start
from tests.apiserver.rights.requests import refusals, uses
from tests.apiserver.rights.test_tenants import ALICE

pytestmark = pytest.mark.apiserver

Object = dict[str, Any]
ON = ("--set", "settings.plainPodQuota.enabled=true")
CLASSES_PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"
URGENT, POLITE, PLAIN, CHOSEN = "test-urgent", "test-polite", "test-plain", "test-chosen"
CLASSES: dict[str, Object] = {
    URGENT: {"value": 1000},
    POLITE: {"value": 1000, "preemptionPolicy": "Never"},
    PLAIN: {"value": 0},
    CHOSEN: {"value": 1000},
}
AS_ALICE = {"Impersonate-User": ALICE, "Impersonate-Group": "system:authenticated"}
HARD = f"requests.{GPU}"
DRY_RUN = {"dryRun": "All"}
EVICTS = "would evict pods of ElasticPyTorchJobs"


def quotas_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/resourcequotas"


def the_quota(world: World, namespace: str) -> Object:
    """The operator's there; empty if there is none."""
    answer = world.api.get(f"{quotas_of(namespace)}/{QUOTA_NAME}")
    found: Object = answer.json() if answer.is_success else {}
    return found


def wait_limits(world: World, **limits: int) -> None:
    """Until the API server holds pods to these limits, by namespace."""

    def held_to() -> bool:
        found = {name: the_quota(world, name).get("status", {}).get("hard", {}).get(HARD) for name in limits}
        return found == {name: str(limit) for name, limit in limits.items()}

    eventually(f"limits {limits}", held_to, report=lambda: str({name: the_quota(world, name) for name in limits}))


def plain_pod(world: World, name: str, *, namespace: str = "", gpus: int = 1) -> httpx.Response:
    """The answer to a plain pod of Alice's with so many GPUs, for kube-scheduler to place."""
    namespace = namespace or world.jobs.namespace
    await_service_account(world.api, namespace)
    body = {"metadata": {"name": name}, "spec": {"containers": [with_gpus(gpus, image="local/none:1")]}}
    return world.api.post(f"/api/v1/namespaces/{namespace}/pods", headers=AS_ALICE, json=body)


def bind_in(api: httpx.Client, namespace: str) -> None:
    """Alice may `edit` there, and the API server knows."""
    body = {
        "kind": "RoleBinding",
        "metadata": {"name": "alice-edits"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": ALICE, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    accepted(api.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", json=body))
    pods = f"/api/v1/namespaces/{namespace}/pods"
    eventually("the binding", lambda: api.get(pods, headers=AS_ALICE).is_success)


@pytest.fixture
def classes(estate: Estate) -> Iterator[None]:
    """Priority classes of the site's own."""
    for name, fields in CLASSES.items():
        estate.api.post(CLASSES_PATH, json={"metadata": {"name": name}, **fields}).raise_for_status()
    yield
    for name in CLASSES:
        estate.api.delete(f"{CLASSES_PATH}/{name}").raise_for_status()


def test_quotas_follow_policies_and_pods_and_come_back_and_each_right_over_them_is_used(
    install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start, watcher: Proxy
) -> None:
    installed = install(*ON)
    here, there, free = world.jobs.namespace, new_namespace().namespace, new_namespace().namespace
    for namespace in (here, there):
        bind_in(world.api, namespace)
    policies = Policies(world.api)
    policies.create("team", namespaces=[here, there], flavors=quota(2))
    start(PLAIN_POD_QUOTA__ENABLED="true")
    wait_limits(world, **{here: 2, there: 2})
    accepted(plain_pod(world, "one", namespace=there, gpus=2))
    wait_limits(world, **{here: 0, there: 2})
    assert f"exceeded quota: {QUOTA_NAME}" in plain_pod(world, "two").text
    made = the_quota(world, here)
    world.api.delete(f"{quotas_of(here)}/{QUOTA_NAME}").raise_for_status()
    eventually(
        "another", lambda: the_quota(world, here).get("metadata", {}).get("uid") not in (None, made["metadata"]["uid"])
    )
    policies.change("team", namespaces=[here])
    eventually("its end where no policy is", lambda: not the_quota(world, there))
    assert not the_quota(world, free)
    policies.delete("team")
    eventually("its end with the policy", lambda: not the_quota(world, here))
    assert refusals(watcher.log) == []
    granted = {right for right in installed.granted() if right.resource == "resourcequotas"}
    assert granted == {use.right for use in uses(watcher.log) if use.right.resource == "resourcequotas"}


@pytest.mark.extended
def test_nothing_is_written_in_namespaces_that_are_not_served(
    install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start, watcher: Proxy
) -> None:
    here, there = world.jobs.namespace, new_namespace().namespace
    install(*ON, "--set", f"settings.watchNamespaces={{{here}}}")
    Policies(world.api).create("team", namespaces=[here, there], flavors=quota(2))
    start(PLAIN_POD_QUOTA__ENABLED="true", WATCH_NAMESPACES=f"[{here}]")
    wait_limits(world, **{here: 2})
    world.start(elastic_job("toy", small=1, big=1))
    world.wait_settled("toy", 1)
    assert not the_quota(world, there)
    assert refusals(watcher.log) == []


def test_plain_pods_stay_within_their_teams_guarantee_and_another_team_gets_all_of_its_own(
    install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start
) -> None:
    """The team borrows for its jobs all the same: these give back."""
    install(*ON)
    bind_in(world.api, world.jobs.namespace)
    owner = World(new_namespace(), world.kubelets)
    policies = Policies(world.api)
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(2))
    policies.create("b", namespaces=[owner.jobs.namespace], flavors=quota(6))
    start(PLAIN_POD_QUOTA__ENABLED="true")
    wait_limits(world, **{world.jobs.namespace: 2, owner.jobs.namespace: 6})
    for name in ("one", "two"):
        accepted(plain_pod(world, name))
    assert f"exceeded quota: {QUOTA_NAME}" in plain_pod(world, "three").text
    world.start(elastic_job("borrower", small=1, big=8))
    world.wait_settled("borrower", 6)
    owner.start(elastic_job(small=6, big=6))
    owner.wait_settled("toy", 6)
    assert world.pods("borrower") == []
    assert {pod["metadata"]["name"] for pod in world.pods()} == {"one", "two"}


def test_a_tenant_cannot_write_the_quota_of_its_namespace(install: Install, world: World, start: Start) -> None:
    install(*ON)
    namespace = world.jobs.namespace
    bind_in(world.api, namespace)
    Policies(world.api).create("team", namespaces=[namespace], flavors=quota(2))
    start(PLAIN_POD_QUOTA__ENABLED="true")
    wait_limits(world, **{namespace: 2})
    path, more = f"{quotas_of(namespace)}/{QUOTA_NAME}", {"spec": {"hard": {HARD: "8"}}}
    assert world.api.get(path, headers=AS_ALICE).is_success
    refused = (
        world.api.patch(path, headers=MERGE | AS_ALICE, json=more),
        world.api.patch(f"{path}/status", headers=MERGE | AS_ALICE, json={"status": more["spec"]}),
        world.api.delete(path, headers=AS_ALICE),
        world.api.delete(quotas_of(namespace), headers=AS_ALICE),
        world.api.post(quotas_of(namespace), headers=AS_ALICE, json={"metadata": {"name": "mine"}, **more}),
    )
    assert [answer.status_code for answer in refused] == [403] * len(refused)


def test_no_pod_evicts_pods_of_jobs_unless_the_administrator_says_so(
    install: Install,
    world: World,
    classes: None,  # noqa: ARG001 - they only have to be there
) -> None:
    """In a namespace without a policy, and without GPUs, too: kube-scheduler evicts for CPU as it does for GPUs."""
    install(*ON, "--set", f"admission.preemptingClasses={{{CHOSEN}}}")
    for namespace in (world.jobs.namespace, "kube-system"):
        await_service_account(world.api, namespace)

    def answer(of_class: str, *, namespace: str = world.jobs.namespace, gpus: int = 0) -> str:
        container = with_gpus(gpus, image="local/none:1") if gpus else make_container(image="local/none:1")
        spec = {"containers": [container]} | ({"priorityClassName": of_class} if of_class else {})
        path = f"/api/v1/namespaces/{namespace}/pods"
        return world.api.post(path, params=DRY_RUN, json={"metadata": {"name": "probe"}, "spec": spec}).text

    eventually("the classes", lambda: not any("no PriorityClass" in answer(name) for name in CLASSES))
    eventually("the rule", lambda: EVICTS in answer(URGENT))
    for name in (URGENT, "system-node-critical", "system-cluster-critical"):
        assert EVICTS in answer(name, gpus=1), name
        assert EVICTS in answer(name), name
        assert EVICTS not in answer(name, namespace="kube-system"), name
    for name in ("", POLITE, PLAIN, CHOSEN):
        assert '"kind":"Pod"' in answer(name, gpus=1), name


def test_whoever_has_the_operators_token_writes_no_other_quota(estate: Estate, install: Install) -> None:
    install(*ON)
    path = quotas_of("default")
    right = build_resource_quota("default", {GPU: 1}, classes=["elastic-pytorch-worker", "elastic-pytorch-master"])
    spec = right["spec"]
    wrong = (
        right | {"metadata": {"name": "another"}},
        right | {"spec": {**spec, "hard": {"pods": "0"}}},
        right | {"spec": {"hard": spec["hard"]}},
    )
    told = "only write ResourceQuotas of its own name"
    with account.client_with(estate.cluster, estate.token) as thief:
        eventually("the rule", lambda: told in thief.post(path, params=DRY_RUN, json=wrong[0]).text)
        for body in wrong:
            assert told in thief.post(path, json=body).text, body
        accepted(thief.post(path, json=right))
        own = f"{path}/{QUOTA_NAME}"
        try:
            for body in wrong[1:]:
                assert told in thief.put(own, json=body).text, body
            accepted(estate.api.post(path, json={"metadata": {"name": "others"}, "spec": {"hard": {"pods": "1000"}}}))
            assert thief.delete(f"{path}/others").status_code == 403
            assert thief.put(f"{path}/others", json=right | {"metadata": {"name": "others"}}).status_code == 403
            assert thief.get(path).status_code == 403
            # What somebody else made of it may still go.
            accepted(estate.api.patch(own, headers=MERGE, json={"spec": {"hard": {"pods": "1000"}}}))
            accepted(thief.delete(own))
        finally:
            estate.api.delete(path)
