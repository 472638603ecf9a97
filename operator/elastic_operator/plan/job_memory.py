"""What the planner remembers of one job from pass to pass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

from elastic_api.status import JobStatus
from elastic_operator.memory import RememberedOne
from elastic_operator.plan.facts.decisions import Assignment
from elastic_operator.plan.facts.snapshot import JobDemand
from elastic_operator.plan.job.observation import Observation


@dataclass(frozen=True, slots=True)
class Planned:
    """A job's last plan: made from what, with what status, and when (`due`, monotonic) it is made again anyway."""

    obs: Observation
    assignment: Assignment | None
    due: float
    status: JobStatus

    def is_current(self, obs: Observation, at: float) -> bool:
        """Whether the plan was made from that observation, and is not due at `at` (monotonic)."""
        return self.obs is obs and at < self.due


@dataclass(slots=True)
class JobMemory:
    """What the planner remembers of one job.

    `good` is the job's demand when it was last observed without an error, `quarantined` the demand that counts while
    the job is quarantined.
    """

    obs: Observation | None = None
    demanded: RememberedOne[tuple[object, ...], JobDemand | None] = field(default_factory=RememberedOne)
    """What it demands while it is not quarantined, by what `demands` makes that from."""
    good: JobDemand | None = None
    quarantined: JobDemand | None = None
    planned: Planned | None = None

    @property
    def demand(self) -> JobDemand | None:
        """What the job demands now, or last did while it is quarantined; None if it may have no pods."""
        if self.obs is not None and self.obs.job.fault:
            return self.quarantined
        return self.demanded.last

    def forget_plan(self) -> None:
        """Plan again; the last plan is what metrics show until then."""
        if self.planned is not None:
            self.planned = replace(self.planned, due=-inf)
