"""The forecasts in a job's status: its place in line while it waits, and the answer to its what-if question."""

from __future__ import annotations

from elastic_api.status import Forecast, JobStatus, QueuePosition, StatusFields
from elastic_operator.plan.facts.times import status_time
from elastic_operator.plan.forecast.positions import rounded
from elastic_operator.plan.job.observation import Observation


def awaits_answer(obs: Observation) -> bool:
    """Whether the job asks what it would get, and may still be answered."""
    return obs.job.is_what_if and not obs.members and not obs.status.finished


def queue_position(position: int, starts_at: float | None, confidence: float | None) -> QueuePosition:
    """The place in line as users see it: rounded, and with a confidence only if a start (epoch seconds) is known."""
    return QueuePosition(
        position=rounded(position),
        estimated_start_time=status_time(starts_at) if starts_at is not None else None,
        confidence=confidence if starts_at is not None else None,
    )


def with_position(obs: Observation, status: JobStatus, place: QueuePosition | None) -> JobStatus:
    """The status of a job that asks nothing, with its place in line, if it has one.

    A job that has stopped waiting has no place. The write that says why the job has stopped removes the place.
    """
    waits = obs.wants_pods and not status.target_replicas and not status.finished
    return with_answer(status, place if waits else None, None)


def with_answer(status: JobStatus, place: QueuePosition | None, forecast: Forecast | None) -> JobStatus:
    """The status of a job that asks what it would get, with its answer."""
    if (place, forecast) == (status.queue, status.forecast):
        return status
    fields: StatusFields = {"queue": place, "forecast": forecast}
    return status.model_copy(update=fields)
