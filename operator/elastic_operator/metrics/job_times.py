"""How each job spends its time, and when its training last moved, as seen by this process.

A script that uses the library keeps an account of its own time, which its launcher reports and which counts then. For
all other jobs, the reason of Ready gives the kind of each moment. Waiting is never in an account.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

from elastic_api.status import ConditionType, Phase
from elastic_operator.metrics.stats import JobStats
from elastic_operator.plan.facts.group_report import Goodput, GroupReport
from elastic_operator.plan.job.master_report import report_of
from elastic_operator.plan.last_plans import LastPlan

TIME_KINDS = ("productive", "startup", "reform", "lost", "waiting", "checkpoint")

OF_PHASE: Mapping[str, str] = {
    Phase.QUEUED: "waiting",
    Phase.SUSPENDED: "waiting",
    Phase.STARTING: "startup",
    Phase.RENDEZVOUSING: "startup",
    Phase.RESIZING: "reform",
    Phase.RESTARTING: "lost",
    Phase.RUNNING: "productive",
    Phase.DEGRADED: "productive",
}
OF_PART = {
    "startup": "startup",
    "productive": "productive",
    "lost": "lost",
    "regroup": "reform",
    "checkpoint": "checkpoint",
}
"""The kinds of an account's parts. Its part `other`, such as evaluation, has no kind."""


@dataclass(slots=True)
class _TimesOfJob:
    """One job: its `seconds` by kind, and the `kind` (None: none) that counts since `since`.

    `account` is the last one that the `master` reported. `step` is the last seen step, and `moved_at` when that step,
    or the master, was first seen.
    """

    since: float
    kind: str | None = None
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TIME_KINDS, 0.0))
    master: str = ""
    account: Goodput | None = None
    step: int | None = None
    moved_at: float | None = None


class JobTimes:
    """The times of all jobs, by uid. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._clock = clock
        self._jobs: dict[str, _TimesOfJob] = {}

    def note(self, uid: str, phase: str, report: GroupReport | None) -> None:
        """Take the job's phase (a reason of Ready) and its master's last report."""
        now = self._clock()
        job = self._jobs.setdefault(uid, _TimesOfJob(since=now))
        _spend(job, now)
        kind = OF_PHASE.get(phase)
        if report is not None:
            _take_step(job, report)
            _take_account(job, report)
        accounted = report is not None and report.goodput is not None
        job.kind = None if accounted and kind != "waiting" else kind

    def note_plan(self, planned: LastPlan) -> None:
        ready = planned.status.condition(ConditionType.READY)
        self.note(planned.obs.job.uid, ready.reason if ready else "", report_of(planned.obs))

    def forget_deleted(self, present: Set[str]) -> None:
        for uid in self._jobs.keys() - present:
            del self._jobs[uid]

    def seconds(self, uid: str) -> Mapping[str, float]:
        """Seconds by kind until now. None of them ever gets smaller."""
        job = self._jobs.get(uid)
        if job is None:
            return dict.fromkeys(TIME_KINDS, 0.0)
        _spend(job, self._clock())
        return dict(job.seconds)

    def moved_at(self, uid: str) -> float | None:
        """When the newest step, or the present master, was first seen (epoch seconds).

        None without reported steps, and while the job waits for GPUs.
        """
        job = self._jobs.get(uid)
        return job.moved_at if job and job.step is not None and job.kind != "waiting" else None

    def all_stats(self, planned: Iterable[LastPlan], policy_of: Mapping[str, str]) -> tuple[JobStats, ...]:
        """These jobs as they are now; `policy_of` names the quota policy of each namespace that has one."""
        return tuple(
            JobStats(
                obs=one.obs,
                status=one.status,
                policy=policy_of.get(one.obs.job.namespace, ""),
                seconds=self.seconds(one.obs.job.uid),
                moved_at=self.moved_at(one.obs.job.uid),
            )
            for one in planned
        )


def _spend(job: _TimesOfJob, now: float) -> None:
    if job.kind is not None:
        job.seconds[job.kind] += now - job.since
    job.since = now


def _take_account(job: _TimesOfJob, report: GroupReport) -> None:
    """Count the news in the master's account.

    The time in its first account was counted by phases already. A smaller account is of a new process.
    """
    account = report.goodput
    if account is None:
        return
    before, job.account = job.account, account
    if before is None or account is before:
        return
    parts = {part: account.seconds.get(part, 0.0) for part in OF_PART}
    began_again = any(seconds < before.seconds.get(part, 0.0) for part, seconds in parts.items())
    for part, seconds in parts.items():
        job.seconds[OF_PART[part]] += seconds if began_again else seconds - before.seconds.get(part, 0.0)


def _take_step(job: _TimesOfJob, report: GroupReport) -> None:
    """Note a new step. A new master also has time for its first step."""
    moved = report.step is not None and report.step != job.step
    another = report.master_uid != job.master
    if moved or another:
        job.step, job.moved_at = report.step if moved else job.step, report.read_at
    if another:
        job.master, job.account = report.master_uid, None
