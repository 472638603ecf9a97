"""Each launch line of lines.toml, in Elastic mode with real launchers: its job grows, shrinks and loses a process."""

import itertools
import shutil

import pytest

from elastic_worker import contract
from tests.worker.job.local import LocalJob, end, tell
from tests.worker.job.pod import REAL
from tests.worker.launchers.lines import prepare, read

SECONDS = 200.0
"""Before a group comes about, a torchrun has imported torch, and then so has the warm parent of its python."""
SAVE_STEPS = 10
LINES = read()


def marked(line):
    marks = [pytest.mark.processes, pytest.mark.programs, pytest.mark.timeout(600)]
    return pytest.param(line, id=line.origin, marks=[*marks, *([] if line.quick else [pytest.mark.extended])])


class LineJob(LocalJob):
    """A job whose pods run that line, in a folder with the scripts."""

    def __init__(self, folder, line):
        work = folder / "work"
        variables = {
            **prepare(work, line),
            contract.ENV_CHECKPOINT_PATH: str(work / line.checkpoint),
            contract.ENV_CHECKPOINT_COMPLETE: line.complete,
        }
        command = ["--command", "--", "bash", "-c", f"cd {work}; {line.line}"]
        super().__init__(folder, tree=REAL, nproc=line.processes, checkpoint=False, environ=variables, command=command)
        self.work = self.notes = work

    def wait(self, what, look, *, seconds=SECONDS):
        return super().wait(what, look, seconds=seconds)

    def _argv(self):
        """As the operator does, with the python3 that is first on the image's PATH."""
        return [shutil.which("python3", path=self.environ["PATH"]), *super()._argv()[1:]]


@pytest.mark.parametrize("line", [marked(line) for line in LINES if not line.told])
def test_the_line_grows_shrinks_and_goes_on_after_a_kill(tmp_path, line):
    with LineJob(tmp_path, line) as job:
        job.start(0, 1)
        small = job.wait_training(2)
        job.start(2)
        large = job.wait_training(3, after=small)
        job.pods[2].terminate()
        job.write_membership(0, 1)
        again = job.wait_training(2, after=large)
        assert job.wait_code(job.pods[2]) == contract.EXIT_LEFT
        end(job.pods[1].training()[0])
        job.wait_training(2, after=again)
        tell(job.work / "last-step", job.steps()[-1]["step"] + 4 * SAVE_STEPS)
        assert [job.wait_code(job.pods[index], seconds=SECONDS) for index in (0, 1)] == [0, 0], job.report()
        assert_goes_on_from_checkpoints(job)
        assert [pod.name for pod in job.all_pods if "started cold" in pod.said()] == []
        if line.activates:
            assert f"runs in {job.work}/venv" in job.pods[0].said()
        assert [flag for flag in line.not_used if f"{flag} is not used" not in job.pods[0].said()] == []


def assert_goes_on_from_checkpoints(job):
    """No step is left out, and no more is done again than what was not saved yet."""
    first, last = {}, {}
    for step in job.steps():
        first.setdefault(step["generation"], step["step"])
        last.setdefault(step["generation"], {})[step["rank"]] = step["step"]
    assert first[1] == 1
    for number, ends in last.items():
        assert max(ends.values()) - min(ends.values()) <= 2, f"ranks that train alone: {number} {ends}"
    for before, after in itertools.pairwise(sorted(first)):
        ended = max(last[before].values())
        assert ended - SAVE_STEPS - 2 <= first[after] - 1 <= ended, f"{first[after]} after {ended}\n{job.report()}"


@pytest.mark.parametrize("line", [marked(line) for line in LINES if line.told])
def test_a_line_that_cannot_be_kept_is_told_in_one_line_and_at_once(tmp_path, line):
    with LineJob(tmp_path, line) as job:
        job.start(0)
        assert job.wait_code(job.pods[0], seconds=SECONDS) == line.code, job.report()
        assert sum(line.told in said for said in job.pods[0].said().splitlines()) == 1, job.report()
        assert not (job.work / line.checkpoint).exists()
