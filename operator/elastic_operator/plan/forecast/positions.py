"""The places in line of the jobs that wait for their minimum (161).

A line is the jobs of one team that wait for one kind of GPU. Their order is exact: within a team, jobs are served one
after the other. Between teams there is no such order, because each job that is served changes the order of the teams.
Also, a team's line must not show other teams' jobs.
"""

from __future__ import annotations

from collections.abc import Iterable

from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.demand import JobDemand

EXACT = 10
"""Positions up to this one are shown exactly."""


def queued_jobs(jobs: Iterable[JobDemand], allocation: Allocation) -> list[JobDemand]:
    """The jobs that wait for their minimum and have no pod, in the order in which they are served.

    A job whose flavor is not clear is not among them: it gets nothing before somebody edits it.
    """
    clear = (job for job in jobs if job.wants_pods and job.sizes and not (job.members or job.shape.flavor_problem))
    found = [job for job in clear if not allocation.assignment(job.uid).replicas]
    return sorted(found, key=lambda job: allocation.position(job.uid))


def positions(queued: Iterable[JobDemand], allocation: Allocation) -> dict[str, int]:
    """The place of each of the `queued` jobs (uid) in its line, from 1 on."""
    lengths: dict[tuple[str, str], int] = {}
    found = {}
    for job in queued:
        line = allocation.accounts.teams.name_of(job.namespace), job.shape.flavor
        found[job.uid] = lengths[line] = lengths.get(line, 0) + 1
    return found


def rounded(position: int) -> int:
    """The position as users see it: from 11 on rounded up to one digit.

    When the first of 5,000 jobs starts, all others move up, and the statuses of 31 of them change.
    """
    if position <= EXACT:
        return position
    unit: int = 10 ** (len(str(position)) - 1)
    return -(-position // unit) * unit
