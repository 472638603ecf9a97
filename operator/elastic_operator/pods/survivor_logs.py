"""Finds out from logs whether the other pods of a Torchrun job are a group, after a node became not Ready (146).

The master's log is read first, and the other logs only if it shows a group of exactly the number of these pods. So a
group that stands still costs one log every five seconds, and a group that trains on costs each pod's log once. A log
that is unreadable or too long shows no group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Set
from dataclasses import dataclass

from elastic_operator.build.torchrun_group import GroupRank, last_rank
from elastic_operator.cluster.errors import ClusterError
from elastic_operator.cluster.pod_requests import read_log_since
from elastic_operator.cluster.waiting import cancel_and_wait
from elastic_operator.plan.facts.job import OwnPod, Survivors, TorchrunGroup
from elastic_operator.pods.failure_logs import MAX_OF_JOB, FailureLogs

log = logging.getLogger(__name__)

READ_AGAIN_SECONDS = 5.0
BEFORE_SECONDS = 120
"""Changes of the group this long before may belong to the loss of a node: Kubernetes marks it after 40 or 50 s."""


@dataclass(slots=True)
class _LogReading:
    """A job's pods whose logs are read; `known` is the group by the master's log."""

    job_uid: str
    namespace: str
    survivors: Survivors
    group: TorchrunGroup
    stepped: float
    known: GroupRank | None = None
    task: asyncio.Task[None] | None = None


class SurvivorLogs:
    """The findings in the logs, by the job's uid. A job is marked as dirty when its group by the logs has changed, or
    when its logs are not read any more.

    Args:
        now: Epoch seconds on the API server's clock.
        stepped: The sum of all steps of that clock so far, which must not shorten a reading (29).
    """

    def __init__(
        self, logs: FailureLogs, *, now: Callable[[], float], stepped: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._logs, self._now, self._stepped = logs, now, stepped
        self._dirty_jobs, self._changed = logs.dirty_jobs, logs.changed
        self._readings: dict[str, _LogReading] = {}

    def group(self, uid: str) -> TorchrunGroup | None:
        """The group that the logs of the job's pods show since they are read; None if they are not read."""
        reading = self._readings.get(uid)
        if reading is None:
            return None
        if by := self._stepped() - reading.stepped:
            reading.group = TorchrunGroup(reading.group.read_since + by, reading.group.pods)
            reading.stepped = self._stepped()
        return reading.group

    def follow(self, uid: str, namespace: str, survivors: Survivors | None) -> None:
        """Read the logs of these pods of the job from now on; None to read none."""
        reading = self._readings.get(uid)
        if survivors is None:
            self._forget(uid)
        elif reading is None:
            self._readings[uid] = reading = _LogReading(
                uid, namespace, survivors, TorchrunGroup(self._now()), self._stepped()
            )
            reading.task = asyncio.create_task(self._read_periodically(reading))
        else:
            reading.survivors = survivors

    def forget_deleted(self, present: Set[str]) -> None:
        for uid in self._readings.keys() - present:
            self._forget(uid)

    async def stop(self) -> None:
        """Read no logs any more."""
        await cancel_and_wait(reading.task for reading in self._readings.values() if reading.task)

    def _forget(self, uid: str) -> None:
        reading = self._readings.pop(uid, None)
        if reading is not None and reading.task is not None:
            self._dirty_jobs.mark(uid)
            reading.task.cancel()

    async def _read_periodically(self, reading: _LogReading) -> None:
        self._dirty_jobs.mark(reading.job_uid)
        self._changed()  # the next pass sees the beginning of the reading
        while True:
            survivors = reading.survivors
            try:
                shown = survivors.uids if await self._are_a_group(reading, survivors) else frozenset()
            except Exception:
                log.exception(
                    "cannot read the logs of a job's pods; they count as not training uid=%s", reading.job_uid
                )
                shown = frozenset()
            if shown != reading.group.pods:
                reading.group = TorchrunGroup(reading.group.read_since, shown)
                self._dirty_jobs.mark(reading.job_uid)
                self._changed()
            await asyncio.sleep(READ_AGAIN_SECONDS)

    async def _are_a_group(self, reading: _LogReading, survivors: Survivors) -> bool:
        """Whether the pods are exactly one group."""
        seconds = BEFORE_SECONDS + int(max(0.0, self._now() - survivors.since))
        master, *others = survivors.pods
        first = await self._rank_of(reading.namespace, master, seconds)
        if first is not None and first == reading.known and reading.group.pods == survivors.uids:
            return True
        reading.known = None
        if first is None or first.size != len(survivors.pods):
            return False
        ranks = {first.rank}
        for start in range(0, len(others), MAX_OF_JOB):
            some = (self._rank_of(reading.namespace, pod, seconds) for pod in others[start : start + MAX_OF_JOB])
            for theirs in await asyncio.gather(*some):
                if theirs is None or (theirs.size, theirs.group) != (first.size, first.group):
                    return False
                ranks.add(theirs.rank)
        reading.known = first
        return ranks == set(range(first.size))

    async def _rank_of(self, namespace: str, pod: OwnPod, seconds: int) -> GroupRank | None:
        """The pod's last group and rank by its log; None if the log shows none."""
        try:
            text = await self._logs.read_log(namespace, pod, read_log_since, seconds=seconds)
        except (ClusterError, TimeoutError, ValueError) as error:
            log.info("the log of a pod does not show its group pod=%s/%s error=%r", namespace, pod.name, error)
            return None
        return last_rank(text)
