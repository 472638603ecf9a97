"""The API server's answers to dry runs of jobs' pods, and which jobs may preempt by these answers (139).

A job whose pods are refused may not preempt for a while. If its pods pass the dry run, and are refused when they are
created, again and again, the job may not preempt for a long time. After an edit, the job may preempt at once. Only a
few edits have this effect, so that somebody who keeps editing does not cause an eviction each time.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import TypeVar

from elastic_operator.attempts import NEVER_FAILED, Attempts, doubled
from elastic_operator.cluster.errors import ClusterError
from elastic_operator.loop.reclaim.dry_run import DryRunQuestion
from elastic_operator.memory import DelayQueue, DirtyJobs, drop_absent
from elastic_operator.plan.facts.demand import PreemptionBar
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.waits import FUTILE_TRIES, futile_backoff_seconds

log = logging.getLogger(__name__)

PASSED_SECONDS = 60.0
"""The dry run is repeated after this time, because quotas change. The old answer holds until the new one arrives, as
long as plans keep using it.
"""
FIRST_REFUSED_SECONDS = 10.0
MAX_REFUSED_SECONDS = 300.0
"""How long a job whose pods were refused may not preempt: at first, and doubled each time up to the longest."""
FIRST_NO_ANSWER_SECONDS = 1.0
MAX_NO_ANSWER_SECONDS = 30.0
"""How long no question is asked in a namespace after a question got no answer: at first, and doubled each time up to
the longest.
"""
MAX_EDITS = 3
"""After each of this many edits, a job whose pods are refused may preempt at once. After each further edit, it may not
preempt for an hour, doubled each time up to a day.
"""


Acceptance = Enum("Acceptance", "NONE OLD FRESH")
"""Whether an answer accepts the pods of a job; OLD: it does, and the dry run is to be repeated."""


@dataclass(frozen=True, slots=True)
class _Passed:
    """The number of pods of each role that would be accepted, for one generation of the job.

    The answer holds `until` (monotonic). The dry run is repeated from `renewed_from` on.
    """

    generation: int
    roles: Counter[str]
    renewed_from: float
    until: float


@dataclass(slots=True)
class _JobAnswers:
    """The answers about one job. Times are monotonic."""

    passed: _Passed | None = None
    refusals: Attempts = NEVER_FAILED
    """The dry runs in a row that refused its own pods."""
    refused_later: int = 0
    """How often in a row pods passed the dry run and were refused at their creation."""
    edits: int = 0
    """The number of edits while its pods were refused."""
    backoff_until: float = 0.0
    """Until then the job may not preempt, because of `backoff_bar`."""
    backoff_bar: PreemptionBar = PreemptionBar.PODS_REFUSED

    @property
    def until(self) -> float:
        """When the job may preempt again."""
        return max(self.refusals.until, self.backoff_until)

    def preemption_bar(self, now: float) -> PreemptionBar | None:
        """Why the job may not preempt now: the reason that lasts longest; None if the job may preempt."""
        if now >= self.until:
            return None
        return self.backoff_bar if self.backoff_until >= self.refusals.until else PreemptionBar.PODS_REFUSED

    def back_off(self, until: float, bar: PreemptionBar) -> None:
        """Forbid the job to preempt before `until`, and before the end of an earlier back-off."""
        if until > self.backoff_until:
            self.backoff_until, self.backoff_bar = until, bar


UntilT = TypeVar("UntilT", _JobAnswers, Attempts)


class _Bars(dict[str, UntilT]):
    """Jobs (by uid) or namespaces that may not preempt, each `until` a time (monotonic). `on_change` is called with the
    name when this time changes, and when it comes.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        super().__init__()
        self._on_change, self.ends = on_change, DelayQueue()

    def note(self, name: str) -> None:
        """Note that the bar has begun, changed or ended."""
        until = self[name].until if name in self else 0.0
        self.ends.set(name, until if until > time.monotonic() else inf)
        self._on_change(name)

    def note_ends(self) -> None:
        for name in self.ends.due(time.monotonic()):
            self.note(name)

    def keep_only(self, names: Set[str]) -> None:
        """Forget all other names."""
        for name in self.keys() - names:
            del self[name]
            self.ends.drop(name)


