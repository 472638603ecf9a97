"""The changes of each job, and their figures: a pod joins, leaves, joins again and is killed."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.job import Job
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.systems import System, backend_of
from benchmarks.live.errors import BenchError
from benchmarks.rescale import steps

SECONDS = 120.0
"""The limit of one change; a longer one has failed."""


@dataclass
class Told:
    """The figures of one system: pauses in seconds (the longest time without a step of pod 0), memory in MiB.

    `again` is the number of steps repeated in a change. `error` is why the run ended early.
    """

    backend: str
    start: float | None = None
    pauses: dict[str, float] = field(default_factory=dict)
    again: dict[str, int] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def tell(system: System, machine: Machine, folder: Path, *, seconds: float = SECONDS) -> Told:
    """Make all changes of one job."""
    told = Told(backend_of(system, machine))
    with Job(system, machine, folder, seconds=seconds) as job:
        try:
            _live(job, told)
        except BenchError as error:
            told.error = str(error)
        if 0 in job.pods:
            _look(job, told)
    return told


def _live(job: Job, told: Told) -> None:
    most = job.machine.most
    some, last = range(most - 1), most - 1
    began = time.monotonic()
    job.add(*some)
    job.write_membership(*some)
    job.wait_training(*some, since=began)
    told.start = round(job.steps(0)[0].time - began, 3)
    _join(job, told, last, "join")
    decided = time.monotonic()
    job.pods[last].terminate()
    job.write_membership(*some)
    _figures(job, told, "leave", some, decided)
    job.wait("the pod that left has ended", lambda: not job.pods[last].is_running())
    _join(job, told, last, "join again")
    decided = time.monotonic()
    job.pods[last].kill()
    _figures(job, told, "kill", some, decided)


def _join(job: Job, told: Told, index: int, name: str) -> None:
    """Let a pod join. In Elastic mode it is warm first, so that the pause contains no imports."""
    if job.system.is_elastic:
        job.add(index)
        job.wait("the newcomer is warm", lambda: job.is_warm(index))
    decided = time.monotonic()
    if not job.system.is_elastic:
        job.add(index)
    job.write_membership(*range(index + 1))
    _figures(job, told, name, range(index + 1), decided)


def _figures(job: Job, told: Told, name: str, pods: range, decided: float) -> None:
    job.wait_training(*pods, since=decided)
    seen = job.steps(0)
    told.pauses[name] = round(steps.pause(seen, since=decided), 3)
    told.again[name] = steps.lost(seen, since=decided)


def _look(job: Job, told: Told) -> None:
    """Memory of pod 0 and the losses, at the beginning and at the end."""
    seen = job.seen(0)
    if not seen:
        return
    first, last = seen[0], seen[-1]
    told.memory = {f"{kind} {when}": each[kind] for kind in ("process", "card") for when, each in _ends(first, last)}
    told.losses = [each["loss"] if math.isfinite(each["loss"]) else -1.0 for each in (first, last)]


def _ends(first: dict[str, float], last: dict[str, float]) -> list[tuple[str, dict[str, float]]]:
    return [("at first", first), ("in the end", last)]
