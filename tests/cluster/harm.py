"""A training across both nodes, one pod on each, to whose second node things happen; and the nodes made whole again."""

from __future__ import annotations

from devcluster import images
from devcluster.faults import NodeFaults, PartFaults
from devcluster.progress import Progress
from tests.cluster.elastic import Training, trainer
from tests.cluster.lab import Lab, Object, Team, wait
from tests.cluster.templates import foreign_pod

WHOLE_NODE = 4
"""GPUs of a pod."""
IMAGE = images.BASE_REF


class Pair:
    """A job of a master on the node `home` and a worker on the node `away`; each has a node for itself.

    `group`, `pods` and `repeated` are what was so when a test began.
    """

    def __init__(self, team: Team) -> None:
        self.team, self.lab = team, team.lab
        self.training = Training(team)
        self.training.starts(2, trainer(gpus=WHOLE_NODE, imagePullPolicy="IfNotPresent"))
        self.home, self.away = team.nodes_of()

    def begin(self) -> None:
        """Two pods train; what changes from now on is counted."""
        self.group = self.training.trains(2)
        self.pods = self.team.uids()
        self.repeated = self.training.repeated()
        self.before = self.team.wait_for("toy", "Running", pods=2, limited_by="AtMaximum")

    def node(self) -> NodeFaults:
        """The worker's."""
        return self.lab.cluster.node(self.away)

    def part(self, program: str) -> PartFaults:
        """A program of the worker's node."""
        return self.lab.cluster.part(f"{self.away}/{program}")

    def trains(self, pods: int) -> None:
        """Until a group of so many pods trains that was formed after the one that trained last."""
        self.group = self.training.trains(pods, after=self.group)

    def is_untouched(self) -> bool:
        """Whether it goes on in the same group and pods, and no epoch was begun again."""
        self.training.goes_on()
        same = (self.training.last(), self.team.uids()) == (self.group, self.pods)
        return same and self.epochs_repeated() == 0

    def epochs_repeated(self) -> int:
        """Since the test began."""
        return self.training.repeated() - self.repeated

    def worker_told_to_go(self) -> None:
        """As a drain does: it leaves after the next checkpoint."""
        self.team.delete_pod(f"toy-{self.team.pods()[-1]}")

    def is_whole(self) -> None:
        """Nothing of the fault is left: both nodes with all GPUs, the full size, no failure, the same master."""
        self.lab.cluster.wait_ready()
        status = self.team.wait_for("toy", "Running", pods=2, limited_by="AtMaximum")
        assert self.team.nodes_of() == [self.home, self.away]
        assert self.team.uids()["toy-master-0"] == self.pods["toy-master-0"]
        assert (status["gpus"], status["incarnation"], status.get("failures", 0)) == (2 * WHOLE_NODE, 1, 0)

    def says(self, condition: str, *words: str) -> Object:
        """Until the message of one of the job's conditions has all the words; returns the condition."""

        def told() -> Object:
            found = self.team.condition(condition)
            return found if all(word in found.get("message", "") for word in words) else {}

        return self.team.wait(f"{condition} to say {words}", told)

    def node_says(self, kind: str, status: str) -> None:
        """Until a condition of the worker's node is so."""
        wait(f"{self.away} to be {kind}={status}", lambda: self._condition(kind).get("status") == status)

    def takes_pods(self, name: str) -> None:
        """Until the kubelet and the containerd of the worker's node run a new pod."""
        probe = foreign_pod(name, gpus=0, node=self.away)
        self.team.apply(probe)
        self.team.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
        self.team.kubectl("delete", "pod", name)

    def _condition(self, kind: str) -> Object:
        found = self.lab.get(f"/api/v1/nodes/{self.away}")["status"]["conditions"]
        return next((each for each in found if each["type"] == kind), {})


def mend(lab: Lab) -> None:
    """Undo everything that these tests do to nodes, whether it was done or not."""
    names = lab.cluster.settings.node_names()
    for name in names:
        for part in (lab.cluster.part(f"{name}/{program}") for program in ("containerd", "kubelet")):
            if not part.runs():
                part.restart()
        node = lab.cluster.node(name)
        node.refuse_dns()
        node.free_disk()
        node.set_sick([])
        node.set_clock(0)
        node.give_image(images.base(Progress(quiet=True)).archive)
        for other in names:
            if other != name:
                node.join(other)
    lab.cluster.wait_ready()
