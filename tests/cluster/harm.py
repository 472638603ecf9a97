"""A training across both nodes to which things happen, one after the other; and the nodes made whole again."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from devcluster import images
from devcluster.faults import NodeFaults, PartFaults
from devcluster.progress import Progress
from tests.cluster.elastic import Training, trainer
from tests.cluster.lab import Lab, Object, Team, wait
from tests.cluster.templates import foreign_pod

IMAGE = images.BASE_REF
FILLER = "filler"
NEVER_GIVEN_UP = {"nodeLossSeconds": 3600}
"""A pod on a node that is away is waited for, however long that takes on a busy machine."""


class Shared:
    """The one training of a file's tests: each begins with it, and leaves it as it was.

    After a test that did not, the nodes are mended and the next one gets another training.
    """

    def __init__(self, lab: Lab, *, pods: int, gpus: int) -> None:
        self.lab, self.pods, self.gpus = lab, pods, gpus
        self._training: Spread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._training:
            self._training.ends()

    @contextlib.contextmanager
    def lent(self, has_failed: Callable[[], bool]) -> Iterator[Spread]:
        """To one test, which at its end has failed or not."""
        spread = self._training or Spread(self.lab, pods=self.pods, gpus=self.gpus)
        self._training = None
        try:
            spread.begins()
            yield spread
            if not has_failed():
                spread.is_whole()
                self._training = spread
        finally:
            if not self._training:
                print(spread.team.report())
                mend(self.lab)
                spread.team.is_removed()


class Spread:
    """A job with its last worker on the node `away`, all others on `home`, and a namespace of its own.

    There is no other place for its pods: who is replaced comes back where it was. `group`, `pods`, `repeated` and
    `before` are what was so when a test began.
    """

    def __init__(self, lab: Lab, *, pods: int, gpus: int) -> None:
        self.lab, self.size, self.gpus = lab, pods, gpus
        self.team = Team(lab, f"team-s-{secrets.token_hex(3)}")
        lab.kubectl("create", "namespace", self.team.name)
        try:
            self.training = Training(self.team)
            template = trainer(gpus=gpus, imagePullPolicy="IfNotPresent")
            self.training.starts(pods, template, recovery=NEVER_GIVEN_UP)
            if rest := len(lab.cluster.settings.node_names()) * lab.cluster.settings.gpus - pods * gpus:
                self.team.apply(foreign_pod(FILLER, gpus=rest))
                self.team.kubectl("wait", f"pod/{FILLER}", "--for=condition=Ready", "--timeout=60s")
        except BaseException:
            print(self.team.report())
            self.team.is_removed()
            raise

    def begins(self) -> None:
        """All pods train; what changes from now on is counted."""
        self.group = self.training.trains(self.size)
        self.pods = self.team.uids()
        self.repeated = self.training.repeated()
        self.before = self.team.wait_for("toy", "Running", pods=self.size, limited_by="AtMaximum")
        *at_home, self.away = self.nodes = self.team.nodes_of()
        (self.home,) = set(at_home)
        assert self.home != self.away

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

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """The worker's node reaches nothing meanwhile."""
        self.node().cut_off()
        try:
            yield
        finally:
            self.node().heal()

    def worker_told_to_go(self) -> None:
        """As a drain does: it leaves after the next checkpoint."""
        self.team.delete_pod(f"toy-{self.team.pods()[-1]}")

    def is_whole(self) -> None:
        """Nothing of it is left: both nodes with all GPUs, all pods where they were, no failure."""
        self.lab.wait_ready()
        status = self.team.wait_for("toy", "Running", pods=self.size, limited_by="AtMaximum")
        assert self.team.nodes_of() == self.nodes
        assert (status["gpus"], status["incarnation"], status.get("failures", 0)) == (self.size * self.gpus, 1, 0)

    def ends(self) -> None:
        """Nothing of it is left."""
        try:
            self.team.kubectl("delete", "pod", FILLER, "--ignore-not-found", "--wait")
            self.training.nothing_left()
        finally:
            self.team.is_removed()

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
        node.heal()
        node.refuse_dns()
        node.free_disk()
        node.set_sick([])
        node.set_clock(0)
        node.give_image(images.base(Progress(quiet=True)).archive)
        for other in names:
            if other != name:
                node.join(other)
    lab.wait_ready()
