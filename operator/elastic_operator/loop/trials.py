"""Whether the API server would take the pods for which others are to go: asked before the first of those goes (139).

It is asked by a dry run. A job whose pods it refuses takes nothing from others for a while, and the refusal counts as
if the pods had been sent: it is told, and tried again later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Set
from math import inf

from elastic_operator.cluster.errors import ClusterError, PodRefused
from elastic_operator.loop.read import drop_absent
from elastic_operator.plan.decisions import CreatePod
from elastic_operator.plan.job import Job

log = logging.getLogger(__name__)

PASSED_SECONDS = 60.0
"""An answer holds for so long: quotas change."""
REFUSED_SECONDS = 10.0
"""A job whose pods were refused takes nothing for so long; by then its status says when it is tried again."""
RETRY_SECONDS = 1.0
"""The same where no answer came."""


class Trials:
    """The answers, by the uid of the job. `ask` raises ClusterError, `refused` is told of a PodRefused."""

    def __init__(
        self,
        ask: Callable[[Job, tuple[CreatePod, ...]], Awaitable[None]],
        refused: Callable[[Job, PodRefused], object],
    ) -> None:
        self._ask, self._refused = ask, refused
        self._passed: dict[str, tuple[object, float]] = {}
        self._barred: dict[str, float] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def may_take(self, uid: str) -> bool:
        """Whether others may be asked to go for the job."""
        return time.monotonic() >= self._barred.get(uid, 0.0)

    def next_try(self) -> float:
        """When (monotonic) a job that may take nothing now may do so again; infinity if there is none."""
        now = time.monotonic()
        return min((until for until in self._barred.values() if until > now), default=inf)

    def keep_only(self, present: Set[str]) -> None:
        """Forget the jobs that are gone."""
        drop_absent(self._passed, present)
        drop_absent(self._barred, present)

    def trial(self, job: Job, creates: tuple[CreatePod, ...]) -> asyncio.Task[None] | None:
        """The question whether these pods of the job would be taken; None if they were found to be just now."""
        what = job.generation, sorted(create.role for create in creates)
        known = self._passed.get(job.uid)
        if known is not None and known[0] == what and time.monotonic() < known[1]:
            return None
        if job.uid not in self._running:
            task = self._running[job.uid] = asyncio.create_task(self._try(job, creates, what))
            task.add_done_callback(lambda _: self._running.pop(job.uid, None))
        return self._running[job.uid]

    async def stop(self) -> None:
        """Cancel what is under way."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _try(self, job: Job, creates: tuple[CreatePod, ...], what: object) -> None:
        try:
            await self._ask(job, creates)
        except PodRefused as error:
            self._barred[job.uid] = time.monotonic() + REFUSED_SECONDS
            self._refused(job, error)
        except ClusterError:
            self._barred[job.uid] = time.monotonic() + RETRY_SECONDS
        except Exception:
            log.exception("job=%s: it cannot be asked whether its pods would be taken", job.key)
            self._barred[job.uid] = time.monotonic() + REFUSED_SECONDS
        else:
            self._passed[job.uid] = what, time.monotonic() + PASSED_SECONDS
