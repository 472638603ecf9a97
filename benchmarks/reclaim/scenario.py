"""The content of the clusters, as plain data.

The large one: elastic jobs of `teams` teams hold every GPU, more than half of them beyond their teams' guarantees; one
more team has half of the cluster guaranteed and uses nothing. The small one: four nodes of one GPU, two teams with two
GPUs each, and a job of one team that runs on all four.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.live.errors import BenchError
from benchmarks.live.place import Body

GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8
GUARANTEED_TO_OTHERS = 0.9
"""The part of the other GPUs that the other teams are guaranteed. If it were all, no plan could empty the last nodes
for a gang: three to seven teams have pods on each of them, and one team would always fall below its guarantee (245
nodes of 250 could be emptied).
"""
OWNER = "owner"
"""The namespace, and the team, whose guarantee is idle."""
GANG = "gang"

SMALL_NODES = 4
SMALL_JOB = "small-job"
SMALL_BORROWER, SMALL_OWNER = "small-a", "small-b"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`jobs` jobs of as many pods as fill `nodes` nodes; `tries` of each kind; `gang` pods of a whole node each."""

    nodes: int = 500
    jobs: int = 1000
    teams: int = 20
    tries: int = 20
    gang: int = 250

    def __post_init__(self) -> None:
        if self.gpus % self.jobs or self.size < 2:
            raise BenchError(f"jobs={self.jobs}: write a number that divides the {self.gpus} GPUs, at most half of it")
        if self.jobs % self.teams or self.gpus // self.teams % 2:
            raise BenchError(f"teams={self.teams}: write a number that gives each the same, even number of GPUs")
        if self.gang > self.nodes // 2:
            raise BenchError(f"gang={self.gang}: write at most {self.nodes // 2}, half of the nodes")
        if self.tries > self.gpus // 2:
            raise BenchError(f"tries={self.tries}: write at most {self.gpus // 2}, what the owner is guaranteed")

    @property
    def gpus(self) -> int:
        """The number of all GPUs."""
        return self.nodes * GPUS_PER_NODE

    @property
    def size(self) -> int:
        """Pods of each job, of one GPU each."""
        return self.gpus // self.jobs

    @property
    def guarantees(self) -> dict[str, int]:
        """GPUs guaranteed to each team: half of all to the owner, most of the rest to the others."""
        half = self.gpus // 2
        others = int(half * GUARANTEED_TO_OTHERS) // self.teams
        return {OWNER: half} | {team(number): others for number in range(self.teams)}

    @property
    def job_names(self) -> list[tuple[str, str]]:
        """Namespace and name of each job, the teams in turn."""
        return [(team(number % self.teams), f"job-{number}") for number in range(self.jobs)]

    def job(self, name: str) -> Body:
        """One of the jobs: every other one can shrink to its master alone, the rest keep two pods."""
        return job(name, least=1 + int(name.rsplit("-", 1)[1]) % 2, most=self.size)


def team(number: int) -> str:
    """The team and its only namespace."""
    return f"team-{number}"


def policy(name: str, guaranteed: int) -> Body:
    """A policy for the namespace of that name, with guaranteed GPUs and unlimited borrowing."""
    return {
        "apiVersion": "elastic-pytorch.dev/v1beta1",
        "kind": "GPUQuotaPolicy",
        "metadata": {"name": name},
        "spec": {"namespaces": [name], "flavors": [{"name": "default", "guaranteed": guaranteed}]},
    }


def job(name: str, *, least: int, most: int) -> Body:
    """A job in Torchrun mode, of pods with one GPU."""
    return {
        "apiVersion": "elastic-pytorch.dev/v1beta1",
        "kind": "ElasticPyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "minReplicas": least,
            "maxReplicas": most,
            "elasticity": {"scaleUpDelaySeconds": 0},
            "template": {"spec": {"containers": [{"name": "pytorch", "args": ["train.py"], **_container(1)}]}},
        },
    }


def plain_pod(name: str) -> Body:
    """A plain pod with one GPU, such as a notebook."""
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", **_container(1)}]}}


def gang(pods: int, *, name: str = GANG) -> Body:
    """A Job of Kubernetes: pods of a whole node each, all at once."""
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", **_container(GPUS_PER_NODE)}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec}},
    }


def _container(gpus: int) -> Mapping[str, object]:
    return {"image": "local/none:1", "resources": {"limits": {GPU: str(gpus)}}}
