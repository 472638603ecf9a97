"""Asks the masters of Elastic jobs for the state of their groups: `GET /status` of the launcher, at the pod's address.

A master is asked every half minute, and every second while its job changes. News of a group wakes the loop at once, and
the loop writes the news into the job's status. The training's progress is passed on with such news, or every half
minute. A master is a tenant's process, so news beyond the token buckets of its job and its namespace is read later
(96). While the master reports that pods on a node that is not Ready train, the node is not given up; meanwhile the
master is asked every second (92).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

import aiohttp

from elastic_api.pod_names import parse_pod_name
from elastic_operator.cluster.rate_limit import TokenBucket
from elastic_operator.cluster.waiting import cancel_and_wait, wait_with_timeout
from elastic_operator.memory import DirtyJobs
from elastic_operator.plan.facts.group_report import GroupReport
from elastic_operator.pods.fair_semaphore import FairSemaphore
from elastic_operator.pods.launcher_target import Target
from elastic_operator.pods.launcher_wire import read_report
from elastic_worker.contract import STATUS_LIMIT_BYTES

log = logging.getLogger(__name__)

POLL_SECONDS = 30.0
"""The time between two questions in calm times. A master that is silent to a new leader for this long may stay so."""
PROGRESS_SECONDS = 0.75 * POLL_SECONDS
"""A report without news is passed on if it is this much later than the last one. In calm times each report is."""
FAST_POLL_SECONDS = 1.0
MASTER_ANSWER_SECONDS = 2.0
MAX_POLLS_AT_ONCE = 256
MAX_POLLS_OF_NAMESPACE = 64
"""A silent master holds a slot for `MASTER_ANSWER_SECONDS`. Those of one namespace must not take all slots."""
MASTER_SILENT_SECONDS = 75.0
"""A master without an answer for this long is silent: the job says so instead of repeating its last report."""
NEWS_OF_A_JOB, NEWS_OF_A_JOB_SECONDS = 8, 5.0
"""The token bucket of a job. A changing group reports about five changes within seconds."""
NEWS_OF_A_NAMESPACE, NEWS_OF_A_NAMESPACE_SECONDS = 400, 0.1
"""All jobs of a namespace may change together, for example when nodes are lost. With this limit 1,000 lying masters
cause ten writes a second.
"""


@dataclass(slots=True)
class _Polled:
    """The master of the job with that uid. It is asked again and again, and at once to `poll_now`.

    `began` is when it was first asked, `last_answer_at` when it last answered, at first `began`. It has been asked
    every second since `fast_since`, if at all. All times are without the steps of the clock.
    """

    uid: str
    target: Target
    task: asyncio.Task[None] | None = None
    poll_now: asyncio.Event = field(default_factory=asyncio.Event)
    report: GroupReport | None = None
    began: float = 0.0
    last_answer_at: float = 0.0
    fast_since: float | None = None


class MasterPoller:
    """The latest reports, by the job's uid.

    Args:
        dirty_jobs: The jobs whose report has changed, or has ended, are marked there.
        now: Epoch seconds on the API server's clock.
        stepped: The sum of all steps of that clock so far, which must not count as silence (29).
    """

    def __init__(
        self,
        dirty_jobs: DirtyJobs,
        *,
        now: Callable[[], float],
        on_change: Callable[[], None],
        stepped: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._dirty_jobs = dirty_jobs
        self._now, self._on_change, self._stepped = now, on_change, stepped
        self._polled: dict[str, _Polled] = {}
        self._asked: set[str] = set()
        """The jobs (uids) whose master this leader has seen start, or has asked for long or with success."""
        self._turns = FairSemaphore(MAX_POLLS_AT_ONCE, MAX_POLLS_OF_NAMESPACE)
        self._of_job = TokenBucket(NEWS_OF_A_JOB, NEWS_OF_A_JOB_SECONDS, now=now)
        self._of_namespace = TokenBucket(NEWS_OF_A_NAMESPACE, NEWS_OF_A_NAMESPACE_SECONDS, now=now)
        self._http: aiohttp.ClientSession | None = None

    def report(self, uid: str) -> GroupReport | None:
        """The last report of the job's master with news; the same object until the next news."""
        polled = self._polled.get(uid)
        return polled.report if polled else None

    def report_pending(self, uid: str) -> bool:
        """Whether this leader did not see the job's master start, has no report of it, and has not asked it for long.
        It has not asked at all before the job's first `follow`.
        """
        return uid not in self._asked

    def last_answer_at(self, uid: str) -> float | None:
        """When the job's master last answered, or when the operator began to ask it every second, whichever is later;
        None if the master is not asked every second.

        Silence before that time does not count, because the master was rarely asked.
        """
        polled = self._polled.get(uid)
        if polled is None or polled.fast_since is None:
            return None
        return max(polled.last_answer_at, polled.fast_since) + self._stepped()

    def follow(self, uid: str, target: Target | None) -> None:
        """Ask this master of the job from now on; None to ask none."""
        polled = self._polled.get(uid)
        if target is None:
            self._asked.add(uid)
            self._forget(uid)
        elif polled is None or polled.target.master_uid != target.master_uid:
            self._forget(uid)
            now = self._without_steps()
            self._polled[uid] = begun = _Polled(
                uid, target, began=now, last_answer_at=now, fast_since=now if target.fast else None
            )
            begun.task = asyncio.create_task(self._poll_periodically(begun))
        elif polled.target != target:
            if target.fast != polled.target.fast:
                polled.fast_since = self._without_steps() if target.fast else None
            polled.target = target
            if target.fast:
                polled.poll_now.set()

    def forget_deleted(self, present: Set[str]) -> None:
        for uid in self._polled.keys() - present:
            self._forget(uid)
        self._asked &= present
        for buckets in (self._of_job, self._of_namespace):
            buckets.forget_full()

    async def stop(self) -> None:
        """Ask no master any more."""
        await cancel_and_wait(polled.task for polled in self._polled.values() if polled.task)
        if self._http is not None:
            await self._http.close()

    def _forget(self, uid: str) -> None:
        polled = self._polled.pop(uid, None)
        if polled is not None and polled.task is not None:
            self._dirty_jobs.mark(uid)
            polled.task.cancel()

    def _without_steps(self) -> float:
        return self._now() - self._stepped()

    async def _poll_periodically(self, polled: _Polled) -> None:
        while True:
            try:
                self._on_answer(polled, await self._poll(polled.target))
            except Exception:
                log.exception("cannot read the progress of a job job=%s", polled.target.job_name)
            await _pause(polled)

    def _on_answer(self, polled: _Polled, report: GroupReport | None) -> None:
        known, now = polled.report, self._without_steps()
        if report is not None:
            polled.last_answer_at = now
        elif known is not None and now - polled.last_answer_at >= MASTER_SILENT_SECONDS:
            since = known.silent_since or polled.last_answer_at + self._stepped()
            report = replace(known, silent_since=since)
        if report is not None and self._may_pass_on(polled, known, report):
            polled.report = report
        elif polled.uid in self._asked or now - polled.began < POLL_SECONDS:
            return
        self._asked.add(polled.uid)
        self._dirty_jobs.mark(polled.uid)
        self._on_change()

    def _may_pass_on(self, polled: _Polled, known: GroupReport | None, report: GroupReport) -> bool:
        """Whether to pass the report on now: news of the group while there are tokens, progress after a while.

        A report that is held back is replaced by the master's next answer.
        """
        if known is not None and report.read_at - known.read_at >= PROGRESS_SECONDS:
            return True
        if known is not None and report.group == known.group:
            return False
        buckets = ((self._of_job, polled.uid), (self._of_namespace, polled.target.namespace))
        if not all(bucket.has(key) for bucket, key in buckets):
            return False
        for bucket, key in buckets:
            bucket.take(key)
        return True

    async def _poll(self, target: Target) -> GroupReport | None:
        """The report of the master; None if its answer is useless."""
        async with self._turns.turn(target.namespace):
            try:
                body = await self._get(target)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                log.debug("no answer of the master job=%s master=%s error=%s", target.job_name, target.address, error)
                return None
        return read_report(
            body,
            master_uid=target.master_uid,
            master_epoch=target.master_epoch,
            is_member_name=lambda name: parse_pod_name(target.job_name, name) is not None,
            now=self._now(),
        )

    async def _get(self, target: Target) -> bytes:
        """The body. Raises ValueError for a bad answer, and the errors of aiohttp."""
        if self._http is None:
            self._http = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=MASTER_ANSWER_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(force_close=True, limit=MAX_POLLS_AT_ONCE),
                headers={"Accept": "application/json", "Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        host = ip_address(target.address)
        url = f"http://{f'[{host}]' if host.version == 6 else host}:{target.port}/status"
        async with self._http.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"answered {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > STATUS_LIMIT_BYTES:
                    raise ValueError(f"more than {STATUS_LIMIT_BYTES} bytes")
            return bytes(body)


async def _pause(polled: _Polled) -> None:
    """Wait until the next question: half a minute, or a second; less if the job begins to change."""
    polled.poll_now.clear()
    seconds = FAST_POLL_SECONDS if polled.target.fast else random.uniform(0.8, 1.2) * POLL_SECONDS
    await wait_with_timeout(polled.poll_now, seconds)
