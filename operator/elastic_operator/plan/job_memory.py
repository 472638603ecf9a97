"""The planner's memory of one job from pass to pass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

from elastic_api.status import JobStatus
from elastic_operator.memory import Remembered
from elastic_operator.plan.facts.decisions import Assignment
from elastic_operator.plan.facts.snapshot import JobDemand
from elastic_operator.plan.job.observation import Observation


@dataclass(frozen=True, slots=True)
class Planned:
    """A job's last plan: its inputs, its status, and when (`due`, monotonic) it is made again in any case."""

    obs: Observation
    assignment: Assignment | None
    due: float
    status: JobStatus

    def is_current(self, obs: Observation, at: float) -> bool:
        """Whether the plan was made from that observation, and is not due at `at` (monotonic)."""
        return self.obs is obs and at < self.due


@dataclass(slots=True)
class JobMemory:
    """The planner's memory of one job.

    `good` is the job's demand when it was last observed without an error, `quarantined` the demand that counts while
    the job is quarantined.
    """

    obs: Observation | None = None
    demanded: Remembered[tuple[object, ...], JobDemand | None] = field(default_factory=Remembered)
    """Its demand while it is not quarantined, with the inputs from which `demands` makes it."""
    good: JobDemand | None = None
    quarantined: JobDemand | None = None
    planned: Planned | None = None

    @property
    def demand(self) -> JobDemand | None:
        """The job's demand; while it is quarantined, the one that counts meanwhile; None if it may have no pods."""
        if self.obs is not None and self.obs.job.fault:
            return self.quarantined
        known = self.demanded.peek("")
        return known[1] if known is not None else None

    def forget_plan(self) -> None:
        """Let the job be planned again. Metrics show the last plan until then."""
        if self.planned is not None:
            self.planned = replace(self.planned, due=-inf)
