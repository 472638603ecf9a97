"""Each job has a NetworkPolicy where the settings say so, with no more rights than that takes."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_worker import contract
from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import eventually
from tests.apiserver.rights.conftest import Install, Start
from tests.apiserver.rights.requests import refusals, uses

pytestmark = pytest.mark.apiserver

ON = ("--set", "settings.jobNetworkPolicy.enabled=true")
STORAGE = "[{to: [{ipBlock: {cidr: 10.1.0.0/16}}], ports: [{port: 2049}]}, {to: [{podSelector: {}}]}]"


def collection(world: World) -> str:
    return f"/apis/networking.k8s.io/v1/namespaces/{world.jobs.namespace}/networkpolicies"


def policy(world: World, job: str = "toy") -> dict[str, Any]:
    """The job's; empty if there is none."""
    answer = world.api.get(f"{collection(world)}/{job}-master")
    found: dict[str, Any] = answer.json() if answer.is_success else {}
    return found


def test_a_job_has_one_before_its_pods_and_it_follows_the_settings(
    install: Install, world: World, start: Start, watcher: Proxy
) -> None:
    installed = install(*ON)
    first = start(JOB_NETWORK_POLICY__ENABLED="true")
    world.start(elastic_job("toy", small=1, big=1))
    world.wait_settled("toy", 1)
    made = policy(world)
    assert made["spec"]["policyTypes"] == ["Ingress"]
    [pod] = world.pods("toy")
    assert made["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    written = [entry.request.path for entry in watcher.log if entry.request.method == "POST"]
    assert written.index(collection(world)) < written.index(world.pods_path)
    first.stop()
    second = start(JOB_NETWORK_POLICY__ENABLED="true", JOB_NETWORK_POLICY__EGRESS=STORAGE)
    eventually("what the settings say now", lambda: "egress" in policy(world).get("spec", {}), report=second.text)
    assert policy(world)["metadata"]["uid"] == made["metadata"]["uid"]
    second.stop()
    before = policy(world)["metadata"]["resourceVersion"]
    third = start(JOB_NETWORK_POLICY__ENABLED="true", JOB_NETWORK_POLICY__EGRESS=STORAGE)
    eventually("another leader", lambda: third.leads)
    world.jobs.patch("toy", {"spec": {"maxReplicas": 2}})
    world.wait_settled("toy", 2)
    assert policy(world)["metadata"]["resourceVersion"] == before, "what is as it should be is not written"
    assert refusals(watcher.log) == []
    networks = {right for right in installed.granted() if right.group == "networking.k8s.io"}
    assert networks == {use.right for use in uses(watcher.log) if use.right.group == "networking.k8s.io"}
    world.delete_job("toy")
    eventually("its end with the job", lambda: not policy(world))


def test_a_foreign_policy_of_that_name_is_left_alone_and_reported(install: Install, world: World, start: Start) -> None:
    install(*ON)
    theirs = {"metadata": {"name": "toy-master"}, "spec": {"podSelector": {}}}
    accepted(world.api.post(collection(world), json=theirs))
    start(JOB_NETWORK_POLICY__ENABLED="true")
    world.start(elastic_job("toy", small=1, big=1))

    def told() -> bool:
        return any("NetworkPolicy toy-master exists" in c["message"] for c in world.status().get("conditions", ()))

    eventually("a word of it", told, report=world.report)
    assert not world.pods("toy")
    assert policy(world)["spec"]["podSelector"] == {}
    world.api.delete(f"{collection(world)}/toy-master").raise_for_status()
    world.wait_settled("toy", 1)
    assert policy(world)["metadata"]["labels"][contract.LABEL_JOB_NAME] == "toy"
