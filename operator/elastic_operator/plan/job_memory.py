"""The planner's memory of one job from pass to pass, beside the job's plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastic_operator.memory import SingleCache
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.job.observation import Observation


@dataclass(slots=True)
class JobMemory:
    """The planner's memory of one job.

    `good` is the job's demand when it was last observed without an error, `quarantined` the demand that counts while
    the job is quarantined.
    """

    obs: Observation | None = None
    demanded: SingleCache[tuple[object, ...], JobDemand | None] = field(default_factory=SingleCache)
    """The job's demand while it is not quarantined, remembered by its inputs."""
    good: JobDemand | None = None
    quarantined: JobDemand | None = None

    @property
    def demand(self) -> JobDemand | None:
        """The demand that counts: `quarantined` while the job is quarantined; None if the job may have no pods."""
        if self.obs is not None and self.obs.job.quarantine:
            return self.quarantined
        return self.demanded.last
