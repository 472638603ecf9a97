"""Starts the pod's missing processes, so that they can join a training group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elastic_worker.launcher.worker_group import WorkerGroup

MOST_FAILED_STARTS = 2


class Preparation:
    """Starts the missing processes of one pod.

    If two processes in a row end before they were in a group, `end_pod` is called with the reason.
    """

    def __init__(self, group: WorkerGroup, end_pod: Callable[[str], None]) -> None:
        self._group, self._end_pod = group, end_pod
        self._failed = 0
        self._starting: asyncio.Future[None] | None = None
        group.on_failed_start = self._count_failure

    def begin(self) -> None:
        """Start the missing processes in the background, since a failed process may take seconds to end."""
        previous = self._starting

        async def after() -> None:
            if previous is not None:
                await asyncio.wait({previous})
            await self._start()

        self._starting = asyncio.ensure_future(after())

    async def cancel(self) -> None:
        """Stop starting processes."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})

    def note_joined(self) -> None:
        """Note that the processes are in a group, so that earlier failures do not count any more."""
        self._failed = 0

    async def _start(self) -> None:
        try:
            await self._group.start_missing()
        except OSError as error:
            self._count_failure(f"{self._group.settings.pod_name} cannot start its processes: {error}")

    def _count_failure(self, why: str) -> None:
        self._failed += 1
        if self._failed >= MOST_FAILED_STARTS:
            self._end_pod(why)
        else:
            self.begin()
