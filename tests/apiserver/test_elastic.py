"""A real API server takes what the operator writes for an Elastic job. All else: `tests/virtual/test_elastic.py`."""

from __future__ import annotations

import base64

import pytest

from elastic_operator.build.names import secret_name
from elastic_worker import contract
from tests.api.jobs import with_gpus
from tests.apiserver.faults.lab import MERGE, World, elastic_job
from tests.apiserver.operators import Operators, eventually

pytestmark = pytest.mark.apiserver


def test_elastic_pod_fields_are_sent_and_foreign_edits_reverted(operators: Operators, world: World) -> None:
    """With a read-only root and a command, all that there is to add is added, and strictly checked."""
    operator = operators.start()
    job = elastic_job(small=2, big=4)
    job["spec"]["runtime"] = {"mode": "Elastic"}
    job["spec"]["elasticity"]["checkpointPath"] = "/checkpoints"
    container = with_gpus(1, image="local/none:1", command=["bash", "launch.sh"])
    container["securityContext"] = {"readOnlyRootFilesystem": True}
    job["spec"]["master"] = {"template": {"spec": {"containers": [container]}}}
    world.start(job)
    world.wait_settled("toy", 4)

    def master() -> dict:
        return next(pod for pod in world.pods("toy") if pod["metadata"]["name"] == "toy-master-0")

    def membership() -> str:
        return master()["metadata"]["annotations"].get(contract.ANNOTATION_MEMBERSHIP, "")

    mounted = {mount["mountPath"] for mount in master()["spec"]["containers"][0]["volumeMounts"]}
    assert {contract.INJECT_FOLDER, contract.MEMBERSHIP_FOLDER} < mounted
    name = secret_name("toy", world.jobs.get("toy")["metadata"]["uid"])
    secret = world.api.get(f"/api/v1/namespaces/{world.jobs.namespace}/secrets/{name}").raise_for_status().json()
    assert len(base64.b64decode(secret["data"][contract.SECRET_KEY])) >= 32
    assert [owner["name"] for owner in secret["metadata"]["ownerReferences"]] == ["toy"]
    assert secret["data"][contract.SECRET_KEY] not in operator.text()
    eventually("the membership of four", lambda: membership().count('"uid"') == 4, report=membership)
    foreign = '{"wish":1,"members":[]}'
    body = {"metadata": {"annotations": {contract.ANNOTATION_MEMBERSHIP: foreign}}}
    world.api.patch(f"{world.pods_path}/toy-master-0", headers=MERGE, json=body).raise_for_status()
    eventually("the membership of four again", lambda: membership().count('"uid"') == 4, report=membership)
