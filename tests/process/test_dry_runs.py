"""The order in which the API server is asked whether it would take pods, and how long an answer counts (139)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import inf
from unittest.mock import patch

import pytest

from elastic_api.status import JobStatus, Retry
from elastic_operator.cluster.errors import PodRefused, Unreachable, api_error
from elastic_operator.loop.reclaim import dry_run_answers, dry_runs
from elastic_operator.loop.reclaim.dry_run import DryRunQuestion
from elastic_operator.loop.reclaim.dry_run_answers import PASSED_SECONDS, DryRunAnswers
from elastic_operator.loop.reclaim.dry_runs import MAX_QUESTIONS_AT_ONCE, DryRuns
from elastic_operator.memory import DirtySet
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_operator.plan.facts.job import Job
from tests.plan.jobs import at, make_job, make_status
from tests.simulate.virtual_clock import VirtualClock

Besides = tuple[tuple[Job, tuple[str, ...]], ...]


class Asked:
    """Dry runs whose questions are answered one by one, and a clock."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.decided_again: list[str] = []
        self._answers: dict[str, asyncio.Future[None]] = {}
        self.dirty_jobs, self.bar_changes = DirtySet[str | tuple[str, str]](), 0
        self.dirty_jobs.take()
        answers = DryRunAnswers(self.dirty_jobs, self._bar_changed)
        self.dry_runs = DryRuns(answers, self._ask, lambda *_: None, requeue=self.decided_again.append)

    def _bar_changed(self) -> None:
        self.bar_changes += 1

    async def _ask(self, question: DryRunQuestion) -> None:
        self.names.append(question.job.uid)
        self._answers[question.job.uid] = asyncio.get_running_loop().create_future()
        await self._answers[question.job.uid]

    def wants(self, job: Job, *, order: int = 0, besides: Besides = ()) -> bool:
        """Whether the job's pod would be taken, as far as is known."""
        question = DryRunQuestion(job, ONE_POD, besides)
        return self.dry_runs.queue_unless_accepted(
            job, Counter(), lambda: question, victim_job=f"victim of {job.uid}", order=order
        )

    async def want(self, jobs: Iterable[Job], *, besides: Besides = ()) -> None:
        """All of these, and what is asked then."""
        for order, job in enumerate(jobs):
            self.wants(job, order=order, besides=besides)
        self.dry_runs.start_next()
        await asyncio.sleep(0)

    def marked(self) -> tuple[set[str | tuple[str, str]] | None, int]:
        """The jobs that are marked since the last call, by a pass that begins now, and how many bars have changed."""
        self.dry_runs.answers.note_ends()
        changes, self.bar_changes = self.bar_changes, 0
        return self.dirty_jobs.take(), changes

    async def answer(self, uid: str, error: Exception | None = None) -> None:
        """The one about that job comes: its pods pass, or not."""
        future = self._answers.pop(uid)
        _ = future.set_result(None) if error is None else future.set_exception(error)
        for _ in range(3):
            await asyncio.sleep(0)


def may_preempt(asked: Asked, job: Job) -> bool:
    return asked.dry_runs.answers.preemption_bar(job) is None


def jobs_of(namespace: str, count: int) -> list[Job]:
    return [make_job(namespace=namespace, name=f"{namespace}-{i}", uid=f"{namespace}-{i}") for i in range(count)]


def test_namespaces_take_turns_however_many_jobs_one_has() -> None:
    async def scenario() -> None:
        asked = Asked()
        crowd = [job for i in range(8) for job in jobs_of(f"crowd{i}", 10)]
        await asked.want(crowd)
        assert len(asked.names) == MAX_QUESTIONS_AT_ONCE
        await asked.want([*crowd, *jobs_of("quiet", 1)])
        await asked.answer("crowd0-0")
        await asked.want([])
        assert asked.names[-1] == "quiet-0"
        await asked.dry_runs.stop()

    asyncio.run(scenario())


def test_jobs_without_an_answer_are_asked_about_before_old_answers_which_count_meanwhile() -> None:
    async def scenario() -> None:
        clock, asked = VirtualClock(), Asked()
        with patch.object(dry_runs, "time", clock), patch.object(dry_run_answers, "time", clock):
            jobs = jobs_of("red", 5)
            await asked.want(jobs)
            assert asked.names == ["red-0", "red-1"]
            await asked.answer("red-0")
            await asked.answer("red-1")
            for _ in range(3):
                clock.passed += PASSED_SECONDS / 2
                await asked.want(jobs)
            assert asked.names == ["red-0", "red-1", "red-2", "red-3"]
            assert [asked.wants(job) for job in jobs] == [True, True, False, False, False]
            await asked.answer("red-2")
            await asked.want(jobs)
            await asked.answer("red-3")
            await asked.want(jobs)
            assert asked.names[4:] == ["red-4", "red-0"]
            await asked.dry_runs.stop()

    asyncio.run(scenario())


def test_an_answer_that_was_not_used_for_a_minute_does_not_count() -> None:
    async def scenario() -> None:
        clock, asked = VirtualClock(), Asked()
        with patch.object(dry_runs, "time", clock), patch.object(dry_run_answers, "time", clock):
            [job] = jobs_of("red", 1)
            await asked.want([job])
            await asked.answer("red-0")
            assert asked.wants(job)
            clock.passed += PASSED_SECONDS + 1
            assert not asked.wants(job)

    asyncio.run(scenario())


