"""The examples that are whole, without a cluster: by hand as each README.md says, and as pods that come and go."""

from collections import Counter

import pytest

from tests.examples.folders import IN_THE_IMAGE, NAMES, by_hand, epochs_in, processes_of
from tests.examples.pods import ExampleJob
from tests.examples.torchrun import run_line

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

QUICK = ("--pause", "0.2")
IN_THE_GATE = ("fsdp2",)
"""Of those that grow and shrink: what is saved is cut anew for each number of processes."""


def names(gate):
    """All examples, those that are not in the gate marked so."""
    return [pytest.param(name, marks=[] if name in gate else pytest.mark.extended) for name in NAMES]


@pytest.mark.parametrize("name", names(IN_THE_IMAGE))
def test_an_example_runs_by_hand_as_its_readme_says(name, tmp_path):
    (line,) = by_hand(name)
    told = epochs_in(run_line(line, folder=tmp_path))
    assert told
    first, _ = told[0]
    assert told == [(first + index, 2) for index in range(len(told))]


@pytest.mark.parametrize("name", names(IN_THE_GATE))
def test_an_example_grows_and_shrinks_and_a_later_job_resumes_from_its_checkpoint(name, tmp_path):
    checkpoints, each = tmp_path / "checkpoints", processes_of(name)
    with ExampleJob(name, tmp_path / "first", checkpoints=checkpoints, more=QUICK) as job:
        job.start(0)
        small = job.trains(each)
        job.start(1)
        large = job.trains(2 * each, after=small)
        job.pods[1].terminate()
        job.write_membership(0)
        job.trains(each, after=large)
        assert job.wait_code(job.pods[1]) == 143
        job.pods[0].terminate()
        assert job.wait_code(job.pods[0]) == 143
        last = is_without_a_gap(job, changes=2)
    with ExampleJob(name, tmp_path / "second", checkpoints=checkpoints, epochs=last + 3, more=QUICK) as again:
        again.start(0)
        assert again.wait_code(again.pods[0]) == 0, again.report()
        rest = [epoch for epoch, _ in again.epochs()]
        assert rest[0] in (last, last + 1), again.report()
        assert rest == list(range(rest[0], rest[-1] + 1)), again.report()
        assert rest[-1] in (last + 2, last + 3), "counted from 0, or from 1"


def is_without_a_gap(job, *, changes):
    """The last epoch; none is left out, and each change had at most the one under way begun again.

    The processes stand still a moment after the checkpoint was written, and have printed the next epoch perhaps.
    """
    told = Counter(epoch for epoch, _ in job.epochs())
    assert sorted(told) == list(range(min(told), max(told) + 1)), job.report()
    assert told.total() - len(told) <= changes, job.report()
    return max(told)
