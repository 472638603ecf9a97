"""Ends the remaining processes of sessions whose leaders have ended: data loaders' workers, ranks of `mp.spawn`.

They may hold GPU memory that the next processes need. The kernel frees it when a process has ended, which takes some
time after the kill.
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
"""Time for the kernel to end them. The next processes start after this time in any case."""
LOOK_SECONDS = 0.02


async def end(leaders: Sequence[int]) -> list[int]:
    """Kill the members of these sessions, and wait until /proc shows none of them.

    Returns the pids of those that do not end within `KILLED_SECONDS`.
    """
    began = time.monotonic()
    while survivors := await asyncio.to_thread(_members, leaders):
        for pid in survivors:
            _kill(pid)
        if time.monotonic() > began + KILLED_SECONDS:
            names = ", ".join(f"process {pid}" for pid in survivors)
            logger.warning("%s of a session that has ended cannot be ended by SIGKILL: a GPU may not be free", names)
            return survivors
        await asyncio.sleep(LOOK_SECONDS)
    return []


def _members(leaders: Sequence[int]) -> list[int]:
    """Pids of the members of these sessions. A session whose leader runs is a new one under a number used before."""
    pids_by_leader = sessions(leaders)
    return sorted(pid for leader, pids in pids_by_leader.items() if leader not in pids for pid in pids)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
