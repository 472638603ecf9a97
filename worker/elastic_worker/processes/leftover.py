"""Ends what is left of sessions whose leaders have ended: data loaders' workers, ranks of `mp.spawn`, and theirs.

They may hold memory of a GPU that the next processes need. The kernel gives it back when the process is gone, not when
it is killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

from elastic_worker.proc import sessions

logger = logging.getLogger(__name__)

KILLED_SECONDS = 2.0
"""Time for the kernel to end them; the next processes start in any case."""
LOOK_SECONDS = 0.02


async def end(leaders: Sequence[int]) -> list[int]:
    """Kill the members of these sessions, and return once /proc has none; pids of those that do not end in time."""
    began = time.monotonic()
    while left := await asyncio.to_thread(_members, leaders):
        for pid in left:
            _kill(pid)
        if time.monotonic() > began + KILLED_SECONDS:
            names = ", ".join(f"process {pid}" for pid in left)
            logger.warning("%s of a session that has ended cannot be ended by SIGKILL: a GPU may not be free", names)
            return left
        await asyncio.sleep(LOOK_SECONDS)
    return []


def _members(leaders: Sequence[int]) -> list[int]:
    """Of all these sessions. One whose leader is there is another one: a number in use is not given to a process."""
    found = sessions(leaders)
    return sorted(pid for leader, pids in found.items() if leader not in pids for pid in pids)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
