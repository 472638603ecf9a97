"""Operators with the rights that the chart gives them, and no others."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from devcluster.cluster import Cluster
from elastic_api.policy import COLLECTION
from tests.apiserver.faults.lab import FakeKubelets, World
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import Operator, Operators, eventually
from tests.apiserver.rights import account
from tests.apiserver.rights.account import NAMESPACE, Installed
from tests.apiserver.warm_parent import WarmParent

Start = Callable[..., Operator]
Install = Callable[..., Installed]


@dataclass(frozen=True, slots=True)
class Estate:
    """The control plane; `token` is one of the operator's account."""

    cluster: Cluster
    api: httpx.Client
    token: str


@pytest.fixture(scope="session")
def estate(cluster: Cluster, api: httpx.Client) -> Estate:
    """No roles of the chart yet, but the account that they are for."""
    api.post("/api/v1/namespaces", json={"metadata": {"name": NAMESPACE}})
    account.apply(cluster, [one for one in account.rendered() if one["kind"] == "ServiceAccount"])
    return Estate(cluster, api, account.token_of(api))


@pytest.fixture(scope="module")
def install(estate: Estate) -> Iterator[Install]:
    """Installs the chart's roles, with flags for helm, in place of what a test before installed with others."""
    there: dict[tuple[str, ...], Installed] = {}

    def with_flags(*flags: str) -> Installed:
        if flags in there:
            there[flags].restore_all()
        else:
            while there:
                account.uninstall(there.popitem()[1])
            there[flags] = account.install(estate.cluster, estate.api, *flags)
        return there[flags]

    yield with_flags
    for installed in there.values():
        account.uninstall(installed)


@pytest.fixture
def watcher(estate: Estate) -> Iterator[Proxy]:
    """A proxy that adds no rights of its own to those of whoever asks."""
    trusted = ssl.create_default_context(cafile=str(estate.cluster.layout.pki / "ca.crt"))
    with Proxy(account.client_server(estate.cluster), trusted) as proxy:
        yield proxy


@pytest.fixture
def start(estate: Estate, watcher: Proxy, parent: WarmParent, tmp_path: Path) -> Iterator[Callable[..., Operator]]:
    """Starts operators with the account's token; names of settings are those of the variables, WATCH_NAMESPACES."""
    kubeconfig = account.write_kubeconfig(tmp_path / "kubeconfig", server=watcher.url, token=estate.token)
    operators = Operators(kubeconfig, tmp_path, parent)

    def one(**settings: str) -> Operator:
        environ = {f"ELASTIC_OPERATOR_{name}": value for name, value in settings.items()}
        return operators.start(environ={"POD_NAMESPACE": NAMESPACE} | environ)

    with ExitStack() as stack:
        stack.callback(operators.end)
        yield one


@pytest.fixture
def world(estate: Estate, new_namespace: Callable[[], Jobs]) -> Iterator[World]:
    """Two nodes with four GPUs each, and a namespace for jobs."""
    with FakeKubelets(estate.api, 4).running() as kubelets:
        world = World(new_namespace(), kubelets)
        yield world
        for path in (world.jobs.path, COLLECTION, world.pods_path):
            estate.api.delete(path)
        eventually("an end of the pods", lambda: not world.pods(), report=world.report)
