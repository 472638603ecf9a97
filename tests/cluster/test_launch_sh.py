"""The launch script of the field's tutorials, unchanged: it starts torchrun itself, with three restarts."""

from pathlib import Path

import pytest

from tests.cluster.examples import FOLDER, TRAIN, example, give_files, give_volume
from tests.cluster.lab import IMPORT_SECONDS
from tests.cluster.templates import foreign_pod, job

GROUP = Path(__file__).with_name("group_without_torch.py")


@pytest.mark.extended
@pytest.mark.timeout(400)
def test_a_launch_script_survives_four_shrinks_and_finishes(team):
    """Each shrink costs every agent one of its three restarts: the fourth needs a new incarnation.

    A group that ends while pods are joining it may wait for them for torchrun's exit barrier of 300 s: it ends at 4.
    """
    give_files(team, "launch-sh", launch_sh=FOLDER / "launch-sh" / "launch.sh")
    give_files(team, "toy-script", train_py=GROUP)
    volume = give_volume(team)
    team.apply(foreign_pod(gpus=4, node="n1"))
    team.apply(example("launch-sh"))
    team.wait_for("launch-sh", "Running", pods=4)
    steps = Steps(team, volume)
    steps.go_on(4)
    for _ in range(4):
        team.apply(job("newcomer", min=2, max=2))
        team.wait_for("newcomer", "Running", pods=2)
        team.wait_for("launch-sh", "Running", pods=2)
        steps.go_on(2)
        team.kubectl("delete", "eptj", "newcomer")
        team.wait_for("launch-sh", "Running", pods=4)
        steps.go_on(4)
    (volume / "enough").touch()
    status = team.wait_for("launch-sh", "Succeeded")
    assert status.get("failures", 0) == 0
    assert "ends at step" in "".join(team.logs(f"launch-sh-{pod}") for pod in ("master-0", "worker-0", "worker-1"))


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_flags_in_a_launch_script_with_which_pods_would_not_meet_are_named_on_an_elastic_job(team, tmp_path):
    """Those of the example's script are the pod's own variables; an address of its own is somebody else's."""
    ours = (FOLDER / "launch-sh" / "launch.sh").read_text()
    (tmp_path / "launch.sh").write_text(ours.replace("${master_addr}:${master_port}", "192.0.0.1:1234"))
    give_files(team, "launch-sh", launch_sh=tmp_path / "launch.sh")
    give_files(team, "toy-script", train_py=TRAIN)
    give_volume(team)
    team.apply(example("launch-sh", minReplicas=2, maxReplicas=2, runtime={"mode": "Elastic"}))
    team.wait_log("launch-sh-master-0", ") loss =", seconds=IMPORT_SECONDS)
    told = team.wait("the flag", lambda: team.condition("FlagsNotUsed", "launch-sh").get("message"))
    assert told.startswith("torchrun was called with --rdzv_endpoint=192.0.0.1:1234. These flags have no effect"), told


class Steps:
    """The steps that the group has saved, each with the group's size."""

    def __init__(self, team, volume):
        self.team, self.file, self.last = team, volume / "step", -1

    def go_on(self, size):
        """Until ten more than before are done, and the group has that size."""
        before, _ = self.now()
        assert before >= self.last, "the group began anew"
        self.team.wait(f"ten more steps in a group of {size}", lambda: self.has_come_to(before + 10, size))
        self.last, _ = self.now()

    def has_come_to(self, step, size):
        """Whether the group of that size has done that step."""
        done, members = self.now()
        return done >= step and members == size

    def now(self):
        """The last step, and the size of the group that did it."""
        return [int(word) for word in self.file.read_text().split()] if self.file.exists() else (self.last, 0)
