"""The three other policies. Each places pods itself, by the rule of the simulated kube-scheduler, and sees events at
once.

The first two use only the wanted size of a job. `Static` lets a team use its guarantee and nothing else.
`WholeJobs` works like a cohort of Kueue: jobs borrow idle GPUs, and whole jobs of borrowers are stopped for entitled
jobs. Stopped jobs start again from their last checkpoint, and queue with their old age. `FirstCome` grows jobs into
idle GPUs, and no job gives GPUs back before its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from benchmarks.policy.model import Mode
from benchmarks.policy.packing import fits, fullest, packed
from benchmarks.policy.traces import JobTrace
from benchmarks.policy.training import Training
from benchmarks.policy.world import Plain, World


@dataclass(frozen=True, slots=True)
class _Asker:
    """A job that lacks pods, or a plain pod without a node: the number of pods that it requests, and their GPUs."""

    name: str
    team: str
    priority: int
    arrives: float
    gpus: int
    count: int
    job: Training | None = None
    pod: Plain | None = None

    @property
    def order(self) -> tuple[int, float, str]:
        """Higher priority first, then age."""
        return -self.priority, self.arrives, self.name

    def start(self, world: World, nodes: Sequence[int]) -> None:
        """Create its pods on these nodes."""
        if self.pod is not None:
            world.place(self.pod, nodes[0])
        if self.job is not None:
            _create(world, self.job, nodes)


class _FixedSizes:
    """The common part of the policies for fixed sizes: a job runs with its wanted size, or not at all."""

    name = ""

    def __init__(self) -> None:
        self.wake = inf

    def least(self, job: JobTrace) -> int:
        """The whole job."""
        return job.wanted

    def mode(self, job: JobTrace) -> Mode:  # noqa: ARG002 - a policy's method
        """A plain script for one size."""
        return Mode.FIXED


class Static(_FixedSizes):
    """Each team has its guarantee, and nothing else."""

    name = "static sizes"

    def decide(self, world: World) -> None:
        """Start jobs and pods that fit into their team's guarantee. One that does not fit does not block later ones."""
        for one in _askers(world):
            if _is_entitled(world, one) and (nodes := packed(world.free(), one.gpus, one.count)) is not None:
                one.start(world, nodes)


class WholeJobs(_FixedSizes):
    """Borrowing, and preemption of whole jobs."""

    name = "whole jobs"

    def __init__(self) -> None:
        super().__init__()
        self._started: dict[str, float] = {}
        self._preempting: set[str] = set()
        """The jobs and pods for which others were stopped: the freed GPUs are reserved for them."""

    def decide(self, world: World) -> None:
        """Serve jobs and pods: first within a team's guarantee, then by priority and age. None blocks the others."""
        kept, askers = [0] * len(world.places), _askers(world)
        self._preempting &= {one.name for one in askers}
        ranks = {one.name: (one.name not in self._preempting, not _is_entitled(world, one)) for one in askers}
        for one in sorted(askers, key=lambda one: (ranks[one.name], one.order)):
            nodes = packed(_less(world.free(), kept), one.gpus, one.count)
            if nodes is not None:
                one.start(world, nodes)
                if one.job is not None and len(one.job.staying) == one.count:
                    self._started[one.name] = world.now
            elif _is_entitled(world, one) or one.priority:
                self._evict_for(world, one, kept)

    def _evict_for(self, world: World, one: _Asker, kept: list[int]) -> None:
        """Reserve the GPUs of leaving pods for the asker, or stop jobs for it, if that suffices."""
        coming = _less(_soon_free(world), kept)
        keeps = _is_entitled(world, one) or one.name in self._preempting
        nodes = packed(coming, one.gpus, one.count) if keeps else None
        if nodes is None:
            victims = self._victims(world, one, coming)
            nodes = packed(_with(coming, victims), one.gpus, one.count) if victims else None
            for victim in victims:
                world.delete(victim, victim.staying)
                self._preempting.add(one.name)
        for node in nodes or ():
            kept[node] += one.gpus

    def _victims(self, world: World, one: _Asker, free: Sequence[int]) -> list[Training]:
        """The cheapest set of jobs to stop: lowest priority, then fewest GPUs, then latest starts."""
        sets = [self._weakest(world, one, free), *([job] for job in self._candidates(world, one))]
        enough = [jobs for jobs in sets if jobs and fits(_with(free, jobs), one.gpus, one.count)]
        return min(enough, key=self._cost, default=[])

    def _cost(self, jobs: Sequence[Training]) -> tuple[float, ...]:
        priority = max(job.trace.priority for job in jobs)
        started = min(self._started.get(job.trace.name, 0.0) for job in jobs)
        return priority, sum(job.held for job in jobs), -started

    def _weakest(self, world: World, one: _Asker, free: Sequence[int]) -> list[Training]:
        """Jobs of borrowing teams by lowest priority and latest start, without those that need not stop."""
        chosen: list[Training] = []
        for job in self._candidates(world, one):
            if fits(_with(free, chosen), one.gpus, one.count):
                break
            given = sum(other.held for other in chosen if other.trace.team == job.trace.team)
            if job.trace.team == one.team or world.used[job.trace.team] - given > world.guaranteed[job.trace.team]:
                chosen.append(job)
        for job in sorted(chosen, key=lambda job: -job.held):
            others = [other for other in chosen if other is not job]
            if fits(_with(free, others), one.gpus, one.count):
                chosen = others
        return chosen

    def _candidates(self, world: World, one: _Asker) -> list[Training]:
        """The jobs that may be stopped: borrowers' if the asker is entitled, and less important ones of its team."""
        entitled = _is_entitled(world, one)
        found = [
            job
            for job in world.jobs.values()
            if job.staying
            and (
                job.trace.priority < one.priority
                if job.trace.team == one.team
                else entitled and world.used[job.trace.team] > world.guaranteed[job.trace.team]
            )
        ]
        return sorted(found, key=lambda job: (job.trace.priority, -self._started.get(job.trace.name, 0.0)))


