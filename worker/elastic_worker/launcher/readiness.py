"""Gets the pod's processes ready to be brought into a group that trains: those that are missing are started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elastic_worker.launcher.group import Group

MOST_FAILED_STARTS = 2


class Readiness:
    """Of one pod. `give_up` is told why, where its processes end before they were in a group, for the second time."""

    def __init__(self, group: Group, give_up: Callable[[str], None]) -> None:
        self._group, self._give_up = group, give_up
        self._failed = 0
        self._starting: asyncio.Future[None] | None = None
        group.unready = self._failed_once_more

    def begin(self) -> None:
        """Beside whatever else is said: a process that has failed may take seconds to end."""
        before = self._starting

        async def after() -> None:
            if before is not None:
                await asyncio.wait({before})
            await self._start()

        self._starting = asyncio.ensure_future(after())

    async def cancel(self) -> None:
        """Start no more."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})

    def taken_over(self) -> None:
        """They are in a group: what failed before counts no more."""
        self._failed = 0

    async def _start(self) -> None:
        try:
            await self._group.get_ready()
        except OSError as error:
            self._failed_once_more(f"{self._group.settings.pod_name} cannot start its processes: {error}")

    def _failed_once_more(self, told: str) -> None:
        self._failed += 1
        if self._failed >= MOST_FAILED_STARTS:
            self._give_up(told)
        else:
            self.begin()
