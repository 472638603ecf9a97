"""Reads the ends of the logs of failed pods. The planner sees a pod as failed only after its log was read, or proved
unreadable (14).

torchrun's summary pushes the traceback out of the 2 kB that the kubelet keeps. So the operator reads the end of the log
instead, while the pod object still exists. A few logs are read at once, and fewer of one job, so that a job with
thousands of pods takes neither all memory nor all turns. The logs of the pods that failed first are read first, because
one of these pods is to blame. When the memory is full, the least recently used log is dropped; of one job, the log of
the pod that failed last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, replace
from math import inf

from elastic_operator.build.traceback import MAX_LOG, TAIL_LINES, Failure, failure_of, last_lines_of
from elastic_operator.cluster.errors import ClusterError
from elastic_operator.cluster.pod_requests import read_log_tail
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.waiting import cancel_and_wait
from elastic_operator.memory import DirtyJobs
from elastic_operator.plan.facts.job import LastOutput, OwnPod
from elastic_operator.pods.fair_semaphore import FairSemaphore

log = logging.getLogger(__name__)

MAX_LOGS_AT_ONCE = 8
MAX_LOGS_OF_NAMESPACE = 4
MAX_OF_JOB = 3
LOG_READ_SECONDS = 3.0
WAIT_SECONDS = 15.0
"""A pod that has waited this long for its turn counts as silent: its job must not wait for other jobs' kubelets."""
KEPT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogContent:
    """The content of a log of a job's pod: why the pod failed, and the last lines of the process that failed first."""

    job_uid: str
    failure: Failure
    lines: tuple[str, ...] = ()