def test_silent_namespace_gets_one_dry_run_at_a_time() -> None:
    async def scenario() -> None:
        clock, asked = VirtualClock(), Asked()
        with patch.object(dry_runs, "time", clock), patch.object(dry_run_answers, "time", clock):
            jobs = jobs_of("red", 4)
            await asked.want(jobs)
            assert len(asked.names) == 2
            await asked.answer("red-0", Unreachable("no answer"))
            assert asked.decided_again == ["victim of red-0"]
            await asked.answer("red-1", Unreachable("no answer"))
            clock.passed += 10
            await asked.want(jobs)
            assert len(asked.names) == 3
            await asked.dry_runs.stop()

    asyncio.run(scenario())


ONE_POD = NewPods((Slot("worker", 0, None, True),), 1, (1, 1))
REFUSED = PodRefused(api_error(403, b'{"message": "exceeded quota"}'), role="worker")


@pytest.mark.parametrize(
    ("error", "marked"),
    [
        (Unreachable("no answer"), {"red-0", "red-1"}),
        (KeyError("a mistake of ours"), {"red-0"}),
        (REFUSED, {"red-0"}),
    ],
)
def test_jobs_that_may_not_preempt_are_marked_once_when_that_begins_and_once_when_it_ends(
    error: Exception, marked: set[str]
) -> None:
    """So a pass looks at no other job (200)."""

    async def scenario() -> None:
        clock, asked = VirtualClock(), Asked()
        with patch.object(dry_runs, "time", clock), patch.object(dry_run_answers, "time", clock):
            answers, (job, other) = asked.dry_runs.answers, jobs_of("red", 2)
            for known in (job, other, *jobs_of("blue", 1)):
                answers.job_read(known)
            await asked.want([job])
            assert asked.marked() == (set(), 0)
            await asked.answer(job.uid, error)
            assert (may_preempt(asked, job), may_preempt(asked, other)) == (False, other.uid not in marked)
            assert asked.marked() == (marked, 1)
            assert asked.marked() == (set(), 0)
            clock.passed = answers.next_end_monotonic()
            assert may_preempt(asked, job)
            assert asked.marked() == (marked, 1)
            assert answers.next_end_monotonic() == inf
            await asked.dry_runs.stop()

    asyncio.run(scenario())


def test_an_answer_ends_the_silence_of_a_namespace_early_for_all_its_jobs() -> None:
    async def scenario() -> None:
        clock, asked = VirtualClock(), Asked()
        with patch.object(dry_runs, "time", clock), patch.object(dry_run_answers, "time", clock):
            answers, (job, other, new) = asked.dry_runs.answers, jobs_of("red", 3)
            answers.job_read(job)
            answers.job_read(other)
            answers.note_unanswered("red", Unreachable("no answer"))
            assert asked.marked() == ({"red-0", "red-1"}, 1)
            answers.job_read(new)
            answers.note_refused(DryRunQuestion(job, ONE_POD))
            assert asked.marked() == ({"red-0", "red-1", "red-2"}, 2)
            assert [may_preempt(asked, one) for one in (job, other, new)] == [False, True, True]
            answers.job_read(replace(job, generation=2))
            assert asked.marked() == ({"red-0"}, 1), "the edit ends the refusal"
            answers.note_refused(DryRunQuestion(job, ONE_POD))
            answers.note_unanswered("red", Unreachable("no answer"))
            assert asked.marked() == ({"red-0", "red-1", "red-2"}, 2)
            answers.forget_deleted({"red-1", "red-2"})
            clock.passed = answers.next_end_monotonic()
            assert asked.marked() == ({"red-1", "red-2"}, 1)
            assert answers.next_end_monotonic() == inf

    asyncio.run(scenario())


def test_a_gateway_that_names_an_hour_stops_no_namespace_s_preemption_for_so_long() -> None:
    async def scenario() -> None:
        clock, asked, (job,) = VirtualClock(), Asked(), jobs_of("red", 1)
        with patch.object(dry_runs, "time", clock), patch.object(dry_run_answers, "time", clock):
            await asked.want([job])
            await asked.answer(job.uid, api_error(503, b"", retry_after="3600"))
            assert not may_preempt(asked, job)
            clock.passed += dry_run_answers.MAX_NO_ANSWER_SECONDS + 1
            assert may_preempt(asked, job)

    asyncio.run(scenario())


def test_that_pods_of_other_jobs_fill_the_quota_does_not_count_as_the_job_s_own_trouble() -> None:
    """The fourth edit after that kept the job from preempting for an hour."""

    async def scenario() -> None:
        clock, asked, (job, other) = VirtualClock(), Asked(), jobs_of("red", 2)
        with patch.object(dry_runs, "time", clock), patch.object(dry_run_answers, "time", clock):
            for generation in range(1, dry_run_answers.MAX_EDITS + 3):
                edited = replace(job, generation=generation)
                asked.dry_runs.answers.job_read(edited)
                assert may_preempt(asked, edited)
                await asked.want([edited], besides=((other, ("master",)),))
                await asked.answer(job.uid, REFUSED)
                assert not may_preempt(asked, edited)
                clock.passed += dry_run_answers.FIRST_REFUSED_SECONDS + 1

    asyncio.run(scenario())


def test_three_edits_of_a_failing_job_stop_evictions_for_it() -> None:
    clock, asked = VirtualClock(), Asked()
    trouble = make_status(failed_size=Retry(reason="x", not_before=at(0), size=1))

    def preempts(generation: int, status: JobStatus) -> bool:
        job = make_job(generation=generation, status=status)
        asked.dry_runs.answers.job_read(job)
        return may_preempt(asked, job)

    with patch.object(dry_runs, "time", clock), patch.object(dry_run_answers, "time", clock):
        assert [preempts(generation, trouble) for generation in range(1, 7)] == [True] * 4 + [False] * 2
        clock.passed += 2 * 3600 + 1
        assert preempts(6, make_status())
        assert preempts(7, make_status())
        assert preempts(8, trouble)
