"""The three things that happen to the cluster, again and again, each into a quiet cluster."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.react.latencies import DELETE, SCALE, Reaction, reaction
from benchmarks.react.place import Place
from benchmarks.react.scenario import ADDED_BY_SCALE, Scenario
from demo.install import NAMESPACE, RELEASE

ANSWER_SECONDS = 20.0
OPERATOR = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-operator"


def react(place: Place, plan: Scenario) -> list[Reaction]:
    """A foreign GPU pod goes: some job, all want it, gets a pod."""
    return [_answer(place, DELETE, name, place.delete_pod) for name in plan.foreign_pods[: plan.tries]]


def scale(place: Place, plan: Scenario) -> list[Reaction]:
    """A job with room beside it is scaled up: from the request to the last of its new pods."""
    wanted = plan.size + ADDED_BY_SCALE
    return [
        _answer(place, SCALE, name, lambda job: place.scale(job, wanted), pods=ADDED_BY_SCALE, job=name)
        for name in plan.roomy_jobs
    ]


def recreate(place: Place, plan: Scenario) -> list[Reaction]:
    """A worker goes: its job gets another. Each time another job's: losses in a row are answered with patience."""
    # The jobs that have grown meanwhile are the first ones.
    jobs = plan.full_jobs[-plan.tries :]
    return [_answer(place, DELETE, f"{job}-worker-0", place.delete_pod, job=job) for job in jobs]


def _answer(
    place: Place, what: str, name: str, act: Callable[[str], None], *, pods: int = 1, job: str = ""
) -> Reaction:
    place.quiet()
    act(name)
    cause = place.last_write(what, name)

    def look() -> Reaction | None:
        return reaction(place.audit.read(), cause, operator=OPERATOR, pods=pods, job=job)

    return place.until(f"the answer to {what} {name}", look, seconds=ANSWER_SECONDS)
