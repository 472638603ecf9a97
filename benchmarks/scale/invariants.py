"""Checks the invariants of a run over the writes of its audit log. Pure arithmetic.

Every pod has one GPU. A log has the times of arrival and of answer, and a write takes effect in between. So a creation
or a binding counts here when it is answered, and a deletion when it arrives. A deletion that the server gave up counts,
such a creation does not. So each reported violation is certain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from benchmarks.live.audit import Write
from benchmarks.live.errors import BenchError
from benchmarks.live.place import CLIENT, KUBELETS, OPERATOR
from benchmarks.react.latencies import JOB_STATUS, SCALE
from benchmarks.reclaim.stages import BIND, CREATE, DELETE, POD_STATUS
from benchmarks.scale.fill import CREATE_JOB, job_of

DELETE_JOB = "delete elasticpytorchjobs"
DELETE_PODS, DELETE_JOBS = "deletecollection pods", "deletecollection elasticpytorchjobs"
TOLD = 5
"""The most violations in the error."""


@dataclass(slots=True)
class Pod:
    """An existing pod. `ours`: the operator created it. `leaves`: it is being deleted."""

    name: str
    created: float
    ours: bool
    node: str = ""
    bound: float = 0.0
    runs: bool = False
    ended: bool = False
    leaves: bool = False

    def __str__(self) -> str:
        bound = f"on {self.node} since {_clock(self.bound)}" if self.node else "on no node"
        return f"{self.name} (created {_clock(self.created)}, {bound})"


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant, its time, and the pods involved. The last pod's write is the breach."""

    what: str
    at: float
    pods: tuple[Pod, ...]

    def __str__(self) -> str:
        return f"{_clock(self.at)}: {self.what}: {', '.join(map(str, self.pods))}"


def violations(writes: Iterable[Write], *, unsure: Iterable[Write] = (), gpus: int, most: int) -> list[Violation]:
    """All violations, on nodes of `gpus` GPUs, with jobs of at most `most` pods each until they are scaled."""
    world = _World(gpus, most)
    given_up = (replace(write, at_once=True) for write in unsure if write.what in {DELETE, DELETE_PODS})
    for write in sorted((*writes, *given_up), key=_moment):
        world.at = _moment(write)
        world.see(write)
    return [*world.found, *world.left()]


def must_hold(found: Sequence[Violation]) -> None:
    """Raise BenchError if there is a violation."""
    if found:
        told = "\n".join(map(str, found[:TOLD]))
        raise BenchError(f"{len(found)} invariants were violated; times are the audit log's:\n{told}")


@dataclass(slots=True)
class _World:
    """All pods and jobs, write by write."""

    gpus: int
    most: int
    at: float = 0.0
    pods: dict[str, Pod] = field(default_factory=dict)
    of_job: defaultdict[str, dict[str, Pod]] = field(default_factory=lambda: defaultdict(dict))
    on_node: defaultdict[str, dict[str, Pod]] = field(default_factory=lambda: defaultdict(dict))
    scaled: dict[str, int] = field(default_factory=dict)
    """maxReplicas of the jobs that were scaled up."""
    jobs: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)
    early: dict[str, float] = field(default_factory=dict)
    """Deletions that arrived before the answer to the pod's creation."""
    found: list[Violation] = field(default_factory=list)

    def see(self, write: Write) -> None:
        """Process the next write."""
        pod = self.pods.get(write.name)
        if write.what == CREATE:
            self._create(write)
        elif write.what == BIND and pod:
            self._bind(pod, write.node)
        elif write.what == DELETE and pod:
            self._delete(pod, at_once=write.at_once or write.user == KUBELETS)
        elif write.what == DELETE:
            self.early[write.name] = write.received
        elif write.what == DELETE_PODS:
            for each in list(self.pods.values()):
                self._delete(each, at_once=write.at_once)
        elif write.what == POD_STATUS and write.user == KUBELETS and pod:
            pod.runs = bool(pod.node)
        elif write.what == POD_STATUS and write.user == CLIENT and pod:
            pod.ended = True
            self.on_node[pod.node].pop(pod.name, None)
        elif write.what == SCALE and write.replicas is not None:
            self.scaled[write.name] = max(self.most, write.replicas)
        elif write.what == CREATE_JOB:
            self.jobs.add(write.name)
            self.over.discard(write.name)
        elif write.what == DELETE_JOB or (write.what == JOB_STATUS and write.ends):
            self.over.add(write.name)
        elif write.what == DELETE_JOBS:
            self.over |= self.jobs

    def left(self) -> list[Violation]:
        """Pods of ended jobs that are not being deleted."""
        return [
            Violation("pod left of a job that is over", self.at, (pod,))
            for job in sorted(self.over)
            for pod in _live(self.of_job[job].values())
        ]

    def _create(self, write: Write) -> None:
        name, job = write.name, job_of(write.name)
        pod = Pod(name, write.done, write.user == OPERATOR, leaves=self.early.get(name, 0.0) > write.received)
        if name in self.pods:
            self._breach("two pods of the same role and index", self.pods[name], pod)
        self.pods[name] = self.of_job[job][name] = pod
        live = _live(self.of_job[job].values())
        most = self.scaled.get(job, self.most)
        if pod in live and len(live) > most:
            self._breach(f"more than maxReplicas ({most}) pods of job {job}", *live)

    def _bind(self, pod: Pod, node: str) -> None:
        pod.node, pod.bound = node, self.at
        held = self.on_node[node]
        held[pod.name] = pod
        if len(held) > self.gpus:
            self._breach(f"{len(held)} GPUs of node {node} taken, which has {self.gpus}", *held.values())

    def _delete(self, pod: Pod, *, at_once: bool) -> None:
        """The API server keeps a deleted pod only while a kubelet has to end it.

        A pod that has a node but does not run yet may have been removed or not: it counts as removed.
        """
        if pod.runs and not (at_once or pod.ended):
            pod.leaves = True
            return
        del self.pods[pod.name]
        self.of_job[job_of(pod.name)].pop(pod.name)
        self.on_node[pod.node].pop(pod.name, None)

    def _breach(self, what: str, *pods: Pod) -> None:
        self.found.append(Violation(what, self.at, pods))


def _moment(write: Write) -> float:
    return write.done if write.what in {CREATE, BIND, CREATE_JOB} else write.received


def _live(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.ours and not (pod.ended or pod.leaves)]


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S.%f")
