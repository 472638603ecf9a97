"""Computes the work that a change of size costs a job, if each change takes the job back to its last checkpoint (148,
170).

Each change has this effect in Torchrun mode, and in Elastic mode for scripts that neither use the library nor name
their checkpoints (62). Such a job grows less often, and by more pods at a time: growth costs work of all the job's
GPUs, and gains the work of the new GPUs until the next change. The best guess of the time until the next change is the
time that the job has had its present size. Among jobs of equal priority, such a job also loses pods last.
"""

from __future__ import annotations

from elastic_api.job import JobSpec
from elastic_api.status import MAX_HISTORY, JobStatus

WORK_SECONDS = 1800.0
"""The assumed cost of one growth, as work in seconds of all the job's GPUs. A script that saves every 20 minutes loses
10 minutes on average when it grows, as much when it shrinks again, and starts twice.
"""
MAX_WAIT_SECONDS = 7200.0
"""After this time without a change a job grows to any allowed size, so no GPU stays idle for good."""


def resize_cost(spec: JobSpec, status: JobStatus) -> float:
    """The work that a change of size costs, in seconds of all GPUs of the job; 0 if the job loses nothing.

    A script whose samples are counted uses the library. With `scaleUpDelaySeconds: 0` the user says that changes are
    free.
    """
    uses_library = status.training is not None and status.training.samples_seen is not None
    if spec.is_elastic and (spec.elasticity.checkpoint_path or uses_library):
        return 0.0
    if not spec.elasticity.scale_up_delay_seconds:
        return 0.0
    return WORK_SECONDS


def worth_it_after(cost: float, size: int, larger: int) -> float:
    """For how many seconds the job must have had `size` pods before it grows to `larger`, if a change costs `cost`."""
    return min(MAX_WAIT_SECONDS, cost * size / (larger - size))


def has_grown(status: JobStatus) -> bool:
    """Whether the job has grown before, even if it was stopped since.

    A full history may lack the growth, so any planned change in a full history counts as growth.
    """
    if len(status.history) >= MAX_HISTORY and status.resizes:
        return True
    return any(0 < change.from_ < change.to for change in status.history)
