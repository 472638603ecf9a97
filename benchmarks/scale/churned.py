"""The figures of minutes of churn: the reactions, and whether these or other figures grew.

Reactions are seconds of the wall clock: they also grow when the API server or another process uses more of the machine.
So the operator's CPU time of each third is beside them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.live.audit import Write
from benchmarks.live.place import CLIENT, KUBELETS, OPERATOR
from benchmarks.live.quantile import MILLISECONDS, quantile
from benchmarks.react.latencies import CREATE, DELETE, JOB_STATUS, POD_READY
from benchmarks.scale.fill import CREATE_JOB, job_of
from benchmarks.scale.report import table
from elastic_api.pod_names import pod_name
from elastic_worker.contract import ROLE_MASTER

RENEWED_BY = '<!-- figures: make bench-scale ARGS="--churn 10 --page docs/performance.md" -->'


class Kind(StrEnum):
    """The kinds of changes, and the write that answers each."""

    ARRIVED = "a job arrives -> its first pod is created"
    LOST = "a pod is lost -> its successor is created"
    ENDED = "a job's master has ended -> its status says so, or a successor is created"


@dataclass(frozen=True, slots=True)
class Change:
    """A change, and the `seconds` from the arrival of its request until the operator's answer, or until the end if
    there was none. The operator may answer before the API server does.
    """

    kind: Kind
    job: str
    at: float
    seconds: float
    answered: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """A reading: the leader's CPU seconds so far, its memory, and the busy CPU seconds of the whole machine."""

    cpu_seconds: float
    pass_seconds: float
    passes: float
    megabytes: float
    machine_seconds: float


@dataclass(frozen=True, slots=True)
class Churned:
    """All measurements from the moment `begun` on. Jobs arrived for `lasted` seconds, `rate` pods a second.

    `waits` are all jobs' seconds from arrival to the first ready pod; without a ready pod, to the end. `requests` are
    all of the operator's account. `marks` are at the beginning, at the ends of the three thirds, and at the end.
    """

    begun: float
    lasted: float
    rate: float
    changes: Sequence[Change]
    waits: Sequence[float]
    starved: int
    requests: int
    marks: Sequence[Mark]

    def seconds(self, kind: Kind | None = None, *, third: int | None = None) -> list[float]:
        """The seconds of the changes of that kind, or of all, in that third of the time, or in all of it."""
        return [
            each.seconds
            for each in self.changes
            if kind in (None, each.kind)
            if third is None or third <= (each.at - self.begun) / self.lasted * 3 < third + 1
        ]

    def growth(self, kind: Kind) -> float:
        """The median of the last third over that of the first; NaN if one third has no changes."""
        return quantile(self.seconds(kind, third=2), 0.5) / quantile(self.seconds(kind, third=0), 0.5)

    @property
    def most_growth(self) -> float:
        """The growth of the kind of change that grew most."""
        return max((grown for kind in Kind if (grown := self.growth(kind)) > 0), default=float("nan"))

    def cpu_per_change(self, third: int) -> float:
        """The leader's CPU seconds for each change of that third of the time."""
        before, after = self.marks[third : third + 2]
        return (after.cpu_seconds - before.cpu_seconds) / max(1, len(self.seconds(third=third)))

    def mean_pass(self, third: int) -> float:
        """Mean seconds of a pass in that third of the time."""
        before, after = self.marks[third : third + 2]
        return (after.pass_seconds - before.pass_seconds) / max(1, after.passes - before.passes)

    def busy_cores(self, third: int) -> float:
        """How many cores of the machine were busy in that third of the time, with any work."""
        before, after = self.marks[third : third + 2]
        return (after.machine_seconds - before.machine_seconds) / (self.lasted / 3)

    def waiting(self, share: float) -> int:
        """The number of changes without an answer after that share of the time."""
        moment = self.begun + share * self.lasted
        return sum(each.at <= moment < each.at + each.seconds for each in self.changes)

    def summary(self) -> dict[str, float]:
        """The figures of the last line."""
        return {
            "churn_reaction_p50_s": round(quantile(self.seconds(), 0.5), 4),
            "churn_reaction_p99_s": round(quantile(self.seconds(), 0.99), 4),
            "churn_growth": round(self.most_growth, 3),
            "churn_starved": self.starved,
            "requests_per_change": round(self.requests / len(self.changes), 2),
            "churn_cpu_growth": round(self.cpu_per_change(2) / self.cpu_per_change(0), 3),
            "churn_rss_growth": round(self.marks[-1].megabytes / self.marks[0].megabytes, 3),
        }

    def markdown(self) -> str:
        """The tables of the page."""
        kinds = [
            (
                kind.value,
                f"{len(self.seconds(kind)):,}",
                *(f"{quantile(self.seconds(kind), share) * MILLISECONDS:,.0f} ms" for share in (0.5, 0.99, 1)),
                f"{self.growth(kind):.2f}",
            )
            for kind in Kind
        ]
        megabytes = " ".join(f"{mark.megabytes:.0f}" for mark in self.marks)
        unanswered = sum(not each.answered for each in self.changes)
        rest = [
            ("jobs that never started", f"{self.starved}"),
            ("longest wait of a job for its first ready pod", f"{max(self.waits):.1f} s"),
            ("changes that waited for their answer halfway, and at the end", f"{self.waiting(0.5)}, {self.waiting(1)}"),
            ("changes that never had one", f"{unanswered}"),
            ("the operator's requests per change", f"{self.requests / len(self.changes):.2f}"),
            ("its CPU per change, third by third", _thirds(self.cpu_per_change, MILLISECONDS) + " ms"),
            ("its mean pass, third by third", _thirds(self.mean_pass, MILLISECONDS) + " ms"),
            ("cores of the machine that were busy, third by third", _thirds(self.busy_cores)),
            ("its memory before, after each third, and after all", f"{megabytes} MB"),
        ]
        title = f"{self.lasted / 60:g} min, {self.rate:.1f} pods per s"
        return "\n\n".join(
            [
                table((title, "number", "p50", "p99", "worst", "p50, last third to first"), kinds),
                table(("what", "figure"), rest),
            ]
        )


