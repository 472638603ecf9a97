"""What growth costs a job that goes back to its last checkpoint with each change of size: it grows less often, and by
more at a time (148).

So do all scripts in Torchrun mode, and in Elastic mode those that neither use the library nor name their checkpoints
(62). What growth brings is the time until the next change, on the GPUs that are new; how long that is nobody knows, and
the best guess is as long as the job has had its present size. What it costs is the work of all GPUs that it has.
"""

from __future__ import annotations

from elastic_operator.api.job import JobSpec
from elastic_operator.api.status import JobStatus

WORK_SECONDS = 1800.0
"""So much of the work of all its GPUs growth costs, for a script that saves every 20 minutes: half of that is lost as
it grows, as much, on more GPUs, when they are taken back, and each time it starts again."""
LONGEST_SECONDS = 7200.0
"""After so long without a change it takes whatever there is: no GPU stays idle for good."""


def growth_cost(spec: JobSpec, status: JobStatus) -> float:
    """Seconds of all its work that growth costs the job; 0 where it costs nothing, or need not be looked at.

    A script that counts samples uses the library. Without a `scaleUpDelaySeconds` the user wants no wait. The first
    growth after a start waits for nothing.
    """
    if spec.is_elastic and (spec.elasticity.checkpoint_path or _uses_library(status)):
        return 0.0
    if not spec.elasticity.scale_up_delay_seconds:
        return 0.0
    return WORK_SECONDS if any(0 < change.from_ < change.to for change in status.history) else 0.0


def worth_it_after(cost: float, size: int, larger: int) -> float:
    """How many seconds it must have had its `size` before it goes to a larger one, by what that costs."""
    return min(LONGEST_SECONDS, cost * size / (larger - size))


def _uses_library(status: JobStatus) -> bool:
    return status.training is not None and status.training.samples_seen is not None