class FirstCome:
    """Elastic jobs grow into idle GPUs, and keep them."""

    name = "first come"

    def __init__(self) -> None:
        self.wake = inf
        self._changed: dict[str, tuple[int, float]] = {}

    def least(self, job: JobTrace) -> int:
        """Its minimum."""
        return job.least

    def mode(self, job: JobTrace) -> Mode:
        """The job's own mode."""
        return job.mode

    def decide(self, world: World) -> None:
        """Minima in the order of arrival, then growth of the smallest."""
        for one in _askers(world):
            nodes = packed(world.free(), one.gpus, one.count)
            if nodes is not None:
                one.start(world, nodes)
        self._note_changes(world)
        while job := self._next_to_grow(world):
            node = fullest(world.free(), job.trace.gpus)
            assert node is not None, "the pods fit"
            _create(world, job, [node])
        self._note_changes(world)
        times = (at + world.jobs[name].trace.delay for name, (_, at) in self._changed.items())
        self.wake = min((time for time in times if time > world.now), default=inf)

    def _note_changes(self, world: World) -> None:
        before = self._changed
        sizes = {name: len(job.staying) for name, job in world.jobs.items()}
        self._changed = {
            name: before[name] if name in before and before[name][0] == size else (size, world.now)
            for name, size in sizes.items()
        }

    def _next_to_grow(self, world: World) -> Training | None:
        room = max(world.free())
        may = (
            job
            for name, job in world.jobs.items()
            if job.trace.gpus <= room
            and job.least <= len(job.staying) < job.trace.most
            and (len(job.staying) > self._changed[name][0] or world.now >= self._changed[name][1] + job.trace.delay)
        )
        return min(may, key=lambda job: (len(job.staying) / job.trace.most, job.trace.arrives), default=None)


def _askers(world: World) -> list[_Asker]:
    """All jobs that lack pods and all plain pods without a node, by priority and age."""
    jobs = (
        _Asker(name, job.trace.team, job.trace.priority, job.trace.arrives, job.trace.gpus, count, job=job)
        for name, job in world.jobs.items()
        if (count := job.least - len(job.staying)) > 0
    )
    plain = (
        _Asker(name, pod.trace.team, 0, pod.trace.arrives, 1, 1, pod=pod)
        for name, pod in world.plain.items()
        if pod.node is None
    )
    return sorted((*jobs, *plain), key=lambda one: one.order)


def _create(world: World, job: Training, nodes: Iterable[int]) -> None:
    """Create pods of the job on these nodes, under the lowest free indices."""
    for node in nodes:
        taken = {pod.index for pod in job.staying}
        world.create(job, next(index for index in range(len(taken) + 1) if index not in taken), node)


def _is_entitled(world: World, one: _Asker) -> bool:
    return world.used[one.team] + one.gpus * one.count <= world.guaranteed[one.team]


def _soon_free(world: World) -> list[int]:
    """GPUs that are free or will be, by node: GPUs of leaving pods are included."""
    free = world.free()
    for job in world.jobs.values():
        for pod in job.pods.values():
            if not pod.stays and world.places[pod.node].away_since == inf:
                free[pod.node] += pod.gpus
    return free


def _less(free: Sequence[int], kept: Sequence[int]) -> list[int]:
    return [room - held for room, held in zip(free, kept, strict=True)]


def _with(free: Sequence[int], jobs: Iterable[Training]) -> list[int]:
    """The free GPUs together with the GPUs of these jobs."""
    more = list(free)
    for job in jobs:
        for pod in job.staying:
            more[pod.node] += pod.gpus
    return more