def _thirds(figure: Callable[[int], float], factor: float = 1.0) -> str:
    return " ".join(f"{figure(third) * factor:.1f}" for third in range(3))


def changes(writes: Sequence[Write], jobs: Iterable[str], *, until: float) -> list[Change]:
    """All changes of these jobs, in order, with the operator's answers."""
    wanted = frozenset(jobs)
    created, told = _by_job(writes, wanted, _is_created), _by_job(writes, wanted, lambda write: write.ends)
    found = []
    for write in writes:
        job = write.name if write.what == CREATE_JOB else job_of(write.name)
        if job in wanted and (kind := _kind(write, job)):
            # An ended job needs no new pod, and after a failure right after a change the job is tried again.
            answers = created[job] if kind is Kind.ARRIVED else [*created[job], *told[job]]
            end = min((answer.done for answer in answers if answer.received > write.received), default=None)
            seconds = (until if end is None else end) - write.received
            found.append(Change(kind, job, write.done, seconds, end is not None))
    return found


def waits(writes: Sequence[Write], jobs: Iterable[str], *, until: float) -> tuple[list[float], int]:
    """Seconds from the arrival of each job to its first ready pod, or to the end; and how many jobs never had one."""
    wanted = frozenset(jobs)
    ready = _by_job(writes, wanted, lambda write: write.what == POD_READY and write.user == KUBELETS)
    arrived = [write for write in writes if write.what == CREATE_JOB and write.name in wanted]
    ends = [ready[job.name][0].done if ready[job.name] else until for job in arrived]
    return [end - job.done for end, job in zip(ends, arrived, strict=True)], sum(not ready[job.name] for job in arrived)


def _kind(write: Write, job: str) -> Kind | None:
    if write.what == CREATE_JOB:
        return Kind.ARRIVED
    if write.user == CLIENT and write.what == DELETE:
        return Kind.LOST
    if write.user == CLIENT and write.what == POD_READY and write.name == pod_name(job, ROLE_MASTER, 0):
        return Kind.ENDED
    return None


def _is_created(write: Write) -> bool:
    return write.what == CREATE and write.user == OPERATOR


def _by_job(
    writes: Iterable[Write], jobs: frozenset[str], matches: Callable[[Write], bool]
) -> defaultdict[str, list[Write]]:
    found: defaultdict[str, list[Write]] = defaultdict(list)
    for write in writes:
        job = write.name if write.what == JOB_STATUS else job_of(write.name)
        if job in jobs and matches(write):
            found[job].append(write)
    return found
