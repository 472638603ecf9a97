"""A real API server for what only it can tell: CEL, defaults, pruning, columns. `ELASTIC_TEST_KUBECONFIG` names a
running one; without it a control plane of our own is started, and taken down after the last test.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import kubernetes.client
import kubernetes.config
import pytest

from devcluster.cluster import Cluster
from elastic_operator.api import crd
from elastic_operator.api.job import GROUP, PLURAL, VERSION
from tests.api.jobs import make_job
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import Operators

READY_SECONDS = 30
MERGE = {"Content-Type": "application/merge-patch+json"}
CAPACITY = {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "4"}
HEARTBEAT_SECONDS = 2.0


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """Path of an administrator's kubeconfig."""
    if given := os.environ.get("ELASTIC_TEST_KUBECONFIG"):
        yield Path(given)
        return
    with Cluster.up(name="apitest", nodes=0) as cluster:
        yield cluster.kubeconfig


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[httpx.Client]:
    """An HTTP client with the administrator's rights."""
    config = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(kubeconfig), client_configuration=config)
    context = ssl.create_default_context(cafile=config.ssl_ca_cert)
    if config.cert_file:
        context.load_cert_chain(config.cert_file, config.key_file)
    headers = {"Authorization": config.api_key["authorization"]} if config.api_key else {}
    with httpx.Client(base_url=config.host, verify=context, headers=headers, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def job_crd(api: httpx.Client) -> None:
    """The CRD of jobs, installed and served."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    options = {"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    api.patch(f"{path}/{PLURAL}.{GROUP}", content=crd.generate(), params=options, headers=headers).raise_for_status()
    end = time.monotonic() + READY_SECONDS
    jobs = f"/apis/{GROUP}/{VERSION}/namespaces/default/{PLURAL}"
    while (answer := api.post(jobs, params={"dryRun": "All"}, json=make_job())).status_code != httpx.codes.CREATED:
        assert time.monotonic() < end, answer.text
        time.sleep(0.1)


@pytest.fixture
def jobs(api: httpx.Client, job_crd: None) -> Iterator[Jobs]:  # noqa: ARG001 # it only has to be there
    """The jobs of a namespace that this test has for itself."""
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    api.post("/api/v1/namespaces", json={"metadata": {"name": namespace}}).raise_for_status()
    yield Jobs(api, namespace)
    api.delete(f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}").raise_for_status()
    api.delete(f"/api/v1/namespaces/{namespace}").raise_for_status()


@pytest.fixture
def operators(
    kubeconfig: Path,
    api: httpx.Client,
    job_crd: None,  # noqa: ARG001 - it only has to be there
    tmp_path: Path,
) -> Iterator[Operators]:
    """Starts operators; they are stopped after the test."""
    api.post("/api/v1/namespaces", json={"metadata": {"name": "elastic-system"}})
    for role, value in (("worker", 0), ("master", 1)):
        body = {"metadata": {"name": f"elastic-pytorch-{role}"}, "value": value, "preemptionPolicy": "Never"}
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", json=body)
    running = Operators(kubeconfig, tmp_path)
    yield running
    running.end()


@pytest.fixture
def nodes(api: httpx.Client) -> Iterator[list[str]]:
    """Two nodes of four GPUs that somebody keeps Ready."""
    names = [f"node-{uuid.uuid4().hex[:6]}" for _ in range(2)]
    for name in names:
        api.post("/api/v1/nodes", json={"metadata": {"name": name}}).raise_for_status()
    done = threading.Event()

    def keep_ready() -> None:
        while not done.is_set():
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ready = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": now}
            status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]}
            for name in names:
                api.patch(f"/api/v1/nodes/{name}/status", headers=MERGE, json={"status": status})
            done.wait(HEARTBEAT_SECONDS)

    keeper = threading.Thread(target=keep_ready)
    keeper.start()
    yield names
    done.set()
    keeper.join()
    for name in names:
        api.delete(f"/api/v1/nodes/{name}")
