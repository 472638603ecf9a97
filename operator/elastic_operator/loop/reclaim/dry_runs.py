"""Asks whether the API server would accept the pods of a preemptor, before the first pod is evicted for it (139).

A job whose pods are refused may not preempt for a while. If it needs the pods for its minimum, the answer counts like a
refused creation; else the job still grows into idle GPUs. If pods repeatedly pass the dry run and are refused when they
are created, nothing is preempted for the job for a long time. An edited job is asked about at once, but repeated edits
do not cause an eviction each time.

Each question is one to three requests. At most a few are under way at once, fewer of one namespace, and namespaces take
turns: a namespace with slow webhooks or very many jobs must hold up neither the questions of others nor the writes that
follow. Within a namespace, jobs without any question so far come first, then jobs in the order in which they are
served.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field, replace
from math import inf

from elastic_operator.cluster.errors import ClusterError, PodRefused
from elastic_operator.loop.reclaim.dry_run import DryRun
from elastic_operator.memory import drop_absent
from elastic_operator.plan.facts.futility_backoff import FUTILE_TRIES, backoff_seconds
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.times import doubled

log = logging.getLogger(__name__)

PASSED_SECONDS = 60.0
"""A question is asked again after this time, because quotas change. The old answer holds until the new one, if the
question was needed all the time.
"""
QUESTION_SECONDS = 5.0
"""A question that was not asked within this time, and is not needed again, is dropped."""
FIRST_REFUSED_SECONDS = 10.0
MAX_REFUSED_SECONDS = 300.0
"""How long a job whose pods were refused may not preempt: at first, and doubled each time up to the longest."""
FIRST_SILENCE_SECONDS = 1.0
MAX_SILENCE_SECONDS = 30.0
"""How long no question is asked in a namespace without answers: at first, and doubled each time up to the longest."""
MAX_EDITS = 3
"""After each of this many edits a job in trouble is tried at once. After each further edit, nothing is preempted for it
for an hour, doubled each time up to a day.
"""
MAX_DRY_RUNS_AT_ONCE = 16
"""The most questions under way: half of the most writes (28)."""
MAX_DRY_RUNS_OF_NAMESPACE = 2


@dataclass(frozen=True, slots=True)
class _Passed:
    """An answer: how many pods of each role would be accepted, for that generation of the job.

    The answer holds `until` (monotonic), but is asked for again from `renewed_from` on.
    """

    generation: int
    roles: Counter[str]
    renewed_from: float
    until: float


@dataclass(slots=True)
class _Question:
    """A waiting question: its `order` within its namespace, and the victim jobs that wait for the answer."""

    job: Job
    dry_run: Callable[[], DryRun | None]
    order: int
    until: float
    victim_jobs: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Silence:
    """A namespace in which the last `times` questions got no answer."""

    times: int = 0
    until: float = 0.0


class DryRuns:
    """The answers, by the uid of the job.

    Args:
        ask: Asks the API server. Raises ClusterError.
        refused: `refused(job, error, needed)`: the job's own pods were refused; `needed`: for its minimum. Not called
            if the pods of other jobs filled the quota.
        again: `again(uid)`: decide again on a victim job that waited for an answer.
    """

    def __init__(
        self,
        ask: Callable[[DryRun], Awaitable[None]],
        refused: Callable[[Job, PodRefused, bool], object],
        *,
        again: Callable[[str], object],
    ) -> None:
        self._ask, self._refused, self._again = ask, refused, again
        self._passed: dict[str, _Passed] = {}
        self._may_preempt_at: dict[str, float] = {}
        """By job (uid), when (monotonic) it may preempt again."""
        self._refusals: dict[str, int] = {}
        self._refused_after_dry_run: dict[str, int] = {}
        """How often pods that had passed the dry run were refused when they were created."""
        self._generations: dict[str, int] = {}
        """The generation of each known job to which the answers belong."""
        self._edits: dict[str, int] = {}
        """How often jobs were edited while their pods were refused."""
        self._silences: dict[str, _Silence] = {}
        self._questions: dict[str, _Question] = {}
        self._running: dict[str, tuple[_Question, asyncio.Task[None]]] = {}
        self._turns: dict[str, int] = {}
        """By namespace with questions, the number of its last turn; larger numbers are later."""

    def see(self, job: Job) -> None:
        """Note that the job was read, possibly with an edit."""
        if self._generations.setdefault(job.uid, job.generation) != job.generation:
            self._generations[job.uid] = job.generation
            self._forgive(job)

    def may_preempt(self, job: Job) -> bool:
        """Whether the job may preempt, by its last seen generation."""
        silence = self._silences.get(job.namespace)
        return time.monotonic() >= max(self._may_preempt_at.get(job.uid, 0.0), silence.until if silence else 0.0)

    def may_not_preempt(self) -> tuple[frozenset[str], frozenset[str]]:
        """The jobs (uids) that may not preempt, and the namespaces in which no job may."""
        now = time.monotonic()
        waiting = frozenset(uid for uid, until in self._may_preempt_at.items() if now < until)
        return waiting, frozenset(name for name, silence in self._silences.items() if now < silence.until)

    def _forgive(self, job: Job) -> None:
        """Forget the trouble of an edited job, because the edit may have mended it; at most `MAX_EDITS` times in a
        row.
        """
        now, uid, failed = time.monotonic(), job.uid, job.status.failed_size
        waiting = now < self._may_preempt_at.get(uid, 0.0)
        refused = (
            uid in self._refusals
            or uid in self._refused_after_dry_run
            or (failed is not None and failed.size is not None)
        )
        if not waiting and not refused:
            self._edits.pop(uid, None)
            return
        edits = self._edits[uid] = self._edits.get(uid, 0) + 1
        if edits <= MAX_EDITS:
            for known in (self._may_preempt_at, self._refusals, self._refused_after_dry_run):
                known.pop(uid, None)
            return
        backoff = backoff_seconds(FUTILE_TRIES + edits - MAX_EDITS - 1)
        log.warning(
            "job=%s takes nothing from others for %.0f h: edited %d times in trouble", job.key, backoff / 3600, edits
        )
        self._may_preempt_at[uid] = max(self._may_preempt_at.get(uid, 0.0), now + backoff)

    def next_try(self) -> float:
        """When (monotonic) the first job that may not preempt now may do so again; infinity if there is none."""
        now = time.monotonic()
        ends = (*self._may_preempt_at.values(), *(silence.until for silence in self._silences.values()))
        return min((until for until in ends if until > now), default=inf)

    def keep_only(self, present: Set[str]) -> None:
        """Forget deleted jobs."""
        drop_absent(present, self._passed, self._may_preempt_at, self._refusals, self._refused_after_dry_run)
        drop_absent(present, self._generations, self._edits, self._questions)
        long_ago = time.monotonic() - MAX_SILENCE_SECONDS
        self._silences = {name: one for name, one in self._silences.items() if one.until > long_ago}

    def asked(self) -> frozenset[str]:
        """The jobs with an answer or with a question under way. Their pods count before those of jobs with later
        questions.
        """
        return frozenset((*self._passed, *self._running))

    def have_passed(
        self, job: Job, roles: Counter[str], dry_run: Callable[[], DryRun | None], *, victim_job: str, order: int
    ) -> bool:
        """Whether that many pods of the job are known to pass.

        If not, the question is queued, and after the answer the `victim_job` is decided on again.
        """
        now, known = time.monotonic(), self._passed.get(job.uid)
        passed = known is not None and known.generation == job.generation and roles <= known.roles and now < known.until
        if known is not None and passed:
            self._passed[job.uid] = replace(known, until=now + PASSED_SECONDS)
            if now < known.renewed_from:
                return True
        if job.uid in self._running:
            self._running[job.uid][0].victim_jobs.add(victim_job)
            return passed
        before = self._questions.get(job.uid)
        victim_jobs = before.victim_jobs if before is not None else set()
        self._questions[job.uid] = _Question(job, dry_run, order, now + QUESTION_SECONDS, victim_jobs | {victim_job})
        return passed

    def ask_next(self) -> None:
        """Ask as many questions as may be under way, one namespace after the other."""
        now = time.monotonic()
        self._questions = {uid: question for uid, question in self._questions.items() if now < question.until}
        places: dict[str, list[_Question]] = {}
        new_first = sorted(self._questions.values(), key=lambda one: (one.job.uid in self._passed, one.order))
        for question in new_first:
            places.setdefault(question.job.namespace, []).append(question)
        here = {question.job.namespace for question, _ in self._running.values()}
        self._turns = {name: turn for name, turn in self._turns.items() if name in places or name in here}
        while open_now := [name for name, questions in places.items() if questions and self._may_ask(name)]:
            name = min(open_now, key=lambda name: self._turns.get(name, 0))
            self._turns[name] = max(self._turns.values(), default=0) + 1
            self._put(places[name].pop(0))

    def _put(self, question: _Question) -> None:
        uid = question.job.uid
        del self._questions[uid]
        if time.monotonic() < self._may_preempt_at.get(uid, 0.0):
            return
        try:
            dry_run = question.dry_run()
        except Exception:  # noqa: BLE001 - whatever it is, it is this job's, and no other's
            self.cannot_be_asked(question.job)
            return
        if dry_run is None:
            return
        task = asyncio.create_task(self._try(dry_run))
        self._running[uid] = question, task
        task.add_done_callback(lambda _: self._end(uid))

    def _end(self, uid: str) -> None:
        question, _ = self._running.pop(uid)
        for victim_job in question.victim_jobs:
            self._again(victim_job)

    def made(self, uid: str) -> None:
        """Note that pods of the job were created."""
        self._passed.pop(uid, None)
        self._refused_after_dry_run.pop(uid, None)

    def were_refused(self, job: Job) -> None:
        """Note that pods of the job were refused at their creation. If they had passed the dry run, pods of others may
        have been evicted for nothing.
        """
        if self._passed.pop(job.uid, None) is None:
            return
        times = self._refused_after_dry_run[job.uid] = self._refused_after_dry_run.get(job.uid, 0) + 1
        if backoff := backoff_seconds(times):
            log.warning(
                "job=%s takes nothing from others for %.0f h: its pods pass and are refused", job.key, backoff / 3600
            )
            self._may_preempt_at[job.uid] = time.monotonic() + backoff

    async def stop(self) -> None:
        """Cancel what is under way."""
        running = [task for _, task in self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _may_ask(self, namespace: str) -> bool:
        silence = self._silences.get(namespace)
        here = sum(question.job.namespace == namespace for question, _ in self._running.values())
        is_silent = silence is not None and time.monotonic() < silence.until
        most = MAX_DRY_RUNS_OF_NAMESPACE if silence is None else 1
        return not is_silent and here < most and len(self._running) < MAX_DRY_RUNS_AT_ONCE

    async def _try(self, dry_run: DryRun) -> None:
        job = dry_run.job
        try:
            await self._ask(dry_run)
        except PodRefused as error:
            self._silences.pop(job.namespace, None)
            self._passed.pop(job.uid, None)
            times = self._refusals[job.uid] = self._refusals.get(job.uid, 0) + (not dry_run.besides)
            wait = doubled(FIRST_REFUSED_SECONDS, MAX_REFUSED_SECONDS, times)
            self._may_preempt_at[job.uid] = max(self._may_preempt_at.get(job.uid, 0.0), time.monotonic() + wait)
            if not dry_run.besides:
                self._refused(job, error, dry_run.needed)
        except ClusterError as error:
            self._hear_nothing(job.namespace, error)
        except Exception:  # noqa: BLE001 - as in `_put`
            self.cannot_be_asked(job)
        else:
            self._silences.pop(job.namespace, None)
            self._refusals.pop(job.uid, None)
            roles = Counter(create.role for create in dry_run.creates)
            until = time.monotonic() + PASSED_SECONDS
            self._passed[job.uid] = _Passed(job.generation, roles, until, until)

    def cannot_be_asked(self, job: Job) -> None:
        """Note an error of the operator's own at the job's pods: nothing is preempted for the job for a while."""
        log.exception("job=%s: it cannot be asked whether its pods would be taken", job.key)
        self._may_preempt_at[job.uid] = time.monotonic() + MAX_SILENCE_SECONDS

    def _hear_nothing(self, namespace: str, error: ClusterError) -> None:
        silence = self._silences.setdefault(namespace, _Silence())
        silence.times += 1
        wait = doubled(FIRST_SILENCE_SECONDS, MAX_SILENCE_SECONDS, silence.times)
        silence.until = time.monotonic() + max(wait, error.retry_after or 0.0)
