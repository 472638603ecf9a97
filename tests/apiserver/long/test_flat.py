"""What the operator holds does not grow with what has been: thousands of jobs come and go, it stays as it is."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import pytest

from tests.apiserver.jobs_api import Jobs
from tests.apiserver.long.crowd import Crowd
from tests.apiserver.operators import Operator, Operators, eventually

pytestmark = [pytest.mark.apiserver, pytest.mark.long]

JOBS = 2000
CROWD = 50
CROWDS_PER_SAMPLE = 2
MOST_GROWTH = 6.0
"""MB in a thousand jobs. What is remembered for some minutes on purpose (events, deletions) is 3 to 4 of them, as weeks
are minutes here. The objects of the jobs, kept by mistake, were 30.
"""
MOST_FILES = 10
"""By so many more connections may one sample differ from another: they are made as they are needed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the operator held when so many jobs had come and gone."""

    jobs: int
    megabytes: float
    files: int

    @classmethod
    def of(cls, operator: Operator, jobs: int) -> Sample:
        """Now."""
        return cls(jobs, operator.resident_bytes() / 1e6, operator.open_files())


@pytest.mark.timeout(3600)
def test_memory_and_open_files_are_constant_over_two_thousand_jobs(
    operators: Operators, jobs: Jobs, fake_nodes: list[str]
) -> None:
    operator = operators.start()
    eventually("a leader", lambda: operator.leads)
    crowd = Crowd.of(jobs, CROWD)
    samples = [Sample.of(operator, 0)]
    for number in range(1, JOBS // CROWD + 1):
        crowd.come_and_go()
        if number % CROWDS_PER_SAMPLE == 0:
            samples.append(Sample.of(operator, number * CROWD))
            print(
                f"{samples[-1].jobs:6} jobs  {samples[-1].megabytes:7.1f} MB  {samples[-1].files:4} files", flush=True
            )
    assert fake_nodes
    assert operator.lives
    assert "Traceback" not in (log := operator.text()), log[log.index("Traceback") - 500 :][:5000]
    late = samples[len(samples) // 2 :]
    growth = statistics.linear_regression([s.jobs for s in late], [s.megabytes for s in late]).slope * 1000
    print(f"growth over the last {late[-1].jobs - late[0].jobs} jobs: {growth:+.2f} MB per 1,000 jobs")
    assert growth < MOST_GROWTH
    assert max(s.files for s in late) < max(s.files for s in samples[1 : len(samples) // 2]) + MOST_FILES
