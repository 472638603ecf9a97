"""Records the steps of pods from the events of a watch: created, waiting, nominated, bound, deleted, removed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from elastic_api.template import GPU_RESOURCES


class Step(StrEnum):
    """The visible steps of a pod, as the timeline prints them."""

    CREATED = "created"
    WAITS = "waits: the scheduler finds no room"
    NOMINATED = "is promised a node"
    BOUND = "is bound"
    RUNNING = "runs"
    EVICTED = "is told to go"
    ENDED = "has ended"
    GONE = "is gone"


@dataclass(slots=True)
class Life:
    """One pod; `seen` has the seconds at which each step was first seen, on the watcher's clock."""

    namespace: str
    name: str
    gpus: int
    node: str = ""
    seen: dict[Step, float] = field(default_factory=dict)

    @property
    def ref(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    def at(self, step: Step) -> float | None:
        """When the step was first seen, None if it was not."""
        return self.seen.get(step)

    @property
    def alive(self) -> bool:
        """Whether the pod is neither being deleted nor ended."""
        return all(step not in self.seen for step in (Step.EVICTED, Step.ENDED, Step.GONE))


@dataclass(frozen=True, slots=True)
class Sighting:
    """Something new about a pod."""

    seconds: float
    life: Life
    step: Step

    def __str__(self) -> str:
        where = f" ({self.life.node})" if self.step in (Step.NOMINATED, Step.BOUND) else ""
        return f"{self.life.ref} {self.step}{where}"


class Register:
    """The lives of all pods seen so far, and all sightings in order."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.sightings: list[Sighting] = []

    def note(self, pod: Mapping[str, Any], *, seconds: float) -> None:
        """Note the present state of a pod."""
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        life = self.lives.setdefault(meta["uid"], Life(meta["namespace"], meta["name"], gpus_of(spec)))
        life.node = spec.get("nodeName") or status.get("nominatedNodeName") or life.node
        for step in _steps(meta, spec, status):
            self._see(life, step, seconds)

    def note_gone(self, uid: str, *, seconds: float) -> None:
        """Note a pod that the API does not have any more; it may never have been seen."""
        if uid in self.lives:
            self._see(self.lives[uid], Step.GONE, seconds)

    def note_all(self, pods: list[Mapping[str, Any]], *, seconds: float) -> None:
        """Note all existing pods: a known pod that is not among them is removed."""
        for pod in pods:
            self.note(pod, seconds=seconds)
        for uid in self.lives.keys() - {pod["metadata"]["uid"] for pod in pods}:
            self.note_gone(uid, seconds=seconds)

    def _see(self, life: Life, step: Step, seconds: float) -> None:
        if step not in life.seen:
            life.seen[step] = seconds
            self.sightings.append(Sighting(seconds, life, step))


def gpus_of(spec: Mapping[str, Any]) -> int:
    """GPUs that a pod of this spec holds; init containers ask for none here."""
    limits = [container.get("resources", {}).get("limits", {}) for container in spec["containers"]]
    return sum(int(limit.get(resource, 0)) for limit in limits for resource in GPU_RESOURCES)


def _steps(meta: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> list[Step]:
    conditions = status.get("conditions") or []
    refused = any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)
    holds = {
        Step.CREATED: True,
        Step.WAITS: refused,
        Step.NOMINATED: bool(status.get("nominatedNodeName")) and not spec.get("nodeName"),
        Step.BOUND: bool(spec.get("nodeName")),
        Step.RUNNING: status.get("phase") == "Running",
        Step.EVICTED: bool(meta.get("deletionTimestamp")),
        Step.ENDED: status.get("phase") in ("Succeeded", "Failed"),
    }
    return [step for step, so in holds.items() if so]
