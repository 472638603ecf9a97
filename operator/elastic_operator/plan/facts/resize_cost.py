"""The work that a change of size costs a job which goes back to its last checkpoint with each of them (148, 170).

These are all scripts in Torchrun mode, and in Elastic mode those that neither use the library nor name their
checkpoints (62). Such a job grows less often, and by more at a time. Growth gains the time until the next change, on
the new GPUs. Nobody knows how long that is; the best guess is as long as the job has had its present size. Growth
costs the work of all GPUs that the job has. Of jobs of equal priority, such a job also gives pods last.
"""

from __future__ import annotations

from elastic_api.job import JobSpec
from elastic_api.status import MAX_HISTORY, JobStatus

WORK_SECONDS = 1800.0
"""The work that one growth is assumed to cost, in seconds of all the job's GPUs. A script that saves every 20 minutes
loses 10 on average when it grows, as much when it shrinks again, and starts twice.
"""
MAX_WAIT_SECONDS = 7200.0
"""After this time without a change a job grows to any allowed size, so no GPU stays idle for good."""


def resize_cost(spec: JobSpec, status: JobStatus) -> float:
    """The work that a change of size costs, in seconds of all GPUs of the job; 0 if the job loses nothing.

    A script that counts samples uses the library. With `scaleUpDelaySeconds: 0` the user says that changes are free.
    """
    if spec.is_elastic and (spec.elasticity.checkpoint_path or _uses_library(status)):
        return 0.0
    if not spec.elasticity.scale_up_delay_seconds:
        return 0.0
    return WORK_SECONDS


def worth_it_after(cost: float, size: int, larger: int) -> float:
    """How many seconds the job must have had `size` pods before it grows to `larger`, if that costs `cost` seconds."""
    return min(MAX_WAIT_SECONDS, cost * size / (larger - size))


def has_grown(status: JobStatus) -> bool:
    """Whether the job has grown before, also if it was stopped since.

    A full history may have lost that change. Then any planned change counts as growth.
    """
    if len(status.history) >= MAX_HISTORY and status.resizes:
        return True
    return any(0 < change.from_ < change.to for change in status.history)


def _uses_library(status: JobStatus) -> bool:
    return status.training is not None and status.training.samples_seen is not None
