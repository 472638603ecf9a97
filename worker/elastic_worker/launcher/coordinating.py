"""Keeps a coordinator running beside the master's launcher."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from elastic_worker.processes.children import Children, Process

log = logging.getLogger(__name__)

PROGRAM = Path(__file__).resolve().parents[1] / "coordinator" / "__main__.py"
MOST_WAIT_SECONDS = 5.0
STEADY_SECONDS = 30.0


class CoordinatorProcess:
    """The coordinator's process, which is restarted whenever it ends. The members reconnect by themselves.

    It is started by the main thread, since the kernel ends it with the thread that started it (164).
    """

    def __init__(self, children: Children, environ: Mapping[str, str]) -> None:
        self._children, self._environ = children, environ
        self.process: Process | None = None

    async def run(self) -> None:
        """Keep it running until cancelled, and end it then."""
        wait = 0.05
        try:
            while True:
                began = time.monotonic()
                pid = self._children.spawn([sys.executable, str(PROGRAM), str(os.getpid())], environ=self._environ)
                self.process = self._children.adopt(pid)
                code = await self.process.wait()
                wait = 0.05 if time.monotonic() - began > STEADY_SECONDS else min(2 * wait, MOST_WAIT_SECONDS)
                log.warning("the coordinator ended with %d; it is started again in %.1f s", code, wait)
                await asyncio.sleep(wait)
        finally:
            if self.process is not None:
                await self.process.stop(0.0)
