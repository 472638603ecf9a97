"""Two nodes of a real Slurm: the commands of docs/slurm.md and examples/slurm/README.md, and nodes that are lost."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.slurm.slurm import Slurm
from tests.worker.job.exactly_once import LibraryJob

pytestmark = [pytest.mark.programs, pytest.mark.extended, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "tests" / "worker" / "job"
ENDS = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")
SECONDS = 420
STEPS_PER_EPOCH = 4096 // 256
"""Of examples/library/train.py."""


class Site:
    """The repository's examples on a folder that all machines of a Slurm see."""

    def __init__(self, slurm):
        self.slurm = slurm
        self.folder = slurm.folder / "examples" / "slurm"
        shutil.copytree(REPOSITORY / "examples", slurm.folder / "examples")

    def sh(self, command):
        """Type it on the login machine, in the folder of the scripts."""
        return self.slurm.sh(command, folder=self.folder)

    def output(self, job):
        """What the job's script and all its steps have said."""
        path = self.folder / f"slurm-{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, what, look):
        """The first true thing that it finds."""
        return self.slurm.wait(what, look, seconds=SECONDS)

    def wait_said(self, job, pattern, *, after=0):
        """Until that stands in the output, beyond so many characters; gives where it ends."""
        found = self.wait(pattern, lambda: re.search(pattern, self.output(job)[after:], re.MULTILINE))
        return after + found.end()

    def saved_epochs(self):
        """Epochs in the newest durable checkpoint; 0 without one. Saves are written beside the training."""
        latest = self.folder / "checkpoints" / "latest"
        return json.loads(latest.read_text())["step"] // STEPS_PER_EPOCH if latest.exists() else 0

    def state(self, job):
        """As Slurm has it."""
        told = self.sh(f"scontrol --oneliner show job {job}")
        return re.search(r"JobState=(\w+)", told)[1], re.search(r" NodeList=(\S*)", told)[1]

    def wait_end(self, job):
        """Until it has ended; how."""
        return self.wait(f"the end of job {job}", lambda: (state := self.state(job)[0]) in ENDS and state)


@pytest.fixture
def site(tmp_path):
    """Empty, with two nodes."""
    with Slurm(tmp_path / "s") as slurm:
        yield Site(slurm)


class Account(LibraryJob):
    """What the processes of `tests/worker/job/library.py` wrote down in `folder`; Slurm starts them, so there are no
    pods of a LocalJob to set up."""

    def __init__(self, site):
        self.folder = self.notes = site.folder / "account"
        self.report = site.slurm.report
        self.folder.mkdir()

    def wait(self, what, look, *, seconds=SECONDS):
        return super().wait(what, look, seconds=seconds)

    def pids(self, pod):
        """Of the pod's training processes so far."""
        return {step["pid"] for step in self.steps() if step["pod"] == pod}


def epochs(text):
    """Number and processes of each epoch that the library's example told of."""
    return [(int(epoch), int(size)) for epoch, size in re.findall(r"^epoch (\d+) on (\d+) processes", text, re.M)]


def test_both_scripts_of_the_readme_train_on_two_nodes_to_their_end(site):
    (block,) = blocks("examples/slurm/README.md", "sh")
    told = site.sh(block.text)
    plain, ours = re.findall(r"^Submitted batch job (\d+)$", told, re.M)
    assert [site.wait_end(job) for job in (plain, ours)] == ["COMPLETED", "COMPLETED"], site.slurm.report()
    address = site.slurm.nodes[0].address
    assert f"Node IP: {address}\n" in site.output(plain)
    assert f"rdzv_endpoint            : {address}:29500" in site.output(plain), "LOGLEVEL is INFO"
    for rank in range(2):
        trained = re.findall(rf"^\[GPU{rank}\] Epoch (\d+) ", site.output(plain), re.M)
        assert [int(epoch) for epoch in trained] == list(range(50))
    assert site.output(plain).count("Training snapshot saved at snapshot.pt") == 5
    assert epochs(site.output(ours)) == [(epoch, 2) for epoch in range(20)]


def test_what_the_page_shows_happens(site):
    by_torchrun, ours, down, again = (block.text for block in blocks("docs/slurm.md", "sh"))
    assert "[GPU1] Epoch 49 " in site.sh(by_torchrun)
    told = site.sh(ours)
    job = re.search(r"^Submitted batch job (\d+)$", told, re.M)[1]
    at = site.wait_said(job, r"^epoch \d+ on 2 processes")
    site.sh(down)
    at = site.wait_said(job, r"^epoch \d+ on 1 processes", after=at)
    assert site.state(job) == ("RUNNING", "node1")
    told = site.output(job)
    assert "reason=Loss in_place=1" in told
    done = [epoch for epoch, _ in epochs(told)]
    assert done == list(range(len(done))), "no epoch is done again"
    # Slurm starts it again, on as many nodes as it was submitted for, when there are enough.
    site.slurm.wait("node2 is back", lambda: site.slurm.states().get("node2") == "idle")
    site.wait("the last of these epochs is saved", lambda: site.saved_epochs() >= len(done))
    site.sh(again)
    at = site.wait_said(job, r"^epoch \d+ on 2 processes", after=at)
    assert epochs(site.output(job)[:at])[-1][0] >= done[-1], "it goes on from its checkpoints"


def test_a_node_that_is_switched_off_costs_one_step_and_the_job_ends_well(site):
    account = Account(site)
    job = site.sh(f"sbatch --parsable elastic_run.sh {SCRIPTS}/library.py {account.folder}").strip()
    before = account.wait_world(2)
    survivors = account.pids("node1")
    lost = site.slurm.machines["node2"]
    # Nobody says that it has gone: no connection of it is closed.
    site.slurm.network.cut(lost.place)
    lost.kill()
    account.wait_world(1, after=before)
    assert account.pids("node1") == survivors
    account.finish(epochs=2)
    # Else the job stays COMPLETING until Slurm has found it out.
    site.sh("scontrol update NodeName=node2 State=DOWN Reason=off")
    assert site.wait_end(job) == "COMPLETED", site.slurm.report()
    account.assert_exactly_once()
    assert account.repeated_steps() == []


def test_a_plain_script_starts_again_from_its_snapshot_when_the_step_of_a_node_gets_sigterm(site):
    job = site.sh("sbatch --parsable elastic_run.sh multinode_torchrun.py 100000 1").strip()
    at = site.wait_said(job, r"^\[GPU1\] Epoch (\d+) ")
    site.wait_said(job, r"Training snapshot saved", after=at)
    (step,) = re.findall(r"^(\S+) node2$", site.sh("squeue --noheader --steps --format='%i %N'"), re.M)
    site.sh(f"scancel --signal=TERM {step} || true")
    at = site.wait_said(job, r"generation=2 pods=1 ", after=at)
    at = site.wait_said(job, r"Resuming training from snapshot at Epoch \d+", after=at)
    site.wait_said(job, r"^\[GPU0\] Epoch (\d+) ", after=at)
    site.sh(f"scancel {job}")
    assert site.wait_end(job) == "CANCELLED"
