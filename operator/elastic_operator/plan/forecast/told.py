"""What a job's status says of all this: its place in line while it waits, and the answer while it asks."""

from __future__ import annotations

from elastic_api.status import Forecast, JobStatus, QueuePlace
from elastic_operator.plan.job.observation import Observation


def asks(obs: Observation) -> bool:
    """Whether the job asks what it would get."""
    return obs.job.asks and not obs.live and not obs.status.finished


def with_place(obs: Observation, status: JobStatus, place: QueuePlace | None) -> JobStatus:
    """The status of a job that does not ask, with its place in line, if it has one.

    A job that does not wait any more has none. That goes with the write that says why it does not.
    """
    waits = obs.wants_pods and not status.target_replicas and not status.finished
    return with_answer(status, place if waits else None, None)


def with_answer(status: JobStatus, place: QueuePlace | None, forecast: Forecast | None) -> JobStatus:
    """The status of a job that asks, with the answer."""
    if (place, forecast) == (status.queue, status.forecast):
        return status
    return status.model_copy(update={"queue": place, "forecast": forecast})
