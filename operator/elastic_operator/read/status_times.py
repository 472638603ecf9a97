"""Moves the times in jobs' statuses when the API server's clock steps (29).

One status write uses one clock for all its times, future ones included, but does not name that clock. This class
records how far the API server's clock has stepped since. A step leaves every status behind by that much; a status whose
times have all moved was written again on a later clock, by whichever replica leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from statistics import median_low
from typing import Any

from elastic_api.status import Forecast, JobStatus, QueuePlace, Training
from elastic_operator.cluster.clock import STEP_SECONDS
from elastic_operator.cluster.objects import CustomObject


class StatusTimes:
    """How far each job's status is behind. It is a listener of the store of jobs from the start of the process.

    Args:
        stepped: The sum of all steps of the API server's clock so far, in seconds.
    """

    def __init__(self, stepped: Callable[[], int]) -> None:
        self._stepped = stepped
        self._written_at: dict[str, int] = {}
        """By the job's uid: the sum of the steps that the times of its status include."""

    def changed(self, old: CustomObject | None, new: CustomObject | None) -> None:
        """A job appeared, was written, or is gone."""
        if new is None:
            assert old is not None
            self._written_at.pop(old.metadata.uid, None)
            return
        uid = new.metadata.uid
        moved = times_moved(old.status, new.status) if old is not None else None
        known = self._written_at.get(uid)
        self._written_at[uid] = self._stepped() if known is None or moved is None else known + moved

    def behind(self, uid: str) -> int:
        """Seconds to add to the times of the job's status, to have them on the present clock.

        Replicas may measure a step differently by a second or two. Nothing is moved for that: nobody would see it.
        """
        stepped = self._stepped()
        behind = stepped - self._written_at.get(uid, stepped)
        return behind if abs(behind) >= STEP_SECONDS else 0


def moved(status: JobStatus, seconds: int) -> JobStatus:
    """The status with all its times later by that many seconds."""
    if not seconds:
        return status
    by = timedelta(seconds=seconds)
    retry, training, queue, forecast = status.retry, status.training, status.queue, status.forecast
    return status.model_copy(
        update={
            "start_time": status.start_time and status.start_time + by,
            "active_since": status.active_since and status.active_since + by,
            "completion_time": status.completion_time and status.completion_time + by,
            "last_resize_time": status.last_resize_time and status.last_resize_time + by,
            "running_since": status.running_since and status.running_since + by,
            "turn_started": status.turn_started and status.turn_started + by,
            "master_lost_time": status.master_lost_time and status.master_lost_time + by,
            "held_until": status.held_until and status.held_until + by,
            "retry": retry and retry.model_copy(update={"not_before": retry.not_before + by}),
            "training": training and _training_moved(training, by),
            "queue": queue and _queue_moved(queue, by),
            "forecast": forecast and _forecast_moved(forecast, by),
            "history": [change.model_copy(update={"time": change.time + by}) for change in status.history],
            "avoided_nodes": [one.model_copy(update={"until": one.until + by}) for one in status.avoided_nodes],
            "conditions": [
                c.model_copy(update={"last_transition_time": c.last_transition_time + by}) for c in status.conditions
            ],
        }
    )


def _training_moved(training: Training, by: timedelta) -> Training:
    told = training.last_updated_time
    return training.model_copy(update={"last_updated_time": told and told + by})


def _queue_moved(queue: QueuePlace, by: timedelta) -> QueuePlace:
    start = queue.estimated_start_time
    return queue.model_copy(update={"estimated_start_time": start and start + by})


def _forecast_moved(forecast: Forecast, by: timedelta) -> Forecast:
    return forecast.model_copy(update={"answered_time": forecast.answered_time + by})


def times_moved(old: dict[str, Any], new: dict[str, Any]) -> int | None:
    """By how many seconds the lasting times of a status moved as a whole; None if there are none to compare.

    A single time that moved is no move: a condition may have changed and changed back between two looks.
    """
    before, after = dict(_lasting(old)), dict(_lasting(new))
    moves = [_seconds_between(before[what], after[what]) for what in before.keys() & after.keys()]
    if not moves:
        return None
    most = median_low(moves)
    return most if abs(most) >= STEP_SECONDS else 0


def _lasting(status: dict[str, Any]) -> Iterator[tuple[object, str]]:
    """The times that change only with the clock, each with what it is the time of."""
    for field in ("startTime", "completionTime"):
        if field in status:
            yield field, status[field]
    for condition in status.get("conditions", ()):
        yield (condition["type"], condition["status"]), condition["lastTransitionTime"]


def _seconds_between(before: str, after: str) -> int:
    if before == after:
        return 0
    try:
        return round((datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds())
    except ValueError:  # a leap second, which the schema allows
        return 0
