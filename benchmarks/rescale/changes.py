"""The measured changes: a pod joins, leaves, is killed, the master is killed. Each has its own job."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rescale import steps
from benchmarks.rescale.job import Job
from benchmarks.rescale.loads import SMALL, Load
from benchmarks.rescale.steps import Cost
from benchmarks.rescale.systems import System

PARTS_SECONDS = 10.0
"""How long to wait for the parts: the coordinator learns of a first step later than the benchmark."""
PARTS = re.compile(r"generation=(\d+) first step .*parts=(\{[^}]*\})")


@dataclass(frozen=True, slots=True)
class Options:
    """`steps` are made before the change; at least `seconds` after the decision are evaluated."""

    folder: Path
    load: Load = SMALL
    steps: int = 60
    seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class Change:
    """`pods` at the start; `survivor` is the pod whose steps are evaluated; `world` is the size afterwards."""

    pods: int
    survivor: int
    world: int
    make: Callable[[Job], float | None]
    """Makes the change; returns the time from which the pause counts, None for the last step."""


@dataclass(frozen=True, slots=True)
class Result:
    """`cost` is None if the job did not train again within the limit: `logs` show why. `steps` are the survivor's."""

    cost: Cost | None
    steps: list[steps.Step]
    logs: str = ""


def measure(system: System, name: str, options: Options) -> Result:
    """Make the change in a new job. Raises BenchError if the job does not even start."""
    change = CHANGES[name]
    # Growth waits for a checkpoint of a plain script, however long that takes.
    limit = system.limit + 2 * 60 * options.load.save_minutes
    with Job(system, options.folder, options.load) as job:
        job.start(change.pods, count=options.steps)
        _prepare(job, name)
        decided, clock = time.monotonic(), time.time()
        counted_from = change.make(job)
        if not job.comes(lambda: job.trains(change.survivor, world=change.world, since=decided), seconds=limit):
            return Result(None, job.steps(change.survivor), job.logs())
        seconds = max(options.seconds, time.monotonic() - decided)
        time.sleep(max(0.0, decided + seconds - time.monotonic()) + 0.2)
        if system.is_elastic:
            job.comes(lambda: bool(_parts(job, clock)), seconds=PARTS_SECONDS)
        seen, parts = job.steps(change.survivor), _parts(job, clock)
        cost = steps.cost(seen, decided=decided, counted_from=counted_from, seconds=seconds, parts=parts)
        return Result(cost, seen)


def _prepare(job: Job, name: str) -> None:
    """Start a joining pod before it takes part: its scheduling, image pull and warm-up are no part of the change."""
    if name == "join" and job.system.is_elastic:
        job.add(2)
        job.wait("the newcomer is warm", lambda: job.is_warm(2))


def _join(job: Job) -> float | None:
    if not job.system.is_elastic:
        job.add(2)
    job.write_membership(0, 1, 2)
    return None


def _leave(job: Job) -> float | None:
    job.pods[2].terminate()
    job.write_membership(0, 1)
    return None


def _kill(job: Job) -> float | None:
    job.pods[2].kill()
    return None


def _kill_master(job: Job) -> float | None:
    job.pods[0].kill()
    job.replace_master()
    job.write_membership(0, 1, 2)
    job.comes(job.is_warm, seconds=job.system.limit)
    return time.monotonic()


def _parts(job: Job, since: float) -> dict[str, float]:
    """Seconds from the cause to the decision, and between the coordinator's marks; {} until these are known."""
    found = {int(generation): parts for generation, parts in PARTS.findall(job.pods[0].said())}
    latest = (job.status().get("changes") or [{"generation": 0}])[0]
    if latest["generation"] not in found:
        return {}
    return {"detect": round(latest["time"] - since, 3), **ast.literal_eval(found[latest["generation"]])}


CHANGES = {
    "join": Change(pods=2, survivor=0, world=3, make=_join),
    "leave": Change(pods=3, survivor=0, world=2, make=_leave),
    "kill": Change(pods=3, survivor=0, world=2, make=_kill),
    "master": Change(pods=3, survivor=1, world=3, make=_kill_master),
}
