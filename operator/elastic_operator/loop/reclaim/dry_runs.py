"""Asks whether the API server would accept the pods of a preemptor, before the first pod is evicted for it (139).

`dry_run_answers` keeps the answers. If the job needs the refused pods for its minimum, the answer counts like a
refused creation. Otherwise the job can still grow into idle GPUs.

Each question is one to three requests. Only a few questions are under way at once, fewer of one namespace, and
namespaces take turns: a namespace with slow webhooks or very many jobs must delay neither the questions of other
namespaces nor the writes that follow. Within a namespace, jobs without an answer so far come first, then jobs in the
order in which they are served.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field

from elastic_operator.cluster.errors import ClusterError, PodRefused
from elastic_operator.cluster.session import MAX_WRITES
from elastic_operator.cluster.waiting import cancel_and_wait
from elastic_operator.loop.reclaim.dry_run import DryRunQuestion
from elastic_operator.loop.reclaim.dry_run_answers import Acceptance, DryRunAnswers
from elastic_operator.memory import Turns, drop_absent
from elastic_operator.plan.facts.job import Job

QUESTION_SECONDS = 5.0
"""If no plan has wanted a question for this long, the operator drops the question."""
MAX_QUESTIONS_AT_ONCE = MAX_WRITES // 2
"""The most questions under way: half of the most writes (28)."""
MAX_QUESTIONS_OF_NAMESPACE = 2


@dataclass(slots=True)
class _Queued:
    """A waiting question: its `order` within its namespace, and the victim jobs that wait for the answer.

    `make_question` makes it from the last decisions, once it is asked.
    """

    job: Job
    make_question: Callable[[], DryRunQuestion | None]
    order: int
    until: float
    victim_jobs: set[str] = field(default_factory=set)


@dataclass(eq=False, repr=False)
class DryRuns:
    """The questions, by the uid of the job, and the `answers`."""

    answers: DryRunAnswers
    ask: Callable[[DryRunQuestion], Awaitable[None]]
    """Asks the API server. Raises ClusterError."""
    refused: Callable[[Job, PodRefused, bool], object]
    """`refused(job, error, needed)`: the job's own pods were refused; `needed`: for its minimum. Not called if the pods
    of other jobs filled the quota.
    """
    requeue: Callable[[str], object]
    """Called with a victim job (uid) that waited for an answer, to plan for it again."""

    def __post_init__(self) -> None:
        self._queued: dict[str, _Queued] = {}
        self._running: dict[str, tuple[_Queued, asyncio.Task[None]]] = {}
        self._turns = Turns()
        """The turns of the namespaces with questions."""

    def forget_deleted(self, present: Set[str]) -> None:
        drop_absent(present, self._queued)

    def answered_or_running(self) -> frozenset[str]:
        """The jobs (uids) with an answer or a question under way. A dry run for another job counts their pods first."""
        return self.answers.passed().union(self._running)

    def queue_unless_accepted(
        self,
        job: Job,
        roles: Counter[str],
        make_question: Callable[[], DryRunQuestion | None],
        *,
        victim_job: str,
        order: int,
    ) -> bool:
        """Queue the question unless a fresh answer accepts that many pods of the job. After the next answer,
        `victim_job` is planned again. Returns whether an answer accepts the pods, even an old one.
        """
        acceptance = self.answers.use_acceptance(job, roles)
        if acceptance is Acceptance.FRESH:
            return True
        if job.uid in self._running:
            self._running[job.uid][0].victim_jobs.add(victim_job)
            return acceptance is Acceptance.OLD
        queued, until = self._queued.get(job.uid), time.monotonic() + QUESTION_SECONDS
        victim_jobs = queued.victim_jobs if queued is not None else set()
        self._queued[job.uid] = _Queued(job, make_question, order, until, victim_jobs | {victim_job})
        return acceptance is Acceptance.OLD

    def start_next(self) -> None:
        """Ask as many questions as may be under way, one namespace after the other."""
        now, passed = time.monotonic(), self.answers.passed()
        self._queued = {uid: queued for uid, queued in self._queued.items() if now < queued.until}
        places: dict[str, list[_Queued]] = {}
        new_first = sorted(self._queued.values(), key=lambda queued: (queued.job.uid in passed, queued.order))
        for queued in new_first:
            places.setdefault(queued.job.namespace, []).append(queued)
        here = {queued.job.namespace for queued, _ in self._running.values()}
        self._turns.keep_only(here.union(places))
        while open_now := [name for name, questions in places.items() if questions and self._may_ask(name)]:
            self._start(places[self._turns.take(open_now)].pop(0))

    def _start(self, queued: _Queued) -> None:
        uid = queued.job.uid
        del self._queued[uid]
        if self.answers.preemption_bar(queued.job) is not None:
            return
        try:
            question = queued.make_question()
        except Exception:  # noqa: BLE001 - any error is handled as an error of this job only
            self.answers.note_fault(queued.job)
            return
        if question is None:
            return
        task = asyncio.create_task(self._ask_and_note(question))
        self._running[uid] = queued, task
        task.add_done_callback(lambda _: self._end(uid))

    def _end(self, uid: str) -> None:
        queued, _ = self._running.pop(uid)
        for victim_job in queued.victim_jobs:
            self.requeue(victim_job)

    async def stop(self) -> None:
        """Cancel the questions under way."""
        await cancel_and_wait(task for _, task in self._running.values())

    def _may_ask(self, namespace: str) -> bool:
        silence = self.answers.silence(namespace)
        here = sum(queued.job.namespace == namespace for queued, _ in self._running.values())
        is_silent = silence is not None and time.monotonic() < silence.until
        most = MAX_QUESTIONS_OF_NAMESPACE if silence is None else 1
        return not is_silent and here < most and len(self._running) < MAX_QUESTIONS_AT_ONCE

    async def _ask_and_note(self, question: DryRunQuestion) -> None:
        job = question.job
        try:
            await self.ask(question)
        except PodRefused as error:
            self.answers.note_refused(question)
            if not question.besides:
                self.refused(job, error, question.needed)
        except ClusterError as error:
            self.answers.note_unanswered(job.namespace, error)
        except Exception:  # noqa: BLE001 - as in `_start`
            self.answers.note_fault(job)
        else:
            self.answers.note_accepted(question)