@dataclass(eq=False, repr=False)
class FailureLogs:
    """Reads the log of each failed pod once."""

    session: Session
    container_of: Callable[[str], str]
    """The name of the main container of a pod (uid)."""
    dirty_jobs: DirtyJobs
    """A job is marked there when a log of its pods was read."""
    changed: Callable[[], None]
    """Called when a log was read."""

    def __post_init__(self) -> None:
        self._contents: dict[str, LogContent] = {}
        """By pod (uid), the least recently used first."""
        self._kept_bytes = 0
        self._reading: defaultdict[str, dict[str, asyncio.Task[None]]] = defaultdict(dict)
        """The pods whose logs are being read or are next, by job."""
        self._turns = FairSemaphore(MAX_LOGS_AT_ONCE, MAX_LOGS_OF_NAMESPACE)

    def with_logs(self, job_uid: str, namespace: str, pods: tuple[OwnPod, ...]) -> tuple[OwnPod, ...]:
        """The job's pods as the planner may see them: failed, with their logs, or not yet. A standby reads no logs, so
        its first pass as the leader reads the job again.
        """
        failed = list(filter(_is_worth_reading, pods))
        if not failed:
            return pods
        unread = [pod for pod in failed if pod.uid not in self._contents]
        if self.session.remaining() > 0:
            self._begin(job_uid, namespace, unread)
        elif unread:
            self.dirty_jobs.mark(job_uid)
        self._note_use(failed)
        return tuple(self._with_log(pod) if _is_worth_reading(pod) else pod for pod in pods)

    def reads(self, job_uid: str) -> bool:
        """Whether logs of failed pods of that job are being read."""
        return job_uid in self._reading

    def forget_deleted(self, present: Set[str]) -> None:
        """Forget the logs of deleted jobs; `present` are the uids of the existing ones."""
        for pod_uid in [uid for uid, content in self._contents.items() if content.job_uid not in present]:
            self._kept_bytes -= size_of(self._contents.pop(pod_uid))

    async def stop(self) -> None:
        """Read no logs any more."""
        await cancel_and_wait(task for reading in self._reading.values() for task in reading.values())

    def _begin(self, job_uid: str, namespace: str, unread: Sequence[OwnPod]) -> None:
        """Begin to read the first logs. The other logs follow when the job is read again, if they are still needed."""
        reading = self._reading.get(job_uid, {})
        waiting = sorted((pod for pod in unread if pod.uid not in reading), key=_when_it_failed)
        for pod in waiting[: MAX_OF_JOB - len(reading)]:
            self._reading[job_uid][pod.uid] = asyncio.create_task(self._read(job_uid, namespace, pod))

    def _note_use(self, failed: Sequence[OwnPod]) -> None:
        """Note that the logs of these pods are still needed, most of all the log of the pod that failed first."""
        for pod in sorted(failed, key=_when_it_failed, reverse=True):
            if (content := self._contents.pop(pod.uid, None)) is not None:
                self._contents[pod.uid] = content

    def _with_log(self, pod: OwnPod) -> OwnPod:
        content = self._contents.get(pod.uid)
        if content is not None:
            failure = content.failure
            code = pod.main.exit_code if failure.exit_code is None else failure.exit_code
            main = replace(
                pod.main,
                message=_in_words(failure) or pod.main.message,
                is_consequence=failure.secondary,
                script_exit_code=failure.exit_code,
                last_output=pod.main.last_output or LastOutput(pod.name, code, failure.rank, content.lines),
            )
            return replace(pod, main=main)
        running = replace(pod.main, exit_code=None, finished_at=None, reason="", message="", last_output=None)
        return replace(pod, phase="Running", main=running)

    async def _read(self, job_uid: str, namespace: str, pod: OwnPod) -> None:
        """Keep the content of the pod's log. An unreadable log counts as empty, and nothing waits for it any more."""
        content = LogContent(job_uid, Failure())
        try:
            text = await self.read_log(namespace, pod, read_log_tail, lines=TAIL_LINES, max_bytes=MAX_LOG)
            content = LogContent(job_uid, failure_of(text), last_lines_of(text))
        except (ClusterError, TimeoutError) as error:
            log.info("cannot read the log of a failed pod pod=%s/%s error=%r", namespace, pod.name, error)
        except Exception:
            log.exception("cannot read the log of a failed pod; its cause is unknown pod=%s/%s", namespace, pod.name)
        finally:
            del self._reading[job_uid][pod.uid]
            if not self._reading[job_uid]:
                del self._reading[job_uid]
        self._keep(pod.uid, content)
        self.dirty_jobs.mark(job_uid)
        self.changed()

    async def read_log(
        self, namespace: str, pod: OwnPod, request: Callable[..., Awaitable[str]], **options: int
    ) -> str:
        """The log of the pod's main container by this request, with its options. All readers of logs share their turns.

        Raises the errors of the request, and TimeoutError if the turn or the answer does not come in time.
        """
        async with self._turns.turn(namespace, within=WAIT_SECONDS), asyncio.timeout(LOG_READ_SECONDS):
            return await request(self.session, namespace, pod.name, self.container_of(pod.uid), **options)

    def _keep(self, uid: str, content: LogContent) -> None:
        self._contents[uid] = content
        self._kept_bytes += size_of(content)
        while self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= size_of(self._contents.pop(next(iter(self._contents))))


def size_of(content: LogContent) -> int:
    """The approximate size of the content in memory, in bytes."""
    return 512 + 4 * (len(content.failure.traceback) + sum(map(len, content.lines)))


def _in_words(failure: Failure) -> str:
    known = []
    if failure.rank is not None:
        known.append(f"rank {failure.rank}")
    if failure.exit_code is not None:
        known.append(f"exit code {failure.exit_code}")
    return ", ".join(known) + (":\n" if known else "") + failure.traceback


def _when_it_failed(pod: OwnPod) -> float:
    return pod.main.finished_at or inf


def _is_worth_reading(pod: OwnPod) -> bool:
    """Whether the pod's log can show why the job failed."""
    return bool(pod.main.exit_code) and not pod.disrupted and pod.deleting_since is None
