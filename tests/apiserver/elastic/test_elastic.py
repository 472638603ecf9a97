"""The operator's side of an Elastic job on a real API server: the Secret, who is told what, masters in a row."""

from __future__ import annotations

import base64

import pytest

from elastic_worker import contract
from tests.apiserver.elastic.conftest import ElasticWorld
from tests.apiserver.faults.lab import MERGE, remove
from tests.apiserver.operators import Operators, eventually

pytestmark = pytest.mark.apiserver


def test_the_pods_find_a_secret_that_is_made_once(operators: Operators, world: ElasticWorld) -> None:
    first = operators.start()
    world.begin()
    world.wait_settled("toy", 4)
    secret = world.secret()
    assert len(base64.b64decode(secret["data"][contract.SECRET_KEY])) >= 32
    assert [owner["name"] for owner in secret["metadata"]["ownerReferences"]] == ["toy"]
    world.delete_pod("toy-master-0")
    eventually("a new master", lambda: world.pod("master-0"), report=world.report)
    world.wait_settled("toy", 4)
    assert world.secret()["metadata"]["uid"] == secret["metadata"]["uid"]
    assert world.secret()["data"] == secret["data"]
    assert secret["data"][contract.SECRET_KEY] not in first.text()


def test_the_master_is_told_of_every_pod_that_comes_and_of_none_that_goes(
    operators: Operators, world: ElasticWorld
) -> None:
    operators.start()
    world.begin(big=3)
    world.wait_settled("toy", 3)
    eventually("the wish of three", world.is_told_of_all, report=world.wish)
    before = world.wish()
    assert (before["min"], before["max"], len(before["members"])) == (2, 3, 3)
    world.jobs.patch("toy", {"spec": {"maxReplicas": 2}})
    eventually("the wish of two", lambda: len(world.wish()["members"]) == 2, report=world.wish)
    world.wait_settled("toy", 2)
    assert world.is_told_of_all()
    assert world.wish()["wish"] > before["wish"]


def test_what_is_told_is_told_once(operators: Operators, world: ElasticWorld) -> None:
    operator = operators.start()
    world.begin()
    world.wait_settled("toy", 4)
    eventually("the wish of four", world.is_told_of_all, report=world.wish)
    wish = world.wish()["wish"]
    world.jobs.patch("toy", {"metadata": {"labels": {"look": "again"}}})
    operator.stop()
    second = operators.start()
    eventually("another leader", lambda: second.leads)
    world.jobs.patch("toy", {"metadata": {"labels": {"look": "once-more"}}})
    world.delete_pod("toy-worker-2")
    eventually("a wish with another pod", lambda: world.wish().get("wish", 0) > wish and world.is_told_of_all())
    assert world.wish()["wish"] <= wish + 2, "one without the lost pod, one with the new one"


def test_an_annotation_that_somebody_else_wrote_is_mended(operators: Operators, world: ElasticWorld) -> None:
    operators.start()
    world.begin()
    world.wait_settled("toy", 4)
    eventually("the wish of four", world.is_told_of_all, report=world.wish)
    known = world.wish()["wish"]
    body = {"metadata": {"annotations": {contract.ANNOTATION_MEMBERSHIP: '{"wish":1,"members":[]}'}}}
    world.api.patch(f"{world.pods_path}/toy-master-0", headers=MERGE, json=body).raise_for_status()
    eventually("the wish of four again", world.is_told_of_all, report=world.wish)
    assert world.wish()["wish"] > 1
    assert known >= 1


def test_a_lost_master_is_followed_by_another_and_the_workers_stay(operators: Operators, world: ElasticWorld) -> None:
    operators.start()
    world.begin()
    world.wait_settled("toy", 4)
    workers = {pod["metadata"]["uid"] for pod in world.pods("toy")} - {world.pod("master-0")["metadata"]["uid"]}
    assert world.annotation(contract.ANNOTATION_MASTER_EPOCH) == "1"
    world.delete_pod("toy-master-0")
    eventually("the second master", lambda: world.annotation(contract.ANNOTATION_MASTER_EPOCH) == "2")
    assert (world.status()["masterEpoch"], world.status()["incarnation"]) == (2, 1)
    world.wait_settled("toy", 4)
    eventually("the wish of four", world.is_told_of_all, report=world.wish)
    assert workers < {pod["metadata"]["uid"] for pod in world.pods("toy")}
    eventually("no master is missing", lambda: "masterLostTime" not in world.status(), report=world.report)
    assert world.status()["failures"] == 0


def test_a_master_that_fails_is_followed_by_another_and_a_worker_that_fails_is_replaced(
    operators: Operators, world: ElasticWorld
) -> None:
    operators.start()
    world.begin()
    world.wait_settled("toy", 4)
    world.end("toy-worker-1", 1)
    eventually("the loss", lambda: world.status().get("restarts") == 1, report=world.report)
    world.wait_settled("toy", 4)
    world.end("toy-master-0", 1)
    eventually("the second master", lambda: world.annotation(contract.ANNOTATION_MASTER_EPOCH) == "2")
    world.wait_settled("toy", 4)
    assert world.status()["incarnation"] == 1


def test_a_launcher_that_asks_not_to_be_tried_again_ends_the_job(operators: Operators, world: ElasticWorld) -> None:
    operators.start()
    world.begin()
    world.wait_settled("toy", 4)
    world.end("toy-worker-0", contract.EXIT_DO_NOT_RETRY)

    def failed() -> str:
        conditions = world.status().get("conditions", [])
        return next((c["reason"] for c in conditions if c["type"] == "Failed" and c["status"] == "True"), "")

    assert eventually("the end", failed, report=world.report) == "RestartLimitReached"
    assert world.status()["incarnation"] == 1


def test_what_the_api_server_refuses_would_be_seen_here(operators: Operators, world: ElasticWorld) -> None:
    """With a read-only root and a command, every field that Elastic mode adds is sent, strictly checked."""
    operators.start()
    container = {
        "name": "main",
        "image": "local/none:1",
        "command": ["bash", "launch.sh"],
        "securityContext": {"readOnlyRootFilesystem": True},
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    world.begin(master={"template": {"spec": {"containers": [container]}}})
    world.wait_settled("toy", 4)
    mounted = {mount["mountPath"] for mount in world.pod("master-0")["spec"]["containers"][0]["volumeMounts"]}
    assert {contract.INJECT_FOLDER, contract.WISH_FOLDER} < mounted


def test_a_master_whose_node_is_gone_gets_the_place_of_the_highest_worker(
    operators: Operators, world: ElasticWorld
) -> None:
    operators.start()
    world.begin(big=8)
    world.wait_settled("toy", 8)
    eventually("the wish of eight", world.is_told_of_all, report=world.wish)
    node = world.pod("master-0")["spec"]["nodeName"]
    staying = [pod for pod in world.pods("toy") if pod["spec"]["nodeName"] != node]
    world.kubelets.nodes.remove(node)
    world.api.delete(f"/api/v1/nodes/{node}").raise_for_status()
    for pod in world.pods("toy"):
        if pod["spec"]["nodeName"] == node:
            remove(world.api, pod)
    world.wait_settled("toy", 4, seconds=90)
    assert world.annotation(contract.ANNOTATION_MASTER_EPOCH) == "2"
    names = {pod["metadata"]["name"] for pod in staying}
    highest = max(names, key=lambda name: int(name.rpartition("-")[2]))
    assert {pod["metadata"]["name"] for pod in world.pods("toy")} == names - {highest} | {"toy-master-0"}
    assert world.status()["incarnation"] == 1
    eventually("the wish of four", world.is_told_of_all, report=world.wish)
