"""Computes when time alone may change an allocation: delayed growth is due, a wait ends, a job's protection ends."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from operator import attrgetter

from elastic_operator.memory import Changes, DelayQueue
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.team import Team


class ChangeTimes:
    """The next such time of each job, for the same teams and settings. It is computed again when the job changes, and
    when the time has come (23).
    """

    def __init__(self) -> None:
        self._changes = Changes[JobDemand](attrgetter("uid"))
        self._demands: dict[str, JobDemand] = {}
        self._times = DelayQueue()

    def next(self, inputs: AllocationInputs) -> float:
        """When (epoch seconds) time alone may change the allocation of this input next; infinity for never."""
        gone, new = self._changes.take(inputs.jobs)
        for job in gone:
            del self._demands[job.uid]
            self._times.drop(job.uid)
        changed = {job.uid: job for job in new}
        self._demands |= changed
        for uid in {*changed, *self._times.due(inputs.now)}:
            job = self._demands[uid]
            times = _change_times(job, inputs.teams.team_of(job.namespace), inputs)
            self._times.set(uid, min((time for time in times if time > inputs.now), default=inf))
        return self._times.next()


def _change_times(job: JobDemand, team: Team, inputs: AllocationInputs) -> Iterator[float]:
    """Times (epoch seconds) at which the job alone may change the allocation, some of them in the past."""
    if job.failed is not None:
        yield job.failed.until
    yield job.next_growth(inputs.now)
    yield job.bar.until
    if job.node_request is not None:
        yield job.node_request.begins_at
    if job.lacks_minimum:
        yield job.starves_from(inputs.settings.starvation_seconds)
    yield from ends_of_protection(job, team)


def ends_of_protection(job: JobDemand, team: Team) -> Iterator[float]:
    """The times (epoch seconds) from which a running job may be preempted as a whole."""
    if job.running_since is not None:
        yield job.running_since + team.min_runtime_seconds
        if team.quantum_seconds is not None:
            yield job.running_since + team.quantum_seconds
