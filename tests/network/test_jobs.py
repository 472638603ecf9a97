"""A job whose pods have a network policy trains, and nobody else comes near: on a cluster that enforces policies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devcluster.names import API_SERVICE_ADDRESS, BRIDGE_ADDRESS
from elastic_operator.api.job import PLURAL
from elastic_operator.build.names import service_name
from elastic_worker.contract import LABEL_JOB_UID, MASTER_PORT, STATUS_PORT
from tests.cluster.elastic import Training, trainer
from tests.cluster.lab import Lab, Team
from tests.cluster.templates import command, job
from tests.network.conftest import GPUS, two_teams
from tests.network.operator import Operator
from tests.network.probing import BLOCKED, OPEN, PORTS, REFUSED, address, attempts, listening, prober

pytestmark = pytest.mark.timeout(300)

MASTER = "toy-master-0"
DNS = (BRIDGE_ADDRESS, 53)
API_SERVER = (API_SERVICE_ADDRESS, 443)


class Scene:
    """A job that trains on both nodes; around it a pod of its namespace, another job's, and one of elsewhere."""

    def __init__(self, near: Team, far: Team) -> None:
        self.near, self.far = near, far
        self.training = Training(near)
        near.apply(prober("passer-by", node="n1"), job("other", template=command("sleep 3600", gpus=0)))
        far.apply(prober("stranger", node="n2"))
        self.training.starts(2, trainer(gpus=GPUS))
        near.wait_for("other", "Running")
        address(near, "passer-by")
        address(far, "stranger")
        assert sorted(near.nodes_of("toy")) == ["n1", "n2"]

    def outsiders(self) -> list[tuple[Team, str]]:
        """Pods that have no business with the job."""
        return [(self.near, "passer-by"), (self.near, "other-master-0"), (self.far, "stranger")]

    def pods(self) -> list[str]:
        """The job's: its master and a worker, whose number changes when it is replaced."""
        return [f"toy-{name}" for name in self.near.pods("toy")]

    def doors(self) -> list[tuple[str, int]]:
        """Where they listen: all ports of both."""
        return [place for pod in self.pods() for place in listening(self.near, pod)]

    def service(self) -> tuple[str, int]:
        """The address at which the job's pods meet."""
        found = self.near.lab.get(f"/api/v1/namespaces/{self.near.name}/services/{service_name('toy')}")
        return found["spec"]["clusterIP"], MASTER_PORT

    def policies(self) -> dict[str, list[str]]:
        """The types of each network policy, by its name."""
        path = f"/apis/networking.k8s.io/v1/namespaces/{self.near.name}/networkpolicies"
        items = self.near.lab.get(path)["items"]
        return {item["metadata"]["name"]: sorted(item["spec"]["policyTypes"]) for item in items}

    def come_to_be_behind(self, policy_types: list[str]) -> None:
        """Until the job's policy has these types, or there is none, and nodes follow it."""

        wanted = {service_name(job): sorted(policy_types) for job in ("toy", "other")} if policy_types else {}
        self.near.wait(f"policies {policy_types} for both jobs", lambda: self.policies() == wanted)
        closed, bound = (BLOCKED if kind in policy_types else OPEN for kind in ("Ingress", "Egress"))
        outside = (address(self.far, "stranger"), PORTS[0])
        for pod in self.pods():
            door = (address(self.near, pod), STATUS_PORT)
            self.near.wait("its node to follow", lambda at=door: attempts(self.far, "stranger", [at]) == [closed])
            self.near.wait("its node to follow", lambda of=pod: attempts(self.near, of, [outside]) == [bound])

    def trains_anew(self) -> None:
        """A worker is replaced, so that the group's connections are new ones."""
        group = self.training.last()
        self.near.kubectl("delete", "pod", self.pods()[-1], "--grace-period=1", "--wait")
        self.training.trains(2, after=group)

    def operator_sees_steps(self) -> None:
        """Until it has read of more steps than before."""
        before = self._step()
        self.near.wait("the operator to see more steps", lambda: self._step() > before)

    def _step(self) -> int:
        return int((self.near.status().get("training") or {}).get("step") or 0)


@pytest.fixture(scope="module")
def scene(lab: Lab, operator: Operator) -> Iterator[Scene]:
    """Its group has formed behind the job's policy, which is there before the first pod."""
    operator.runs_with(job_policies=True)
    with two_teams(lab) as (near, far):
        yield Scene(near, far)


def test_a_job_trains_behind_its_policy_and_is_reached_by_nobody_but_itself_and_the_operator(scene, operator):
    operator.runs_with(job_policies=True)
    scene.come_to_be_behind(["Ingress"])
    scene.operator_sees_steps()
    doors = scene.doors()
    ports = {port for _, port in doors}
    assert {MASTER_PORT, STATUS_PORT} <= ports
    for pod in scene.pods():
        assert attempts(scene.near, pod, [*doors, scene.service()]) == [OPEN] * (len(doors) + 1)
        assert attempts(scene.near, pod, [(address(scene.far, "stranger"), PORTS[0]), API_SERVER]) == [OPEN, OPEN]
    for team, pod in scene.outsiders():
        assert attempts(team, pod, [*doors, scene.service()]) == [BLOCKED] * (len(doors) + 1)


def test_a_job_that_may_connect_to_nothing_else_has_its_own_pods_and_dns(scene, operator):
    operator.runs_with(job_policies=True, job_egress=[])
    scene.come_to_be_behind(["Ingress", "Egress"])
    scene.trains_anew()
    scene.operator_sees_steps()
    doors = scene.doors()
    for pod in scene.pods():
        assert attempts(scene.near, pod, [*doors, scene.service()]) == [OPEN] * (len(doors) + 1)
        # No DNS server runs on the local cluster.
        others = [(address(scene.near, "passer-by"), PORTS[0]), (address(scene.far, "stranger"), PORTS[0]), API_SERVER]
        assert attempts(scene.near, pod, [DNS, *others]) == [REFUSED, BLOCKED, BLOCKED, BLOCKED]


def test_switched_off_no_more_policies_are_made_and_when_the_rest_is_deleted_the_pods_are_open_again(scene, operator):
    operator.runs_with(job_policies=True)
    scene.come_to_be_behind(["Ingress"])
    operator.runs_with(job_policies=False)
    scene.near.apply(job("later", template=command(gpus=0)))
    scene.near.wait_for("later", "Running")
    assert service_name("later") not in scene.policies()
    scene.near.kubectl("delete", PLURAL, "later", "--wait")

    scene.near.kubectl("delete", "networkpolicies", "-l", LABEL_JOB_UID)
    scene.come_to_be_behind([])
    doors = scene.doors()
    for team, pod in scene.outsiders():
        assert attempts(team, pod, [*doors, scene.service()]) == [OPEN] * (len(doors) + 1)