class DryRunAnswers:
    """The answers about each job, and its back-off, by the uid of the job; and the namespaces without answers.

    When the bar of a job begins, changes or ends, the job is marked in `dirty_jobs` (200), and `bar_changed` is called.
    """

    def __init__(self, dirty_jobs: DirtyJobs, bar_changed: Callable[[], object]) -> None:
        self._dirty_jobs, self._bar_changed = dirty_jobs, bar_changed
        self._jobs: _Bars[_JobAnswers] = _Bars(self._mark)
        self._silences: _Bars[Attempts] = _Bars(
            lambda silent: self._mark(*(uid for uid, (namespace, _) in self._read.items() if namespace == silent))
        )
        """The namespaces in which the last questions got no answer (monotonic)."""
        self._read: dict[str, tuple[str, int]] = {}
        """The namespace of each job that was read, and the generation that its answers are about."""

    def job_read(self, job: Job) -> None:
        """Note the job as it was read now. It may have been edited."""
        present = job.namespace, job.generation
        if self._read.setdefault(job.uid, present) != present:
            self._read[job.uid] = present
            self._forgive(job)

    def _forgive(self, job: Job) -> None:
        """Forget the refusals of an edited job, up to `MAX_EDITS` times in a row: the edit may have fixed the job."""
        now, failed, answers = time.monotonic(), job.status.failed_size, self._jobs.get(job.uid, _JobAnswers())
        has_failed = failed is not None and failed.size is not None
        if now >= answers.until and not (answers.refusals.times or answers.refused_later or has_failed):
            answers.edits = 0
            return
        self._jobs[job.uid] = answers
        answers.edits += 1
        if answers.edits <= MAX_EDITS:
            answers.refusals, answers.refused_later, answers.backoff_until = NEVER_FAILED, 0, 0.0
        else:
            backoff = futile_backoff_seconds(FUTILE_TRIES + answers.edits - MAX_EDITS - 1)
            text = (
                "the job preempts no pods for %.0f h: its spec was edited %d times while its pods were refused job=%s"
            )
            log.warning(text, backoff / 3600, answers.edits, job.key)
            answers.back_off(now + backoff, PreemptionBar.EDITED_TOO_OFTEN)
        self._jobs.note(job.uid)

    def forget_deleted(self, present: Set[str]) -> None:
        self._jobs.keep_only(present)
        drop_absent(present, self._read)
        long_ago = time.monotonic() - MAX_NO_ANSWER_SECONDS
        self._silences.keep_only({name for name, silence in self._silences.items() if silence.until > long_ago})

    # -- read ----------------------------------------------------------------------------------------------------------

    def preemption_bar(self, job: Job) -> PreemptionBar | None:
        """Why the job may not preempt now, by the answers about its last seen generation; None if it may."""
        now, answers = time.monotonic(), self._jobs.get(job.uid)
        if answers is not None and (bar := answers.preemption_bar(now)) is not None:
            return bar
        silence = self._silences.get(job.namespace, NEVER_FAILED)
        return PreemptionBar.NO_ANSWER if now < silence.until else None

    def silence(self, namespace: str) -> Attempts | None:
        """The questions in a row that got no answer in the namespace, if the last one got none."""
        return self._silences.get(namespace)

    def passed(self) -> frozenset[str]:
        """The jobs (uids) whose pods the last answer accepts, even if the answer is out of date."""
        return frozenset(uid for uid, known in self._jobs.items() if known.passed is not None)

    def use_acceptance(self, job: Job, roles: Counter[str]) -> Acceptance:
        """Whether an answer accepts that many pods of the job. An answer that is used holds for another
        `PASSED_SECONDS`.
        """
        now, answers = time.monotonic(), self._jobs.get(job.uid)
        answer = answers.passed if answers is not None else None
        if answers is None or answer is None or now >= answer.until:
            return Acceptance.NONE
        if answer.generation != job.generation or not roles <= answer.roles:
            return Acceptance.NONE
        answers.passed = replace(answer, until=now + PASSED_SECONDS)
        return Acceptance.FRESH if now < answer.renewed_from else Acceptance.OLD

    # -- news ----------------------------------------------------------------------------------------------------------

    def note_accepted(self, question: DryRunQuestion) -> None:
        """Note that the job's pods would be accepted."""
        now, answers = time.monotonic(), self._answers_about(question.job.uid)
        until, was_barred = now + PASSED_SECONDS, now < answers.until
        answers.refusals = NEVER_FAILED
        answers.passed = _Passed(question.job.generation, question.creates.roles, until, until)
        if was_barred:
            self._jobs.note(question.job.uid)
        self._end_silence(question.job.namespace)

    def note_refused(self, question: DryRunQuestion) -> None:
        """Note that the pods would be refused. If pods of other jobs fill the quota, the refusal does not count in a
        row.
        """
        now, answers = time.monotonic(), self._answers_about(question.job.uid)
        answers.passed = None
        if question.besides:
            wait = doubled(FIRST_REFUSED_SECONDS, MAX_REFUSED_SECONDS, answers.refusals.times)
            answers.back_off(now + wait, PreemptionBar.OTHERS_FILL_QUOTA)
        else:
            answers.refusals = answers.refusals.failed(now, FIRST_REFUSED_SECONDS, MAX_REFUSED_SECONDS)
        self._jobs.note(question.job.uid)
        self._end_silence(question.job.namespace)

    def note_unanswered(self, namespace: str, error: ClusterError) -> None:
        """Note that a question got no answer, because of this error."""
        self._silences[namespace] = self._silences.get(namespace, NEVER_FAILED).failed(
            time.monotonic(), FIRST_NO_ANSWER_SECONDS, MAX_NO_ANSWER_SECONDS, at_least=error.retry_after or 0.0
        )
        self._silences.note(namespace)

    def note_fault(self, job: Job) -> None:
        """Note an error of the operator's own at the job's pods: nothing is preempted for the job for a while."""
        log.exception("the dry run of a job's pods failed job=%s", job.key)
        until = time.monotonic() + MAX_NO_ANSWER_SECONDS
        self._answers_about(job.uid).back_off(until, PreemptionBar.INTERNAL_ERROR)
        self._jobs.note(job.uid)

    def note_created(self, uid: str) -> None:
        if (answers := self._jobs.get(uid)) is not None:
            answers.passed, answers.refused_later = None, 0

    def note_refused_create(self, job: Job) -> None:
        """Note that pods of the job were refused at their creation. If they had passed the dry run, evictions for the
        job were futile.
        """
        answers = self._jobs.get(job.uid)
        if answers is None or answers.passed is None:
            return
        answers.passed = None
        answers.refused_later += 1
        if backoff := futile_backoff_seconds(answers.refused_later):
            text = "the job preempts no pods for %.0f h: its pods pass the dry run but are refused at creation job=%s"
            log.warning(text, backoff / 3600, job.key)
            answers.back_off(time.monotonic() + backoff, PreemptionBar.REFUSED_AT_CREATION)
            self._jobs.note(job.uid)

    def _answers_about(self, uid: str) -> _JobAnswers:
        return self._jobs.setdefault(uid, _JobAnswers())

    # -- bars ----------------------------------------------------------------------------------------------------------

    def note_ends(self) -> None:
        """Note the bars and silences that have ended since the last call."""
        self._jobs.note_ends()
        self._silences.note_ends()

    def next_end_monotonic(self) -> float:
        """When (monotonic) the first bar or silence ends; infinity if there is none."""
        return min(self._jobs.ends.next(), self._silences.ends.next())

    def _mark(self, *uids: str) -> None:
        """Mark these jobs, because something bars them now, or does not bar them any more."""
        self._dirty_jobs.mark(*uids)
        self._bar_changed()

    def _end_silence(self, namespace: str) -> None:
        """Note that a question of the namespace was answered."""
        silence = self._silences.pop(namespace, None)
        if silence is not None and time.monotonic() < silence.until:
            self._silences.note(namespace)
