"""A real API server for what only it can tell: CEL, defaults, pruning, columns. It is the pytest worker's one control
plane, which other folders use, too: each test has namespaces, nodes and policies of its own, and takes them away.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from devcluster.cluster import Cluster
from elastic_api import crd
from elastic_api.job import GROUP, PLURAL, VERSION
from elastic_api.policy import COLLECTION
from tests.api.jobs import make_job
from tests.api.policies import make_policy
from tests.apiserver.administrator import client_of, install
from tests.apiserver.faults.lab import FakeKubelets, World
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.input.pool import Canary, fake_nodes
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import Operators, eventually
from tests.apiserver.policies_api import Policies
from tests.apiserver.warm_parent import WarmParent
from tests.workers import control_plane, warm_parent

GPUS_PER_NODE = 4


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Cluster:
    """The control plane itself."""
    return control_plane(pytestconfig)


@pytest.fixture(scope="session")
def kubeconfig(cluster: Cluster) -> Path:
    """Path of an administrator's kubeconfig."""
    return cluster.kubeconfig


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Iterator[httpx.Client]:
    """An HTTP client with the administrator's rights."""
    with client_of(kubeconfig) as client:
        yield client


@pytest.fixture(scope="session")
def definitions(api: httpx.Client) -> None:
    """The CRDs of jobs and policies, installed once and served."""
    jobs = f"/apis/{GROUP}/{VERSION}/namespaces/default/{PLURAL}"
    for definition, path, body in ((crd.JOB, jobs, make_job()), (crd.POLICY, COLLECTION, make_policy())):
        install(api, definition).raise_for_status()
        eventually(
            f"the service of {path}",
            lambda path=path, body=body: api.post(path, params={"dryRun": "All"}, json=body).is_success,
        )


@pytest.fixture
def new_namespace(api: httpx.Client, definitions: None) -> Iterator[Callable[[], Jobs]]:  # noqa: ARG001 - it only has to be there
    """Makes namespaces for jobs, which the test has for itself."""
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


@pytest.fixture
def jobs(new_namespace: Callable[[], Jobs]) -> Jobs:
    """The jobs of one."""
    return new_namespace()


@pytest.fixture
def proxies(kubeconfig: Path) -> Iterator[Callable[[], Proxy]]:
    """Makes proxies before the API server, which can misbehave and know what was asked."""
    with ExitStack() as running:
        yield lambda: running.enter_context(Proxy.of(kubeconfig))


@pytest.fixture
def proxy(proxies: Callable[[], Proxy]) -> Proxy:
    """A proxy before the API server."""
    return proxies()


@pytest.fixture(scope="session")
def parent(pytestconfig: pytest.Config) -> WarmParent:
    """Where operators come from."""
    return warm_parent(pytestconfig)


@pytest.fixture
def operators(
    kubeconfig: Path,
    api: httpx.Client,
    definitions: None,  # noqa: ARG001 - it only has to be there
    proxies: Callable[[], Proxy],  # noqa: ARG001 - to outlive the operators, which hand their lease back through them
    parent: WarmParent,
    tmp_path: Path,
) -> Iterator[Operators]:
    """Starts operators; they are stopped after the test."""
    api.post("/api/v1/namespaces", json={"metadata": {"name": "elastic-system"}})
    for role, value in (("worker", 0), ("master", 1)):
        body = {"metadata": {"name": f"elastic-pytorch-{role}"}, "value": value, "preemptionPolicy": "Never"}
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", json=body)
    running = Operators(kubeconfig, tmp_path, parent)
    yield running
    running.end()


@pytest.fixture
def nodes(api: httpx.Client) -> Iterator[FakeKubelets]:
    """Two nodes of four GPUs that somebody keeps Ready, and on which pods run."""
    with FakeKubelets(api, GPUS_PER_NODE).running() as kubelets:
        yield kubelets


@pytest.fixture
def world(nodes: FakeKubelets, jobs: Jobs) -> World:
    """The jobs of a namespace, and two nodes of four GPUs."""
    return World(jobs, nodes)


@pytest.fixture
def pool(cluster: Cluster, api: httpx.Client) -> Iterator[list[str]]:
    """Nodes of KWOK's, on which pods run and go at once."""
    with fake_nodes(cluster, api, prefix="pool") as nodes:
        yield nodes


@pytest.fixture
def canary(pool: list[str], jobs: Jobs) -> Canary:  # noqa: ARG001 - it only has to be there
    """A job that is served throughout; the test starts it."""
    return Canary(jobs)


@pytest.fixture
def policies(api: httpx.Client, definitions: None) -> Iterator[Policies]:  # noqa: ARG001 - it only has to be there
    """No policies; those of the test are removed after it."""
    api.delete(COLLECTION).raise_for_status()
    yield Policies(api)
    api.delete(COLLECTION).raise_for_status()
