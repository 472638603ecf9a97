"""Objects that once stopped the operator for everybody: it starts among them, and other teams' jobs get their pods."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from elastic_operator.read.foreign.reservation import CONDITION
from elastic_worker import contract
from tests.api.jobs import make_template, with_gpus
from tests.api.mistakes import claiming
from tests.apiserver.input.pool import Canary, conditions_of, elastic_job, pods_of
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import Operators, eventually

pytestmark = pytest.mark.apiserver

GPU = "nvidia.com/gpu"
LABEL = "gpus"
DIGITS = "9" * 5000
UNFIT = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": LABEL, "operator": "Gt", "values": [DIGITS]}]}]
        }
    }
}
RAN_OUT_OFTEN = '{"node": "n1", "since": 1, "until": 2, "avoid": {"n1": {"until": 0, "times": 2000}}}'
RESERVATIONS = {"brackets": '{"x":' + "[" * 30_000, "often": RAN_OUT_OFTEN}


@pytest.fixture
def hostile(api: httpx.Client, pool: list[str]) -> Iterator[Jobs]:
    """The namespace of a team that writes what nobody expects, with all of it."""
    team = Jobs(api, f"hostile-{uuid.uuid4().hex[:8]}")
    api.post("/api/v1/namespaces", json={"metadata": {"name": team.namespace}}).raise_for_status()
    headers = {"Content-Type": "application/merge-patch+json"}
    label = {"metadata": {"labels": {LABEL: "8"}}}
    api.patch(f"/api/v1/nodes/{pool[0]}", headers=headers, json=label).raise_for_status()
    unnamed = make_template(with_gpus(1), volumes=[claiming(readOnly=True)])
    accepted(team.create(elastic_job("claim", template=unnamed)))
    accepted(team.create(elastic_job("affinity", template=make_template(with_gpus(1), affinity=UNFIT))))
    annotated = make_template(with_gpus(1, image="local/none:1"))
    annotated["metadata"] = {"annotations": {contract.ANNOTATION_NNODES: f"{DIGITS}:1"}}
    accepted(team.create(elastic_job("nnodes", big=1, template=annotated, runtime={"mode": "Elastic"})))
    for name, text in RESERVATIONS.items():
        wait_for_nothing(team, name, text)
    yield team
    api.delete(team.path).raise_for_status()
    api.delete(f"/api/v1/namespaces/{team.namespace}").raise_for_status()


def wait_for_nothing(team: Jobs, name: str, reserved: str) -> None:
    """A plain pod with that reservation, of which kube-scheduler says that it lacks GPUs."""
    path, container = f"/api/v1/namespaces/{team.namespace}/pods", {"name": "main", "image": "local/none:1"}
    body: dict[str, Any] = {
        "metadata": {"name": name},
        "spec": {"containers": [{**container, "resources": {"limits": {GPU: "1"}}}]},
    }
    team.api.post(path, json=body).raise_for_status()
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": f"Insufficient {GPU}"}
    kept = {"type": CONDITION, "status": "True", "message": reserved}
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    team.api.patch(
        f"{path}/{name}/status", headers=headers, json={"status": {"conditions": [said, kept]}}
    ).raise_for_status()


@pytest.mark.timeout(120)
def test_operator_starts_among_hostile_jobs_and_serves_another_team(
    operators: Operators, hostile: Jobs, canary: Canary
):
    first = operators.start()
    canary.start()
    eventually("pods with the annotation", lambda: pods_of(hostile, "nnodes"), report=first.text)
    first.stop()
    second = operators.start()
    canary.check()
    ready = eventually("a word on the claim", lambda: conditions_of(hostile, "Ready")["claim"])
    assert ready["reason"] == "InvalidSpec"
    assert "volumes[0].persistentVolumeClaim.claimName: must be present" in ready["message"]
    assert "Traceback" not in first.text() + second.text()
