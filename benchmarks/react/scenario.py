"""The content of the cluster: two pools of fake nodes, jobs in both, foreign pods in one. Plain data.

In the pool `full` every GPU is in use, by foreign pods or by jobs that want twice their size: each job wants a freed
GPU, and its status says why it is not bigger. The pool `roomy` holds a few jobs that have all requested GPUs, and room
for two more pods of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from benchmarks.live.errors import BenchError

NAMESPACE = "bench"
GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8
ADDED_BY_SCALE = 2


@dataclass(frozen=True, slots=True)
class Scenario:
    """`jobs` jobs with `pods` pods of one GPU together; `tries` of each kind."""

    jobs: int = 250
    pods: int = 1000
    tries: int = 20

    def __post_init__(self) -> None:
        if self.pods % self.jobs or self.size < 2:
            raise BenchError(f"pods={self.pods}: write a multiple of jobs={self.jobs}, at least twice as many")
        if self.jobs < 2 * self.tries:
            raise BenchError(f"tries={self.tries}: write at most {self.jobs // 2}, half of the jobs")

    @property
    def size(self) -> int:
        """Pods of each job at the start."""
        return self.pods // self.jobs

    @property
    def roomy_jobs(self) -> list[str]:
        """Jobs that will be scaled, each once."""
        return [f"roomy-{number}" for number in range(self.tries)]

    @property
    def full_jobs(self) -> list[str]:
        """Jobs that want more GPUs than exist."""
        return [f"full-{number}" for number in range(self.jobs - self.tries)]

    @property
    def full_nodes(self) -> int:
        """Nodes of the pool `full`: for its jobs, and for one foreign pod for each try."""
        return math.ceil((len(self.full_jobs) * self.size + self.tries) / GPUS_PER_NODE)

    @property
    def roomy_nodes(self) -> int:
        """Nodes of the pool `roomy`."""
        return math.ceil(self.tries * (self.size + ADDED_BY_SCALE) / GPUS_PER_NODE)

    @property
    def foreign_pods(self) -> list[str]:
        """The number of foreign pods: the rest of the pool `full`."""
        count = self.full_nodes * GPUS_PER_NODE - len(self.full_jobs) * self.size
        return [f"foreign-{number}" for number in range(count)]


def pool(name: str) -> dict[str, str]:
    """The label of a pool's nodes."""
    return {"pool": name}


def job(name: str, *, size: int) -> dict[str, Any]:
    """A job of one to `size` pods in the pool that its name begins with."""
    container = {"name": "pytorch", "image": "local/none:1", "args": ["train.py"], "resources": {"limits": {GPU: 1}}}
    return {
        "apiVersion": "elastic-pytorch.dev/v1beta1",
        "kind": "ElasticPyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "minReplicas": 1,
            "maxReplicas": size,
            "elasticity": {"scaleUpDelaySeconds": 0},
            "template": {"spec": {"nodeSelector": pool(name.split("-")[0]), "containers": [container]}},
        },
    }


def foreign_pod(name: str) -> dict[str, Any]:
    """A foreign pod, which affects the operator only by the GPU that it holds."""
    container = {"name": "main", "image": "local/none:1", "resources": {"limits": {GPU: "1"}}}
    return {"metadata": {"name": name}, "spec": {"nodeSelector": pool("full"), "containers": [container]}}
