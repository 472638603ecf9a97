"""Exported scripts on two nodes of a real Slurm: they train to their end, and a job of several sizes shrinks."""

from __future__ import annotations

import re
import shutil

import pytest

from elastic_client.convert.to_sbatch import to_sbatch
from tests.client.convert.test_exports import make_job
from tests.docs.pages import REPOSITORY
from tests.slurm.slurm import Slurm

pytestmark = [pytest.mark.programs, pytest.mark.extended, pytest.mark.timeout(900)]

SCRIPT = "multinode_torchrun.py"
GPU = {"limits": {"nvidia.com/gpu": 1}}
SECONDS = 420


class Site:
    """A folder with the training script that all machines of a Slurm see."""

    def __init__(self, slurm):
        self.slurm = slurm
        self.folder = slurm.folder / "work"
        self.folder.mkdir()
        shutil.copy(REPOSITORY / "examples" / "slurm" / SCRIPT, self.folder)

    def submit(self, body):
        """The number of the job."""
        (self.folder / "job.sh").write_text(to_sbatch(body))
        return self.slurm.sh("sbatch --parsable job.sh", folder=self.folder).strip()

    def output(self, job):
        path = self.folder / f"slurm-{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_said(self, job, pattern, *, after=0):
        """Until that stands in the output, beyond so many characters; gives where it ends."""

        def found():
            return re.search(pattern, self.output(job)[after:], re.MULTILINE)

        return after + self.slurm.wait(pattern, found, seconds=SECONDS).end()

    def state(self, job):
        told = self.slurm.sh(f"scontrol --oneliner show job {job}", folder=self.folder)
        return re.search(r"JobState=(\w+)", told)[1]


@pytest.fixture
def site(tmp_path):
    with Slurm(tmp_path / "s") as slurm:
        yield Site(slurm)


def test_a_job_of_one_size_trains_on_its_nodes_to_the_end(site):
    job = site.submit(make_job(args=[SCRIPT, "5", "1"], resources=GPU))
    site.slurm.wait("its end", lambda: site.state(job) in ("COMPLETED", "FAILED"), seconds=SECONDS)
    assert site.state(job) == "COMPLETED", site.slurm.report()
    for rank in range(2):
        assert [int(n) for n in re.findall(rf"^\[GPU{rank}\] Epoch (\d+) ", site.output(job), re.M)] == list(range(5))


def test_a_job_of_several_sizes_takes_both_nodes_and_trains_on_when_one_is_lost(site):
    job = site.submit(make_job(fewest=1, most=2, args=[SCRIPT, "100000", "1"], resources=GPU))
    at = site.wait_said(job, r"^\[GPU1\] Epoch \d+ ")
    at = site.wait_said(job, r"^Epoch \d+ \| Training snapshot saved", after=at)
    site.slurm.machines["node2"].kill()
    at = site.wait_said(job, r"^Resuming training from snapshot", after=at)
    at = site.wait_said(job, r"^\[GPU0\] Epoch \d+ .* Steps: 64$", after=at)
    site.slurm.sh("scontrol update NodeName=node2 State=DOWN Reason=off", folder=site.folder)
    site.wait_said(job, r"Node failure on node2[^$]*?^Epoch \d+ ", after=at)
    assert site.state(job) == "RUNNING"


def test_a_job_at_its_time_limit_is_requeued_and_resumes_from_its_checkpoint(site):
    job = site.submit(make_job(args=[SCRIPT, "100000", "1"], resources=GPU))
    at = site.wait_said(job, r"^Epoch \d+ \| Training snapshot saved")
    site.slurm.sh(f"scancel --batch --signal=USR1 {job}", folder=site.folder)
    at = site.wait_said(job, r"^Resuming training from snapshot", after=at)
    site.wait_said(job, r"^\[GPU1\] Epoch \d+ ", after=at)
    assert " Restarts=1 " in site.slurm.sh(f"scontrol --oneliner show job {job}", folder=site.folder)
