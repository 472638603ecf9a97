"""The size of the cluster, and the holders of its GPUs. Plain numbers.

Every GPU is in use: by jobs that all want more, and by foreign pods, about one for each eighth GPU. The other pods
request a little CPU and memory, as web servers and daemons do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

GPUS_PER_NODE = 8
CPUS_PER_NODE = 256
FOREIGN_GPU_PODS = 8
"""One GPU in this many is held by a foreign pod."""
MOST_PODS = 16
"""maxReplicas of each job, far more than it can get."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`jobs` jobs of `teams` namespaces on `nodes` nodes of 8 GPUs, and `pods` pods of all kinds together.

    Each team has a policy of its own.
    """

    nodes: int = 500
    jobs: int = 1000
    teams: int = 20
    pods: int = 30_000

    def scaled(self, part: float) -> Scenario:
        """The same cluster, smaller; the numbers of pods per node and per job stay."""
        return Scenario(
            nodes=round(self.nodes * part),
            jobs=round(self.jobs * part),
            teams=max(1, round(self.teams * part)),
            pods=round(self.pods * part),
        )

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * GPUS_PER_NODE

    @property
    def guarantee(self) -> int:
        """GPUs that each team is guaranteed: three quarters of all of them together."""
        return self.gpus * 3 // (4 * self.teams)

    def job_names(self) -> list[tuple[str, str]]:
        """Namespace and name of each job."""
        return [(f"team-{number % self.teams}", f"job-{number}") for number in range(self.jobs)]

    def gpu_holders(self) -> Iterator[tuple[int, int | None]]:
        """(node, job) for each GPU, both as numbers; job is None for a foreign pod. Jobs take turns."""
        ours = 0
        for gpu in range(self.gpus):
            if gpu % FOREIGN_GPU_PODS == FOREIGN_GPU_PODS - 1:
                yield gpu // GPUS_PER_NODE, None
            else:
                yield gpu // GPUS_PER_NODE, ours % self.jobs
                ours += 1
