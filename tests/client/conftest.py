"""The command line, run as a person runs it, against a real API server without nodes and without an operator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from devcluster.cluster import Cluster
from elastic_client.__main__ import main
from tests.api.jobs import make_job
from tests.apiserver import conftest as apiserver
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually
from tests.apiserver.rights import account

api, cluster, definitions, kubeconfig = apiserver.api, apiserver.cluster, apiserver.definitions, apiserver.kubeconfig
jobs, new_namespace, policies = apiserver.jobs, apiserver.new_namespace, apiserver.policies
proxies, proxy = apiserver.proxies, apiserver.proxy


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of an error."""
        (line,) = self.err.splitlines()
        return line


Elastic = Callable[..., Ended]


@pytest.fixture
def elastic(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Elastic:
    """Runs `elastic WORDS...` in this process, without a kubeconfig unless one is named."""
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["elastic", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return Ended(int(ended.value.code or 0), told.out, told.err)

    return run


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody with a role in one namespace: `words` name the place. What else is there, an administrator does."""

    elastic: Elastic
    jobs: Jobs
    kubeconfig: Path

    @property
    def words(self) -> tuple[str, ...]:
        """Flags."""
        return ("--kubeconfig", str(self.kubeconfig), "-n", self.jobs.namespace)

    def __call__(self, *words: str) -> Ended:
        return self.elastic(*words, *self.words)

    def create(self, name: str = "toy", *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        """A job, and what an operator would have said of it."""
        job = accepted(self.jobs.create(make_job(name, **{"maxReplicas": 3, **spec})))
        return job if status is None else self.tell(name, status)

    def tell(self, name: str, status: dict[str, Any]) -> dict[str, Any]:
        """What the operator says of the job now."""
        return accepted(self.jobs.patch(name, {"status": status}, subresource="/status"))


@pytest.fixture(scope="module")
def roles(cluster: Cluster, api: httpx.Client, definitions: None) -> Iterator[None]:  # noqa: ARG001 - it only has to be there
    """What the chart adds to the cluster roles `view` and `edit`."""
    added = [one for one in account.rendered() if one["metadata"]["name"].endswith(("-jobs-view", "-jobs-edit"))]
    account.apply(cluster, [one for one in added if one["kind"] == "ClusterRole"])
    yield
    for one in added:
        api.delete(f"{account.RBAC}/clusterroles/{one['metadata']['name']}").raise_for_status()


@pytest.fixture
def tenant_with(
    roles: None,  # noqa: ARG001 - it only has to be there
    cluster: Cluster,
    api: httpx.Client,
    new_namespace: Callable[[], Jobs],
    elastic: Elastic,
    tmp_path: Path,
) -> Callable[[str], Tenant]:
    """Makes somebody with a cluster role in a namespace of their own."""

    def make(role: str) -> Tenant:
        jobs = new_namespace()
        token = _token(api, jobs.namespace, role)
        path = tmp_path / f"{jobs.namespace}.yaml"
        path.write_text(_kubeconfig(cluster.kubeconfig, token))
        may = account.client_with(cluster, token)
        with may:
            eventually("what controllers add to the role", lambda: may.get(jobs.path).is_success)
        return Tenant(elastic, jobs, path)

    return make


@pytest.fixture
def tenant(tenant_with: Callable[[str], Tenant]) -> Tenant:
    """Somebody with the cluster role `edit`, to which the chart adds jobs."""
    return tenant_with("edit")


def _token(api: httpx.Client, namespace: str, role: str) -> str:
    """Of a service account with that cluster role in the namespace."""
    api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", json={"metadata": {"name": "dev"}}).raise_for_status()
    subject = {"kind": "ServiceAccount", "name": "dev", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    binding = {"metadata": {"name": "dev"}, "roleRef": reference, "subjects": [subject]}
    api.post(f"{account.RBAC}/namespaces/{namespace}/rolebindings", json=binding).raise_for_status()
    return account.token_of(api, "dev", namespace)


def _kubeconfig(of: Path, token: str) -> str:
    """The administrator's, with another user."""
    config = yaml.safe_load(of.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    return yaml.safe_dump(config)
