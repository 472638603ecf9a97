"""A training job survives random faults and leaves nothing behind. `make chaos MINUTES=30` does more of it."""

import random

import pytest

from tests.worker.chaos.run import Plan, run
from tests.worker.job.pod import FAKE, REAL

pytestmark = pytest.mark.programs


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("library", "tree"),
    [
        (False, FAKE),
        pytest.param(False, REAL, marks=pytest.mark.extended),
        pytest.param(True, REAL, marks=pytest.mark.extended),
    ],
)
def test_a_job_finishes_after_some_seconds_of_random_faults(tmp_path, library, tree):
    # The choices are the same in each run; what they meet depends on the machine's pace.
    run(tmp_path, Plan(5, seconds=20), say=print, library=library, tree=tree)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("library", [False, True])
def test_a_job_finishes_after_minutes_of_faults_that_nobody_has_chosen(tmp_path, turn, library):
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed {seed}, turn {turn}")
    run(tmp_path, Plan(seed, seconds=180), say=print, library=library)
