"""Two installations in two namespaces, each with its own lease: the one decides that the cluster's classes name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest

from elastic_operator.cluster.objects import ANNOTATION_OPERATOR_NAMESPACE
from tests.apiserver.faults.lab import MERGE, World, elastic_job
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.operators import Operator, Operators, eventually
from tests.kit.requests import Entry

pytestmark = pytest.mark.apiserver

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
HERE, THERE = "elastic-system", "elastic-again"


@dataclass(frozen=True, slots=True)
class Installed:
    """The operator of one namespace, behind a proxy that knows what it wrote."""

    namespace: str
    operator: Operator
    proxy: Proxy

    def writes(self) -> list[Entry]:
        """What it wrote, its lease too."""
        return self.proxy.requests(where=lambda request: request.writes)

    def ready(self) -> tuple[int, str]:
        """What /readyz answers."""
        answer = self.operator.get("/readyz")
        return (answer.status_code, answer.text) if answer is not None else (0, "")

    def times_leading(self) -> int:
        """How often it began to decide."""
        return self.operator.text().count("leading as")


@pytest.fixture
def name_owner(api: httpx.Client) -> Iterator[Callable[[str | None], None]]:
    """Writes into both classes whose the cluster is; nobody's at the end, when no operator is left."""

    def write(namespace: str | None) -> None:
        change = {"metadata": {"annotations": {ANNOTATION_OPERATOR_NAMESPACE: namespace}}}
        for role in ("worker", "master"):
            api.patch(f"{CLASSES}/elastic-pytorch-{role}", headers=MERGE, json=change).raise_for_status()

    yield write
    write(None)


@pytest.fixture
def install(
    api: httpx.Client,
    name_owner: object,  # noqa: ARG001 - it is to end after the operators
    operators: Operators,
    proxies: Callable[[], Proxy],
) -> Callable[[str], Installed]:
    """Starts the operator of a namespace."""

    def start(namespace: str) -> Installed:
        api.post("/api/v1/namespaces", json={"metadata": {"name": namespace}})
        proxy, environ = proxies(), {"POD_NAMESPACE": namespace, "POD_UID": namespace}
        return Installed(namespace, operators.start(server=proxy.url, environ=environ), proxy)

    return start


def test_second_installation_does_nothing_and_reports_why(
    install: Callable[[str], Installed], name_owner: Callable[[str | None], None], world: World
) -> None:
    name_owner(HERE)
    here, there = install(HERE), install(THERE)
    world.start(elastic_job(big=2))
    world.wait_settled("toy", 2)
    eventually("a word of it", lambda: there.ready()[0] == 503, report=there.operator.text)
    for words in (f"namespace '{HERE}'", f"namespace '{THERE}', stands by", f"operator-namespace={THERE}"):
        assert words in there.ready()[1]
        assert words in there.operator.text()
    assert here.ready() == (200, "ok")
    assert there.writes() == []

    name_owner(THERE)
    eventually("the other to decide", there.times_leading, report=there.operator.text)
    eventually("the first to stand by", lambda: here.ready()[0] == 503, report=here.operator.text)
    eventually("its lease to be given back", lambda: "lease released" in here.operator.text())
    written = len(here.writes())
    world.jobs.patch("toy", {"spec": {"maxReplicas": 4}})
    world.wait_settled("toy", 4)
    assert len(here.writes()) == written
    assert there.ready() == (200, "ok")
    assert (here.times_leading(), there.times_leading()) == (1, 1)
    assert (world.status()["restarts"], world.status()["resizes"]) == (0, 1)
