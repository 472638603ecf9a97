"""A job that trains, and those who have no business with it: who reaches whom."""

from __future__ import annotations

from devcluster.names import API_SERVICE_ADDRESS, BRIDGE_ADDRESS
from elastic_api.job import PLURAL
from elastic_operator.build.names import service_name
from elastic_worker.contract import MASTER_PORT, STATUS_PORT
from tests.cluster.elastic import Training
from tests.cluster.lab import Team
from tests.cluster.templates import command, job
from tests.network.probing import BLOCKED, OPEN, PORTS, address, attempts, attempts_of, listening, prober

DNS = (BRIDGE_ADDRESS, 53)
API_SERVER = (API_SERVICE_ADDRESS, 443)


class Scene:
    """A training on both nodes; around it a pod of its namespace, another job's, and one of elsewhere."""

    def __init__(self, training: Training, far: Team) -> None:
        self.training, self.near, self.far = training, training.team, far
        self.near.apply(prober("passer-by", node="n1"), job("other", template=command("sleep 3600", gpus=0)))
        far.apply(prober("stranger", node="n2"))
        self.near.wait_for("other", "Running")
        address(self.near, "passer-by")
        address(far, "stranger")
        assert set(self.near.nodes_of("toy")) == {"n1", "n2"}

    def is_removed(self) -> None:
        """The training is left."""
        self.near.kubectl("delete", "pod/passer-by", f"{PLURAL}/other", "--wait")

    def outsiders(self) -> list[tuple[Team, str]]:
        """Pods that have no business with the job."""
        return [(self.near, "passer-by"), (self.near, "other-master-0"), (self.far, "stranger")]

    def pods(self) -> list[str]:
        """The job's: its master and workers, whose numbers change when they are replaced."""
        return [f"toy-{name}" for name in self.near.pods("toy")]

    def doors(self) -> list[tuple[str, int]]:
        """Where they listen: all ports of all of them."""
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
        outside, pods = (address(self.far, "stranger"), PORTS[0]), self.pods()
        doors = [(address(self.near, pod), STATUS_PORT) for pod in pods]
        stranger = (self.far, "stranger")
        self.near.wait("the nodes to follow", lambda: attempts(*stranger, doors) == [closed] * len(pods))
        self.near.wait("the nodes to follow", lambda: self.attempts([outside]) == [[bound]] * len(pods))

    def attempts(self, places: list[tuple[str, int]]) -> list[list[str]]:
        """What comes of it when each of the job's pods connects to these places."""
        return attempts_of([(self.near, pod) for pod in self.pods()], places)

    def trains_anew(self) -> None:
        """A worker is replaced, so that the group's connections are new ones."""
        group = self.training.last()
        self.near.kubectl("delete", "pod", self.pods()[-1], "--grace-period=1", "--wait")
        self.training.trains(2, after=group)

    def operator_sees_steps(self) -> None:
        """Until it has read of more steps than before."""
        before = self.step()
        self.near.wait("the operator to see more steps", lambda: self.step() > before)

    def is_reached_by_nobody_else(self) -> None:
        """The job's pods reach each other at all ports, and all else; nobody else reaches them."""
        doors = self.doors()
        assert {MASTER_PORT, STATUS_PORT} <= {port for _, port in doors}
        doors.append(self.service())
        elsewhere = [(address(self.far, "stranger"), PORTS[0]), API_SERVER]
        for outcomes in self.attempts([*doors, *elsewhere]):
            assert outcomes == [OPEN] * (len(doors) + len(elsewhere))
        for outcomes in attempts_of(self.outsiders(), doors):
            assert outcomes == [BLOCKED] * len(doors)

    def step(self) -> int:
        """What the operator has read of the training, every half minute; 0 if nothing yet."""
        return int((self.near.status().get("training") or {}).get("step") or 0)
