"""The order in which the API server is asked whether it would take pods, and how long an answer counts (139)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from unittest.mock import patch

import pytest

from elastic_api.status import JobStatus, Retry
from elastic_operator.cluster.errors import Unreachable
from elastic_operator.loop.reclaim import trials
from elastic_operator.loop.reclaim.trial import Trial
from elastic_operator.loop.reclaim.trials import MAX_AT_ONCE, PASSED_SECONDS, Trials
from elastic_operator.plan.facts.job import Job
from tests.plan.jobs import at, make_job, make_status
from tests.simulate.moments import Moments


class Asked:
    """Trials whose questions are answered one by one, and a clock."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.decided_again: list[str] = []
        self._answers: dict[str, asyncio.Future[None]] = {}
        self.trials = Trials(self._ask, lambda *_: None, again=self.decided_again.append)

    async def _ask(self, trial: Trial) -> None:
        self.names.append(trial.job.uid)
        self._answers[trial.job.uid] = asyncio.get_running_loop().create_future()
        await self._answers[trial.job.uid]

    def wants(self, job: Job, *, order: int = 0) -> bool:
        """Whether the job's pod would be taken, as far as is known."""
        trial = Trial(job, ())
        return self.trials.have_passed(job, Counter(), lambda: trial, giver=f"giver of {job.uid}", order=order)

    async def want(self, jobs: Iterable[Job]) -> None:
        """All of these, and what is asked then."""
        for order, job in enumerate(jobs):
            self.wants(job, order=order)
        self.trials.ask_next()
        await asyncio.sleep(0)

    async def answer(self, uid: str, error: Exception | None = None) -> None:
        """The one about that job comes: its pods pass, or not."""
        future = self._answers.pop(uid)
        _ = future.set_result(None) if error is None else future.set_exception(error)
        for _ in range(3):
            await asyncio.sleep(0)


def jobs_of(namespace: str, count: int) -> list[Job]:
    return [make_job(namespace=namespace, name=f"{namespace}-{i}", uid=f"{namespace}-{i}") for i in range(count)]


def test_namespaces_take_turns_however_many_jobs_one_has() -> None:
    async def story() -> None:
        asked = Asked()
        crowd = [job for i in range(8) for job in jobs_of(f"crowd{i}", 10)]
        await asked.want(crowd)
        assert len(asked.names) == MAX_AT_ONCE
        await asked.want([*crowd, *jobs_of("quiet", 1)])
        await asked.answer("crowd0-0")
        await asked.want([])
        assert asked.names[-1] == "quiet-0"
        await asked.trials.stop()

    asyncio.run(story())


def test_who_was_never_asked_about_comes_before_those_whose_answer_is_old_and_that_counts_meanwhile() -> None:
    async def story() -> None:
        moments, asked = Moments(), Asked()
        with patch.object(trials, "time", moments):
            jobs = jobs_of("red", 5)
            await asked.want(jobs)
            assert asked.names == ["red-0", "red-1"]
            await asked.answer("red-0")
            await asked.answer("red-1")
            for _ in range(3):
                moments.passed += PASSED_SECONDS / 2
                await asked.want(jobs)
            assert asked.names == ["red-0", "red-1", "red-2", "red-3"]
            assert [asked.wants(job) for job in jobs] == [True, True, False, False, False]
            await asked.answer("red-2")
            await asked.want(jobs)
            await asked.answer("red-3")
            await asked.want(jobs)
            assert asked.names[4:] == ["red-4", "red-0"]
            await asked.trials.stop()

    asyncio.run(story())


def test_an_answer_that_nobody_wanted_for_a_minute_does_not_count() -> None:
    async def story() -> None:
        moments, asked = Moments(), Asked()
        with patch.object(trials, "time", moments):
            [job] = jobs_of("red", 1)
            await asked.want([job])
            await asked.answer("red-0")
            assert asked.wants(job)
            moments.passed += PASSED_SECONDS + 1
            assert not asked.wants(job)

    asyncio.run(story())


def test_who_waits_for_an_answer_is_decided_on_again_and_a_namespace_without_answers_is_asked_one_thing_at_a_time() -> (
    None
):
    async def story() -> None:
        moments, asked = Moments(), Asked()
        with patch.object(trials, "time", moments):
            jobs = jobs_of("red", 4)
            await asked.want(jobs)
            assert len(asked.names) == 2
            await asked.answer("red-0", Unreachable("no answer"))
            assert asked.decided_again == ["giver of red-0"]
            await asked.answer("red-1", Unreachable("no answer"))
            moments.passed += 10
            await asked.want(jobs)
            assert len(asked.names) == 3
            await asked.trials.stop()

    asyncio.run(story())


@pytest.mark.parametrize("error", [Unreachable("no answer"), KeyError("a mistake of ours")])
def test_that_a_job_may_not_take_is_another_answer_while_it_lasts(error: Exception) -> None:
    """So a pass knows without asking about each job."""

    async def story() -> None:
        moments, asked, (job,) = Moments(), Asked(), jobs_of("team-a", 1)
        with patch.object(trials, "time", moments):
            before = asked.trials.may_not_take()
            await asked.want([job])
            await asked.answer(job.uid, error)
            assert (asked.trials.may_take(job), asked.trials.may_not_take() == before) == (False, False)
            moments.passed += trials.MAX_SILENT_SECONDS + 1
            assert (asked.trials.may_take(job), asked.trials.may_not_take() == before) == (True, True)
            await asked.trials.stop()

    asyncio.run(story())


def test_after_three_edits_of_a_job_in_trouble_others_rest_from_it_until_its_pods_could_be_had() -> None:
    moments, asked = Moments(), Asked()
    trouble = make_status(failed_size=Retry(reason="x", not_before=at(0), size=1))

    def may_take(generation: int, status: JobStatus) -> bool:
        job = make_job(generation=generation, status=status)
        asked.trials.see(job)
        return asked.trials.may_take(job)

    with patch.object(trials, "time", moments):
        assert [may_take(generation, trouble) for generation in range(1, 7)] == [True] * 4 + [False] * 2
        moments.passed += 2 * 3600 + 1
        assert may_take(6, make_status())
        assert may_take(7, make_status())
        assert may_take(8, trouble)
