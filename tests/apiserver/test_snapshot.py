"""`elastic-operator snapshot` against a real API server: what it writes down is what the operator would decide from."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from elastic_operator.command_line import main
from elastic_operator.tools import snapshot_file
from tests.api.jobs import make_job, make_template, with_gpus
from tests.apiserver.faults.lab import await_service_account
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import kubeconfig_of

pytestmark = pytest.mark.apiserver

GPU = "nvidia.com/gpu"


@pytest.fixture
def node(api: httpx.Client) -> Iterator[str]:
    """A node of 4 GPUs."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    accepted(api.post("/api/v1/nodes", json={"metadata": {"name": name, "labels": {"only": name}}}))
    status = {"allocatable": {GPU: "4", "cpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}
    headers = {"Content-Type": "application/merge-patch+json"}
    accepted(api.patch(f"/api/v1/nodes/{name}/status", headers=headers, json={"status": status}))
    accepted(
        api.patch(f"/api/v1/nodes/{name}", headers=headers, json={"spec": {"taints": None}})
    )  # it was made NotReady
    yield name
    api.delete(f"/api/v1/nodes/{name}")


def make_pod(name: str, node: str, *, gpus: int) -> dict:
    """A pod that is not ours, bound to a node."""
    containers = [with_gpus(gpus, name="main", image="local/none:1")]
    spec = {"nodeName": node, "containers": containers, "tolerations": [{"operator": "Exists"}]}
    return {"metadata": {"name": name}, "spec": spec}


def test_the_snapshot_of_a_cluster_holds_its_nodes_their_use_and_its_jobs_and_can_be_replayed(
    api: httpx.Client, jobs: Jobs, node: str, kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    env = [{"name": "TOKEN", "value": "not-for-others"}]
    template = make_template(with_gpus(1, env=env), nodeSelector={"only": node})
    accepted(jobs.create(make_job("train", maxReplicas=8, template=template)))
    await_service_account(api, jobs.namespace)
    accepted(api.post(f"/api/v1/namespaces/{jobs.namespace}/pods", json=make_pod("notebook", node, gpus=2)))
    file = tmp_path / "snapshot.json"
    assert main(["snapshot", "--kubeconfig", str(kubeconfig), "--output", str(file)]) == 0
    assert "not-for-others" not in file.read_text()
    snapshot = snapshot_file.decode(json.loads(file.read_text()), source="f")
    found = next(n for n in snapshot.nodes if n.name == node)
    assert (found.allocatable[GPU], found.used.requests[GPU]) == (4, 2)
    assert main(["replay", str(file), "-o", "json"]) == 0
    decided = {(job["namespace"], job["name"]): job for job in json.loads(capsys.readouterr().out)["jobs"]}
    placed = decided[jobs.namespace, "train"]["plan"]["creates"]
    assert [(pod["role"], pod["node"]) for pod in placed] == [("master", node), ("worker", node)]


def test_an_api_server_that_is_not_there_is_an_error_with_its_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "config").write_text(kubeconfig_of("http://127.0.0.1:9"))
    assert main(["snapshot", "--kubeconfig", str(tmp_path / "config")]) == 2
    assert "http://127.0.0.1:9" in capsys.readouterr().err
