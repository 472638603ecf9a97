"""Launchers of an earlier release and of this one make one job: an operator is upgraded, or rolled back, under it.

releases/76a1580.tar.xz is the worker package of that commit, as `git archive 76a1580 worker/elastic_worker | xz -9e`
writes it: CI's clone has no history. One more is put there with each release that changes what is said (wire.py).
"""

import json
import subprocess

import pytest

from elastic_operator.pods import launcher_wire as said
from tests.worker.job.exactly_once import STEPS, LibraryJob
from tests.worker.job.local import SCRIPTS, LocalJob
from tests.worker.job.pod import WORKER

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]

OLD, NEW = "76a1580", "this"
BOTH = pytest.mark.parametrize(("master", "joiner"), [(NEW, OLD), (OLD, NEW)])


@pytest.fixture
def package(tmp_path):
    """Where the package of each release is."""
    subprocess.run(["tar", "-C", tmp_path, "-xJf", SCRIPTS / "releases" / f"{OLD}.tar.xz"], check=True)
    return {OLD: tmp_path / "worker" / "elastic_worker", NEW: WORKER}


def start(job, **packages):
    """Pods of one release each."""
    for name, worker in packages.items():
        job.worker = worker
        job.start(int(name.removeprefix("pod")))


def assert_operator_understands(job):
    """What the master shows is read by this release's operator, steps included."""
    body = json.dumps(job.status()).encode()
    report = said.read_report(
        body, master_uid="", master_epoch=1, is_member_name=lambda name: name.startswith("toy-"), now=0.0
    )
    assert report is not None, body
    assert report.step > 0
    assert {"Join", "Leave"} <= {change.reason for change in report.changes}


@BOTH
def test_a_plain_job_of_two_releases_grows_shrinks_and_ends(tmp_path, tree, package, master, joiner):
    with LocalJob(tmp_path / "job", tree=tree, fewest=2) as job:
        start(job, pod0=package[master], pod1=package[joiner])
        first = job.wait_training(2)
        start(job, pod2=package[joiner], pod3=package[master])
        grown = job.wait_training(4, after=first)
        for index in (1, 3):
            job.pods[index].terminate()
        job.write_membership(0, 2)
        job.wait_training(2, after=grown)
        assert [job.wait_code(job.pods[index]) for index in (1, 3)] == [143, 143]
        assert_operator_understands(job)
        assert job.repeated() == 0, job.report()
        job.finish()
        assert [job.wait_code(job.pods[index]) for index in (0, 2)] == [0, 0]
        job.assert_no_epoch_skipped()


@BOTH
def test_a_master_of_another_release_takes_over(tmp_path, tree, package, master, joiner):
    """The members bring what they were told of their group, as that release says it."""
    with LocalJob(tmp_path / "job", tree=tree, fewest=2) as job:
        start(job, pod0=package[master], pod1=package[joiner], pod2=package[master])
        before = job.wait_training(3)
        job.pods[0].kill()
        start(job, pod0=package[joiner])
        after = job.wait_training(3, after=before)
        assert after > before
        assert job.status()["changes"][0]["reason"] == "MasterLost"
        job.assert_no_epoch_skipped()


@pytest.mark.extended
@BOTH
def test_a_job_of_two_releases_changes_in_place(tmp_path, package, master, joiner):
    with LibraryJob(tmp_path / "job") as job:
        start(job, pod0=package[master], pod1=package[joiner])
        small = job.wait_world(2)
        start(job, pod2=package[joiner])
        large = job.wait_world(3, after=small)
        job.pods[1].terminate()
        job.write_membership(0, 2)
        job.wait_world(2, after=large)
        assert job.wait_code(job.pods[1]) == 143
        assert_operator_understands(job)
        epochs = job.finish()
        assert [job.wait_code(job.pods[index]) for index in (0, 2)] == [0, 0]
        assert job.repeated_steps() == []
        assert job.assert_exactly_once() == epochs * STEPS
