"""What failed pods said last is waited for, and never for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf

import pytest

from elastic_operator.cluster.errors import Unreachable
from elastic_operator.memory import DirtySet
from elastic_operator.plan.facts.job import LastOutput
from elastic_operator.pods.failure_logs import KEPT_BYTES, LOG_READ_SECONDS, WAIT_SECONDS, FailureLogs, size_of
from tests.plan.jobs import ended, make_pod

FAILED = ended(make_pod(), 1, message="what the kubelet kept")


@dataclass
class Answer:
    """A session whose one answer is a log, or what is raised instead."""

    log: bytes | Exception
    seconds: float = inf

    def remaining(self) -> float:
        return self.seconds

    async def get_bytes(self, path: str, *, params: dict[str, str]) -> bytes:  # noqa: ARG002 - as Session
        if isinstance(self.log, Exception):
            raise self.log
        return self.log


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (b"KeyError: 'accuracy'", "KeyError: 'accuracy'"),
        (b"Root Cause (first observed failure):\n  rank : " + b"9" * 5000, "9" * 9),
        (Unreachable("no answer"), "what the kubelet kept"),
        (ValueError("nobody thought of this"), "what the kubelet kept"),
    ],
    ids=["a log", "a rank of 5,000 digits", "no answer", "a mistake of ours"],
)
async def test_a_failed_pod_counts_as_running_only_until_its_log_wwith_logs(log: bytes | Exception, told: str):
    read, dirty_jobs = asyncio.Event(), DirtySet[str | tuple[str, str]]()
    dirty_jobs.take()
    logs = FailureLogs(Answer(log), lambda _: "pytorch", dirty_jobs, read.set)
    (before,) = logs.with_logs("job", "team-a", (FAILED,))
    assert (before.phase, before.main.exit_code) == ("Running", None)
    async with asyncio.timeout(5):
        await read.wait()
    assert dirty_jobs.take() == {"job"}
    (after,) = logs.with_logs("job", "team-a", (FAILED,))
    assert (after.phase, after.main.exit_code) == ("Failed", 1)
    assert told in after.main.message


async def test_a_standby_reads_no_log():
    session = Answer(b"KeyError", seconds=0.0)
    logs = FailureLogs(session, lambda _: "pytorch", DirtySet[str | tuple[str, str]](), lambda: None)
    (before,) = logs.with_logs("job", "team-a", (FAILED,))
    assert before.phase == "Running"
    assert not logs.reads("job")
    session.seconds = 10.0
    logs.with_logs("job", "team-a", (FAILED,))
    assert logs.reads("job")
    await logs.stop()


@dataclass
class Kubelets:
    """A session that answers each request for a log after so many seconds, and counts those under way."""

    seconds: float = 1.0
    text: bytes = b"KeyError: 'accuracy'"
    asked: list[str] = field(default_factory=list)
    under_way: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    """By job, and of all."""

    def remaining(self) -> float:
        return inf

    async def get_bytes(self, path: str, *, params: dict[str, str]) -> bytes:  # noqa: ARG002 - as Session
        pod = path.split("/")[-2]
        self.asked.append(pod)
        for key in (pod.split("-")[0], "all"):
            self.under_way[key] += 1
            self.most[key] = max(self.most[key], self.under_way[key])
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.under_way.subtract((pod.split("-")[0], "all"))
        return self.text


class Reading:
    """Jobs whose pods have failed, the last one first, are looked at whenever something was read.

    Each is of a namespace of its own, or all are of the same one.
    """

    def __init__(self, kubelets: Kubelets, *, namespace: str = "", **jobs: int) -> None:
        self.namespace, self.kubelets, self.again = namespace, kubelets, asyncio.Event()
        self.logs = FailureLogs(kubelets, lambda _: "pytorch", DirtySet(), self.again.set)
        self.jobs = {
            job: tuple(
                replace(
                    ended(make_pod(f"worker-{i}"), 1, finished=100.0 + count - i), name=f"{job}-{i}", uid=f"{job}-{i}"
                )
                for i in range(count)
            )
            for job, count in jobs.items()
        }

    def look(self) -> list[str]:
        """The pods that are shown as failed."""
        shown = [
            pod for job, pods in self.jobs.items() for pod in self.logs.with_logs(job, self.namespace or job, pods)
        ]
        return [pod.name for pod in shown if pod.phase == "Failed"]

    async def until(self, *shown: str, seconds: float = inf) -> None:
        """Until these are shown as failed."""
        async with asyncio.timeout(seconds if seconds < inf else None):
            while not set(shown) <= set(self.look()):
                self.again.clear()
                await self.again.wait()


async def test_few_logs_are_read_at_once_and_fewer_of_one_job_in_the_order_of_failing():
    reading = Reading(Kubelets(), one=10, two=10, three=10)
    await reading.until(*(f"{job}-{i}" for job in reading.jobs for i in range(10)))
    assert reading.kubelets.most == {"all": 8, "one": 3, "two": 3, "three": 3}
    for job in reading.jobs:
        assert [name for name in reading.kubelets.asked if name.startswith(job)] == [
            f"{job}-{i}" for i in range(9, -1, -1)
        ]


async def test_one_job_of_many_pods_that_failed_does_not_hold_up_another_one():
    reading = Reading(Kubelets(), big=400, other=1)
    await reading.until("other-0")
    assert len(reading.kubelets.asked) == 4
    assert len(reading.look()) < 10


async def test_a_namespace_whose_kubelets_hang_does_not_hold_up_another_one():
    hanging = Kubelets(seconds=3600)
    reading = Reading(hanging, namespace="team-a", **{f"job{i}": 3 for i in range(100)})
    reading.look()
    await asyncio.sleep(LOG_READ_SECONDS / 2)
    asked = len(hanging.asked)
    reading.logs.with_logs("other", "team-b", (FAILED,))
    await asyncio.sleep(0.01)
    assert hanging.asked[asked:] == [FAILED.name]


async def test_no_pod_waits_for_long_to_have_its_log_read():
    reading = Reading(Kubelets(seconds=3600), **{f"job{i}": 1 for i in range(200)})
    await reading.until(*(f"job{i}-0" for i in range(200)), seconds=WAIT_SECONDS + LOG_READ_SECONDS + 1)
    assert 8 < len(reading.kubelets.asked) < 200
    told = [
        pod.main.message for job, pods in reading.jobs.items() for pod in reading.logs.with_logs(job, "team-a", pods)
    ]
    assert set(told) == {"boom"}
    assert not reading.logs._reading


LONG = ("Traceback (most recent call last):\n" + "  x\n" * 50 + "KeyError: " + "\U0001f600" * 3000).encode()


async def test_the_pod_that_failed_first_keeps_its_log_when_the_memory_is_full():
    reading = Reading(Kubelets(seconds=0.01, text=LONG), large=600)
    while len(reading.kubelets.asked) < 600:
        reading.again.clear()
        assert reading.kubelets.asked.count("large-599") <= 1
        reading.look()
        await reading.again.wait()
    assert sum(map(size_of, reading.logs._contents.values())) > KEPT_BYTES / 2
    assert reading.look()[-1] == "large-599"
    assert reading.kubelets.asked.count("large-599") == 1


async def test_the_logs_of_pods_that_are_gone_are_dropped_before_those_of_failed_pods():
    reading = Reading(Kubelets(seconds=0.01, text=LONG), first=100)
    await reading.until(*(f"first-{i}" for i in range(100)))
    for job in ("gone", "last"):
        reading.jobs.pop("gone", None)
        reading.jobs |= Reading(reading.kubelets, **{job: 100}).jobs
        await reading.until(*(f"{job}-{i}" for i in range(100)))
    assert len(reading.look()) == 200
    assert len(reading.kubelets.asked) == 300


async def test_the_memory_of_logs_is_bounded_in_bytes():
    reading = Reading(Kubelets(seconds=0.01, text=LONG), **{f"job{i}": 3 for i in range(200)})
    reading.look()
    await asyncio.sleep(LOG_READ_SECONDS)
    assert len(reading.kubelets.asked) == 600
    assert KEPT_BYTES / 2 < sum(map(size_of, reading.logs._contents.values())) <= KEPT_BYTES


HANDED_ON = LastOutput("toy-worker-2", -9, 3, ("loss inf",))


@pytest.mark.parametrize(
    ("log", "kept", "last"),
    [
        (b"loss inf\nKilled", None, LastOutput("toy-worker-0", 1, None, ("loss inf", "Killed"))),
        (b"what the launcher says", HANDED_ON, HANDED_ON),
        (Unreachable("no answer"), HANDED_ON, HANDED_ON),
        (Unreachable("no answer"), None, LastOutput("toy-worker-0", 1)),
    ],
    ids=["a log", "what a launcher hands on", "without a log", "nothing"],
)
async def test_a_failed_pod_has_its_last_lines_from_its_log_or_its_launcher(
    log: bytes | Exception, kept: LastOutput | None, last: LastOutput
):
    read = asyncio.Event()
    logs = FailureLogs(Answer(log), lambda _: "pytorch", DirtySet(), read.set)
    failed = ended(make_pod(), 1)
    failed = replace(failed, main=replace(failed.main, last_output=kept))
    assert logs.with_logs("job", "team-a", (failed,))[0].main.last_output is None
    async with asyncio.timeout(5):
        await read.wait()
    main = logs.with_logs("job", "team-a", (failed,))[0].main
    assert main.last_output == last


async def test_the_logs_of_a_deleted_job_make_room_for_others():
    reading = Reading(Kubelets(), gone=2, stays=1)
    await reading.until("gone-0", "gone-1", "stays-0")
    reading.logs.forget_deleted({"stays"})
    assert reading.look() == ["stays-0"]
    del reading.jobs["gone"]
    await reading.logs.stop()
    reading.logs.forget_deleted(set())
    assert reading.logs._kept_bytes == 0
