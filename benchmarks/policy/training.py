"""Simulates one job: its group, its done and saved work, and the cost of changes of its pods.

A group is the pods that train together. `advance` moves the time; between two calls the group does not change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from math import inf

from benchmarks.policy.model import (
    ALIGN_SECONDS,
    LEAVE_SECONDS,
    MISSED_SECONDS,
    NODE_LOSS_SECONDS,
    PAUSES,
    SAVE_SECONDS,
    Assumptions,
    Mode,
    pace,
)
from benchmarks.policy.traces import JobTrace

MOMENT = 1e-6
"""Times that differ by fewer seconds count as one moment."""


@dataclass(slots=True, eq=False)
class Pod:
    """A pod of a job on a node; index 0 is the master's. It can train from `ready` on.

    `leaves` is when it stops training after its deletion, `gone` when its GPUs are free.
    """

    uid: str
    index: int
    node: int
    gpus: int
    ready: float
    leaves: float = inf
    gone: float = inf

    @property
    def stays(self) -> bool:
        """Whether the pod is not being deleted."""
        return self.gone == inf


@dataclass(slots=True)
class Spent:
    """The use of a job's GPU-seconds: `trained` includes work that was `undone` later, by its cause.

    `starting` is the time before its first step, `stopped` the later time in which GPUs were held without a step.
    """

    trained: float = 0.0
    starting: float = 0.0
    stopped: float = 0.0
    undone: dict[str, float] = field(default_factory=lambda: {"change": 0.0, "loss": 0.0})

    @property
    def lost(self) -> float:
        """The GPU-seconds without lasting work."""
        return self.stopped + sum(self.undone.values())


class Training:
    """One job. `least` is the fewest pods that it trains with under the present policy, and `mode` how it is run."""

    def __init__(self, trace: JobTrace, assumed: Assumptions, *, least: int, mode: Mode, now: float) -> None:
        self.trace, self.least, self.mode, self.at = trace, least, mode, now
        self.pods: dict[str, Pod] = {}
        self.group: set[Pod] = set()
        self.generation = 0
        self.done = self.saved = 0.0
        self.spent = Spent()
        self.finished: float | None = None
        self.begun = False
        self._keeps_state: set[Pod] = set()
        self._interval, self._listens = assumed.checkpoint_seconds, assumed.listens
        self._since_save = self._unsaved_gpu_seconds = 0.0
        self._paused_until = 0.0

    @property
    def held(self) -> int:
        """The GPUs of pods that are not being deleted."""
        return sum(pod.gpus for pod in self.pods.values() if pod.stays)

    @property
    def staying(self) -> list[Pod]:
        """The pods that are not being deleted, the master first."""
        return sorted((pod for pod in self.pods.values() if pod.stays), key=lambda pod: pod.index)

    @property
    def missing(self) -> int:
        """The GPUs that it lacks for its wanted size."""
        return max(0, self.trace.wanted * self.trace.gpus - self.held)

    @property
    def _pace(self) -> float:
        return pace(sum(pod.gpus for pod in self.group), self.trace.slope)

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Let time pass until `now`, which is not after `next_event`."""
        if not self.pods:
            self.at = now
            return
        training_from = min(now, max(self.at, self._paused_until)) if self.group else now
        trained, gpus = now - training_from, sum(pod.gpus for pod in self.group)
        held = sum(pod.gpus for pod in self.pods.values()) * (now - self.at)
        if trained > 0:
            self.begun = True
            self._train(trained, gpus)
        if self.begun:
            self.spent.stopped += held - trained * gpus
        else:
            self.spent.starting += held
        self.at = now
        if self.done >= self.trace.work - MOMENT * self._pace:
            self.finished = now

    def next_event(self) -> float:
        """When the job changes by itself: its end, an awaited checkpoint, a pod that starts or leaves.

        Infinity if it will not.
        """
        if not self.pods:
            return inf
        times = [pod.gone for pod in self.pods.values()]
        times += [pod.leaves for pod in self.pods.values() if pod in self.group]
        times += [pod.ready for pod in self.pods.values() if pod.ready > self.at + MOMENT]
        if self.group:
            times.append(max(self.at, self._paused_until) + (self.trace.work - self.done) / self._pace)
            if self.mode is Mode.ELASTIC and self._joining:
                asked = (pod.ready + SAVE_SECONDS for pod in self._joining)
                times.append(min(asked) if self._listens else self.at + self._until_save)
        return max(self.at, min(times, default=inf))

    @property
    def _joining(self) -> set[Pod]:
        """The ready pods that are not in the group yet."""
        pods = self.pods.values()
        return {pod for pod in pods if pod.stays and pod.ready <= self.at + MOMENT and pod not in self.group}

    @property
    def _until_save(self) -> float:
        """Seconds until the next checkpoint, without another event before."""
        return max(0.0, self._paused_until - self.at) + self._interval - self._since_save

    def _save(self) -> None:
        self.saved, self._since_save, self._unsaved_gpu_seconds = self.done, 0.0, 0.0

    def _train(self, seconds: float, gpus: int) -> None:
        self.done += seconds * self._pace
        self.spent.trained += seconds * gpus
        self._since_save += seconds
        self._unsaved_gpu_seconds += seconds * gpus
        if self._since_save >= self._interval - MOMENT:
            self._since_save = max(0.0, self._since_save % self._interval)
            if self._since_save > self._interval - MOMENT:
                self._since_save = 0.0
            self.saved = self.done - self._since_save * self._pace
            self._unsaved_gpu_seconds = self._since_save * gpus

    def _undo(self, cause: str) -> None:
        """Return to the last checkpoint."""
        self.spent.undone[cause] += self._unsaved_gpu_seconds
        self.done, self._since_save, self._unsaved_gpu_seconds = self.saved, 0.0, 0.0

    # -- pods ----------------------------------------------------------------------------------------------------------

    def regroup(self) -> None:
        """Let pods leave whose time has come, and let ready pods join."""
        going = {pod for pod in self.group if pod.leaves <= self.at + MOMENT}
        if going:
            self._leave(going)
        for pod in [pod for pod in self.pods.values() if pod.gone <= self.at + MOMENT]:
            del self.pods[pod.uid]
            self._keeps_state.discard(pod)
        if not self.group and not self._keeps_state:
            self._undo("change")
        if not self.group:
            self._form({pod for pod in self.pods.values() if pod.stays and pod.ready <= self.at + MOMENT})
        elif joining := self._joining:
            self._join(joining)

    def tell_to_go(self, pods: Iterable[Pod]) -> None:
        """Delete these pods. The job's mode decides when each leaves the group."""
        going = list(pods)
        left = [pod for pod in self.group if pod.stays and pod not in going]
        waits = 0.0
        if self.mode is Mode.ELASTIC and len(left) >= self.least and self.group.intersection(going):
            waits = SAVE_SECONDS if self._listens else min(ALIGN_SECONDS, self._until_save)
        for pod in going:
            pod.leaves = self.at + (waits if pod in self.group else 0.0)
            pod.gone = pod.leaves + LEAVE_SECONDS

    def lose(self, pods: Collection[Pod]) -> None:
        """Remove these pods at once."""
        for pod in pods:
            del self.pods[pod.uid]
        lost = self.group.intersection(pods)
        self._keeps_state -= set(pods)
        if not lost:
            if not self.group and not self._keeps_state:
                self._undo("loss")
            return
        self._lose_from_group(lost, PAUSES[self.mode].loss)

    def _lose_from_group(self, lost: set[Pod], pause: float) -> None:
        left, has_lost_master = self.group - lost, any(pod.index == 0 for pod in lost)
        if self.mode is Mode.LIBRARY and left:
            self._keeps_state = set(left)
        else:
            self._undo("loss")
        stops = len(left) < self.least or (has_lost_master and self.mode is not Mode.LIBRARY)
        self._go_on_with(set() if stops else left, pause)

    def miss(self, pods: Collection[Pod]) -> None:
        """Let pods fall silent. Our launchers detect that; all other scripts wait until the pods are lost."""
        for pod in pods:
            pod.ready = inf
        if not self.group.intersection(pods):
            return
        if self.mode in (Mode.LIBRARY, Mode.ELASTIC):
            self._lose_from_group(self.group.intersection(pods), MISSED_SECONDS + PAUSES[self.mode].loss)
        else:
            self._paused_until = max(self._paused_until, self.at + NODE_LOSS_SECONDS)

    def _leave(self, going: set[Pod]) -> None:
        left = self.group - going
        if self.mode is Mode.ELASTIC and self._listens and len(left) >= self.least:
            self._save()
        goes_on = len(left) >= self.least and (self.mode is Mode.LIBRARY or any(pod.index == 0 for pod in left))
        if not goes_on or self.mode is Mode.TORCHRUN or (self.mode is Mode.ELASTIC and self._since_save > MOMENT):
            self._undo("change")
            self._keeps_state = set()
        self._go_on_with(left if goes_on else set(), PAUSES[self.mode].leave)

    def _join(self, joining: set[Pod]) -> None:
        if self.mode is Mode.ELASTIC:
            if self._listens and any(pod.ready + SAVE_SECONDS <= self.at + MOMENT for pod in joining):
                self._save()
            if self._since_save > MOMENT:
                return  # right after the next checkpoint
        if self.mode is Mode.TORCHRUN:
            self._undo("change")
        self._go_on_with(self.group | joining, PAUSES[self.mode].join)

    def _form(self, ready: set[Pod]) -> None:
        needs_master = self.mode is not Mode.LIBRARY or not self._keeps_state
        if len(ready) < self.least or (needs_master and all(pod.index for pod in ready)):
            return
        self._keeps_state = set()
        self._go_on_with(ready, 0.0)

    def _go_on_with(self, group: set[Pod], pause: float) -> None:
        self.group = group
        self.generation += 1
        self._paused_until = max(self._paused_until, self.at + pause) if group else self.at
