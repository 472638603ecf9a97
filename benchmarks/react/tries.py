"""The three kinds of changes, each repeated in a quiet cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from benchmarks.live.place import OPERATOR, Place
from benchmarks.react import place as pools
from benchmarks.react.latencies import DELETE, SCALE, Reaction, reaction
from benchmarks.react.scenario import ADDED_BY_SCALE, NAMESPACE, Scenario

ANSWER_SECONDS = 20.0
UNOBSERVED_SECONDS = 0.1
"""The benchmark first reads the log this long after a change, because reading it takes CPU from the operator."""


def react(place: Place, plan: Scenario) -> list[Reaction]:
    """Delete foreign GPU pods: one of the jobs, which all want the GPU, gets a pod each time."""
    gone = partial(place.delete_pod, NAMESPACE)
    return [answer(place, DELETE, name, gone) for name in plan.foreign_pods[: plan.tries]]


def scale(place: Place, plan: Scenario) -> list[Reaction]:
    """Scale up jobs with room: from the request to the last of the new pods."""
    wanted = plan.size + ADDED_BY_SCALE
    return [
        answer(place, SCALE, name, lambda job: pools.scale(place, job, wanted), pods=ADDED_BY_SCALE, job=name)
        for name in plan.roomy_jobs
    ]


def recreate(place: Place, plan: Scenario) -> list[Reaction]:
    """Delete workers, each of another job, because repeated losses make a job wait; the job gets another worker."""
    # The jobs that have grown meanwhile are the first ones.
    jobs = plan.full_jobs[-plan.tries :]
    gone = partial(place.delete_pod, NAMESPACE)
    return [answer(place, DELETE, f"{job}-worker-0", gone, job=job) for job in jobs]


def answer(place: Place, what: str, name: str, act: Callable[[str], None], *, pods: int = 1, job: str = "") -> Reaction:
    """Apply `act` to `name` in a quiet cluster; the operator's reaction to it, up to the last of `pods` new pods."""
    place.quiet()
    since = place.now()
    act(name)
    time.sleep(UNOBSERVED_SECONDS)
    cause = place.last_write(what, name, since=since)

    def look() -> Reaction | None:
        return reaction(place.audit.read(), cause, operator=OPERATOR, pods=pods, job=job)

    return place.until(f"the answer to {what} {name}", look, seconds=ANSWER_SECONDS)
