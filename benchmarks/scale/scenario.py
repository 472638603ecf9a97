"""The content of the cluster, as plain data: elastic jobs that are all created at once, in crowds of several sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.live.errors import BenchError
from benchmarks.live.place import Body
from benchmarks.reclaim.scenario import GPUS_PER_NODE
from benchmarks.reclaim.scenario import job as elastic_job

NAMESPACE = "scale"
SHARES = (0.25, 0.5, 1.0, 2.0)
"""The parts of the jobs, for the growth of all figures with their number."""
SPARE = 1.1
"""The number of nodes over those that the jobs fill, so that kube-scheduler's search for the last place is not
measured.
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`jobs` jobs of `size` pods with one GPU each; `tries` of each single change."""

    jobs: int = 200
    size: int = 4
    tries: int = 20

    def __post_init__(self) -> None:
        if self.jobs < 4 or self.jobs % 4:
            raise BenchError(f"jobs={self.jobs}: write a multiple of 4, as a quarter of them is measured, too")
        if self.size < 2:
            raise BenchError(f"size={self.size}: write at least 2, as workers are lost")
        if not 1 <= self.tries <= self.jobs // 4:
            raise BenchError(f"tries={self.tries}: write 1 to {self.jobs // 4}, a quarter of the jobs")

    @property
    def crowds(self) -> list[int]:
        """Jobs that are created at once, crowd by crowd."""
        return [int(self.jobs * share) for share in SHARES]

    @property
    def nodes(self) -> int:
        """The number of nodes for which the largest crowd runs in full."""
        return math.ceil(max(self.crowds) * self.size / GPUS_PER_NODE * SPARE)

    def names(self, jobs: int) -> list[str]:
        """The names of the jobs of that crowd; no two crowds share a name."""
        return [f"of{jobs}-{number}" for number in range(jobs)]

    def job(self, name: str) -> Body:
        """One job, which may have one to `size` pods."""
        return elastic_job(name, least=1, most=self.size)
