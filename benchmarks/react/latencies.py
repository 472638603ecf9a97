"""Computes latencies, in seconds, from the writes of an audit log. Pure arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.live.audit import Write
from elastic_api.pod_names import parse_pod_name

CREATE, DELETE, SCALE = "create pods", "delete pods", "patch elasticpytorchjobs/scale"
POD_READY, JOB_STATUS = "patch pods/status", "patch elasticpytorchjobs/status"


@dataclass(frozen=True, slots=True)
class Reaction:
    """The time from a write of another client to the last pod that the operator created because of it."""

    cause: Write
    created: Write

    @property
    def from_fact(self) -> float:
        """The time from the answer to the cause to the answer to the pod's creation.

        The cause takes effect shortly before its answer, so on a busy machine this may be less than 0.
        """
        return self.created.done - self.cause.done

    @property
    def from_request(self) -> float:
        """The time from the arrival of the cause's request to the answer to the pod's creation."""
        return self.created.done - self.cause.received


def reaction(writes: Iterable[Write], cause: Write, *, operator: str, pods: int = 1, job: str = "") -> Reaction | None:
    """The operator's answer to `cause`: its next `pods` creations, of `job` if named; None while there are fewer."""
    created = [
        write
        for write in writes
        if write.what == CREATE and write.user == operator and write.received > cause.received
        if not job or parse_pod_name(job, write.name)
    ]
    return Reaction(cause, created[pods - 1]) if len(created) >= pods else None


def status_lags(writes: Sequence[Write], jobs: Iterable[str]) -> list[float]:
    """For each pod that became ready: how long until its job's status counted it. `writes` reach back to the start."""
    job_of = _JobOf(jobs)
    ready: Counter[str] = Counter()
    waiting: dict[str, list[tuple[int, float]]] = {}
    was_ready: set[str] = set()
    lags = []
    for write in writes:
        job = job_of(write)
        if write.what == POD_READY and job and write.name not in was_ready:
            was_ready.add(write.name)
            ready[job] += 1
            waiting.setdefault(job, []).append((ready[job], write.done))
        elif write.what == DELETE and job and write.name in was_ready:
            was_ready.discard(write.name)
            ready[job] -= 1
            waiting[job] = [(number - 1, since) for number, since in waiting.get(job, [])]
        elif write.what == JOB_STATUS and write.ready_replicas is not None:
            counted = write.ready_replicas
            pending = waiting.pop(write.name, [])
            lags += [write.done - since for number, since in pending if number <= counted]
            waiting[write.name] = [(number, since) for number, since in pending if number > counted]
    return lags


class _JobOf:
    """The job of a pod, by its name."""

    def __init__(self, jobs: Iterable[str]) -> None:
        self.jobs = frozenset(jobs)

    def __call__(self, write: Write) -> str:
        job = write.name.rsplit("-", 2)[0]
        return job if job in self.jobs and parse_pod_name(job, write.name) else ""
