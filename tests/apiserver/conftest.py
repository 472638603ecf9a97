"""A real API server for what only it can tell: CEL, defaults, pruning, columns. `ELASTIC_TEST_KUBECONFIG` names a
running one; without it a control plane of our own is started, and taken down after the last test.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from devcluster.cluster import Cluster
from elastic_operator.api import crd
from elastic_operator.api.job import GROUP, PLURAL, VERSION
from elastic_operator.api.policy import COLLECTION
from tests.api.jobs import make_job
from tests.api.policies import make_policy
from tests.apiserver.administrator import DEFINITIONS, client_of, install
from tests.apiserver.faults.lab import FakeKubelets
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import Operators, eventually
from tests.apiserver.policies_api import Policies
from tests.workers import own_name

READY_SECONDS = 30
GPUS_PER_NODE = 4


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """Path of an administrator's kubeconfig."""
    if given := os.environ.get("ELASTIC_TEST_KUBECONFIG"):
        yield Path(given)
        return
    with Cluster.up(name=own_name("apitest"), nodes=0) as cluster:
        yield cluster.kubeconfig


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[httpx.Client]:
    """An HTTP client with the administrator's rights."""
    with client_of(kubeconfig) as client:
        yield client


@pytest.fixture(scope="session")
def job_crd(api: httpx.Client) -> None:
    """The CRD of jobs, installed and served."""
    install(api, crd.JOB).raise_for_status()
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
def cluster(kubeconfig: Path) -> Cluster:
    """The control plane itself."""
    return Cluster.attach(kubeconfig.parent.name)


@pytest.fixture
def proxies(kubeconfig: Path) -> Iterator[Callable[[], Proxy]]:
    """Makes proxies before the API server, which can misbehave and know what was asked."""
    with ExitStack() as running:
        yield lambda: running.enter_context(Proxy.of(kubeconfig))


@pytest.fixture
def proxy(proxies: Callable[[], Proxy]) -> Proxy:
    """A proxy before the API server."""
    return proxies()


@pytest.fixture
def operators(
    kubeconfig: Path,
    api: httpx.Client,
    job_crd: None,  # noqa: ARG001 - it only has to be there
    proxies: Callable[[], Proxy],  # noqa: ARG001 - to outlive the operators, which hand their lease back through them
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
    """Two nodes of four GPUs that somebody keeps Ready, and on which pods run."""
    with FakeKubelets(api, GPUS_PER_NODE).running() as kubelets:
        yield kubelets.nodes


@pytest.fixture(scope="module")
def policy_crd(api: httpx.Client) -> Iterator[None]:
    """The CRD of policies, installed and served, and removed after these tests."""
    path = f"{DEFINITIONS}/{crd.POLICY.name}"

    def served() -> bool:
        """Applied again each time: tests before these may have asked for its removal, which takes a while."""
        install(api, crd.POLICY)
        return api.post(COLLECTION, params={"dryRun": "All"}, json=make_policy()).is_success

    eventually("the CRD of policies", served, seconds=READY_SECONDS)
    yield
    api.delete(path).raise_for_status()
    eventually("the end of the CRD of policies", lambda: api.get(path).is_error, seconds=READY_SECONDS)


@pytest.fixture
def policies(api: httpx.Client, policy_crd: None) -> Iterator[Policies]:  # noqa: ARG001 - it only has to be there
    """No policies; those of the test are removed after it."""
    api.delete(COLLECTION).raise_for_status()
    yield Policies(api)
    api.delete(COLLECTION).raise_for_status()


@pytest.fixture
def new_namespace(api: httpx.Client, job_crd: None) -> Iterator[Callable[[], Jobs]]:  # noqa: ARG001 - likewise
    """Makes further namespaces for jobs."""
    made: list[Jobs] = []

    def make() -> Jobs:
        jobs = Jobs(api, f"test-{uuid.uuid4().hex[:8]}")
        api.post("/api/v1/namespaces", json={"metadata": {"name": jobs.namespace}}).raise_for_status()
        made.append(jobs)
        return jobs

    yield make
    for jobs in made:
        api.delete(jobs.path).raise_for_status()
        api.delete(f"/api/v1/namespaces/{jobs.namespace}").raise_for_status()
