"""The operator behind its own network policy: it does its work, and shows its metrics to whom it shall."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.lab import Lab, Team, two_teams
from tests.cluster.templates import command, job
from tests.network.operator import METRICS_FROM, Operator
from tests.network.probing import BLOCKED, OPEN, PORTS, address, attempts, prober

pytestmark = [pytest.mark.extended, pytest.mark.timeout(240)]

READ = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


@pytest.fixture
def teams(lab: Lab, operator: Operator) -> Iterator[list[Team]]:
    """Of two namespaces the second may read metrics; a pod in each, on different nodes."""
    operator.runs_with(job_policies=True)
    with two_teams(lab) as (near, far):
        lab.kubectl("label", "namespace", far.name, *_labels(METRICS_FROM["namespaceSelector"]["matchLabels"]))
        near.apply(prober("passer-by", node="n1"))
        far.apply(prober("monitoring", node="n2"))
        address(near, "passer-by")
        address(far, "monitoring")
        yield [near, far]


def _labels(labels: dict[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in labels.items()]


def test_metrics_are_read_by_those_who_may_and_by_nobody_else(teams, operator):
    near, far = teams
    places = [(pod["status"]["podIP"], _port(pod)) for pod in operator.pods()]
    assert len(places) == 2
    near.wait("the operator to be closed", lambda: set(attempts(near, "passer-by", places)) == {BLOCKED})
    for ip, port in places:
        told = far.kubectl("exec", "monitoring", "--", "python3", "-c", READ, f"http://{ip}:{port}/metrics")
        assert "elastic_pytorch_" in told


def test_the_operator_connects_to_the_api_server_and_to_no_pod_that_is_no_job_s(teams, operator):
    near, _ = teams
    outside = (address(near, "passer-by"), PORTS[0])
    for pod in operator.pods():
        assert attempts(operator.team, pod["metadata"]["name"], [outside]) == [BLOCKED]
    near.apply(job(template=command(gpus=0)))
    near.wait_for("toy", "Running")
    assert attempts(near, "toy-master-0", [outside]) == [OPEN]


def _port(pod: dict) -> int:
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    return ports["http"]
