"""Logs show that the pods which a lost node leaves are a group of their own, or nothing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from elastic_operator.cluster.errors import Unreachable
from elastic_operator.cluster.pod_requests import LONG_LOG_BYTES
from elastic_operator.memory import DirtySet
from elastic_operator.plan.facts.job import Survivors
from elastic_operator.pods.failure_logs import LOG_READ_SECONDS, MAX_OF_JOB, FailureLogs
from elastic_operator.pods.survivor_logs import BEFORE_SECONDS, READ_AGAIN_SECONDS, SurvivorLogs
from tests.build.groups import said_by
from tests.plan.jobs import group

NAMES = ("toy-master-0", "toy-worker-0", "toy-worker-1")


@dataclass
class Kubelets:
    """A session that answers with these logs, by the pods' names, after so many seconds."""

    logs: dict[str, bytes | Exception]
    seconds: float = 0.01
    asked: list[str] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    under_way: Counter[str] = field(default_factory=Counter)
    most: int = 0

    async def get_bytes(self, path: str, *, params: dict[str, str]) -> bytes:
        pod = path.split("/")[-2]
        self.asked.append(pod)
        self.params = params
        self.under_way[pod] += 1
        self.most = max(self.most, self.under_way.total())
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.under_way[pod] -= 1
        said = self.logs.get(pod, b"")
        if isinstance(said, Exception):
            raise said
        return said


class Reading:
    """The logs of a job of three pods, of which a node of a fourth one is not Ready since ten seconds ago."""

    def __init__(self, logs: dict[str, bytes | Exception], *, workers: int = 2, seconds: float = 0.01) -> None:
        self.kubelets, self.news = Kubelets(logs, seconds), 0
        self.dirty_jobs = DirtySet[str | tuple[str, str]]()
        failures = FailureLogs(self.kubelets, lambda _: "pytorch", self.dirty_jobs, self._changed)
        self.survivors, self.left = self._survivors(failures), Survivors(group(workers), time.time() - 10)

    def _survivors(self, failures: FailureLogs) -> SurvivorLogs:
        self.stepped = 0.0
        return SurvivorLogs(failures, now=lambda: time.time() + self.stepped, stepped=lambda: self.stepped)

    def _changed(self) -> None:
        self.news += 1
        assert self.dirty_jobs.take() in (None, {"job"})

    async def read(self, seconds: float = 1.0) -> bool:
        """Whether they are shown to be a group after so many seconds."""
        self.survivors.follow("job", "team-a", self.left)
        await asyncio.sleep(seconds)
        known = self.survivors.group("job")
        assert known is not None
        assert known.pods in (frozenset(), self.left.uids)
        return bool(known.pods)


async def test_pods_that_all_say_that_they_are_one_group_of_their_number_are_one():
    reading = Reading(said_by(*NAMES))
    assert await reading.read()
    assert reading.kubelets.asked == list(NAMES)
    assert reading.kubelets.params["sinceSeconds"] == str(BEFORE_SECONDS + 10)
    assert reading.news == 2


@pytest.mark.parametrize(
    "others",
    [
        said_by(*NAMES, "toy-worker-2"),
        {NAMES[1]: b""},
        {NAMES[1]: said_by(*NAMES)[NAMES[2]]},
        {NAMES[1]: said_by(*NAMES, port=40_001)[NAMES[1]]},
        {NAMES[2]: Unreachable("no answer")},
        {NAMES[2]: b"x" * LONG_LOG_BYTES + said_by(*NAMES)[NAMES[2]]},
        {NAMES[2]: RecursionError("nobody thought of this")},
    ],
    ids=["a larger group", "no word", "a rank twice", "another group", "no answer", "too long", "a mistake of ours"],
)
async def test_nothing_is_shown_where_one_of_them_says_otherwise(others: dict[str, bytes | Exception]):
    reading = Reading(said_by(*NAMES) | others)
    assert not await reading.read(60)


async def test_a_group_that_stands_still_costs_one_log_every_five_seconds():
    reading = Reading(said_by(*NAMES, "toy-worker-2"))
    assert not await reading.read(10 * READ_AGAIN_SECONDS - 1)
    assert Counter(reading.kubelets.asked) == {NAMES[0]: 10}


async def test_the_logs_of_all_are_read_once_as_long_as_the_group_is_the_same():
    reading = Reading(said_by(*NAMES))
    assert await reading.read(10 * READ_AGAIN_SECONDS - 1)
    assert Counter(reading.kubelets.asked) == {NAMES[0]: 10, NAMES[1]: 1, NAMES[2]: 1}
    reading.kubelets.logs.update(said_by(*NAMES, port=40_001))
    assert await reading.read(2 * READ_AGAIN_SECONDS)
    assert Counter(reading.kubelets.asked)[NAMES[1]] == 2
    reading.kubelets.logs.update(said_by(*NAMES, "toy-worker-2"))
    assert not await reading.read(2 * READ_AGAIN_SECONDS)


async def test_a_few_logs_of_a_job_are_read_at_once():
    names = ("toy-master-0", *(f"toy-worker-{i}" for i in range(99)))
    reading = Reading(said_by(*names), workers=99, seconds=0.1)
    assert await reading.read(100 * 0.1)
    assert reading.kubelets.most == MAX_OF_JOB


async def test_a_kubelet_that_hangs_shows_nothing_and_is_asked_again():
    reading = Reading({}, seconds=3600)
    assert not await reading.read(LOG_READ_SECONDS + READ_AGAIN_SECONDS + 1)
    assert reading.kubelets.asked == [NAMES[0]] * 2


@pytest.mark.parametrize(
    "end",
    [lambda logs: logs.follow("job", "team-a", None), lambda logs: logs.forget_deleted(set())],
    ids=["Ready again", "the job is gone"],
)
async def test_logs_are_not_read_any_more_without_a_question(end: Callable[[SurvivorLogs], None]):
    reading = Reading({})
    assert not await reading.read()
    end(reading.survivors)
    await asyncio.sleep(60)
    assert (reading.kubelets.asked, reading.survivors.group("job")) == ([NAMES[0]], None)


async def test_a_step_of_the_clock_leaves_as_much_time_to_read_as_before():
    reading = Reading({})
    await reading.read(3.0)
    reading.stepped += 3600.0
    await asyncio.sleep(2.0)
    known = reading.survivors.group("job")
    assert known is not None
    assert known.read_since == time.time() + 3600.0 - 5.0
