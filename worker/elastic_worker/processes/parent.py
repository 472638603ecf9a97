"""Keeps a warm parent alive: starts it, restarts it when it dies, and asks it for processes.

A module that the parent cannot import, or that makes it unfit to be forked, is left out of later parents and named in
`problem`. The other modules stay preloaded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from elastic_worker.protocol.warm_parent import Forked, Imported, Importing, NotImported, Unfit

from .channel import Channel
from .children import Children, Process
from .control import ParentConfig

logger = logging.getLogger(__name__)

BOOTSTRAP = str(Path(__file__).with_name("bootstrap.py"))
PRELOAD_SECONDS = 300.0
"""A module whose import takes longer is left out."""
FORK_SECONDS = 10.0
"""A parent that has not forked within this time counts as broken, and is killed."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
LONG_LIFE_SECONDS = 60.0
"""A parent that has lived this long resets the pauses between starts."""
GIVE_UP_AFTER = 5
"""The number of parents in a row that never became ready, after which no other is started."""


class WarmParent:
    """Keeps one parent after another until `close`. Calls `on_change` when `ready` or `given_up` may have changed."""

    def __init__(
        self,
        *,
        children: Children,
        folder: Path,
        modules: Sequence[str],
        environ: Mapping[str, str],
        on_change: Callable[[], None],
    ) -> None:
        self.environ = dict(environ)
        self.python = sys.executable
        self.ready = False
        self.given_up = ""
        self.process: Process | None = None
        self._children, self._folder, self._on_change = children, folder, on_change
        self._modules = list(dict.fromkeys(modules))
        self._left_out: dict[str, str] = {}
        self._importing = ""
        self._renewed = False
        self._overdue: asyncio.TimerHandle | None = None
        self._channel: Channel | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str:
        """Why there is no warm parent, or which modules it lacks; "" if nothing is wrong."""
        lacks = [f"module {name} is not preloaded: {why}" for name, why in self._left_out.items()]
        return "; ".join([self.given_up, *lacks] if self.given_up else lacks)

    def open(self) -> None:
        """Start the first parent, in the background."""
        self._keeper = asyncio.create_task(self._keep())

    async def fork(self, ticket: Path, *, output: tuple[int, int]) -> int | None:
        """Fork a process that takes this ticket, with `output` as its stdout and stderr.

        Returns its process id, None if the parent cannot fork one.
        """
        if not self.ready or self._channel is None:
            return None
        try:
            answer = await self._channel.fork(ticket, output=output, seconds=FORK_SECONDS)
        except OSError as error:
            logger.warning("the warm parent does not answer and is replaced error=%r", error)
            self._kill()
            return None
        if isinstance(answer, Forked):
            return answer.pid
        logger.warning("the warm parent could not fork answer=%s", answer)
        return None

    def renew(self, environ: Mapping[str, str], *, python: str = "") -> None:
        """Replace the parent by one with another environment, and with another interpreter if `python` is given."""
        self.environ, self.ready, self._renewed = dict(environ), False, True
        if python:
            self.python = python
            self.given_up = ""
            self._left_out.clear()
        self._kill()
        self._on_change()
        if python and self._keeper is not None and self._keeper.done():
            self.open()

    async def close(self) -> None:
        """End the parent for good."""
        if self._keeper is None:
            return
        self._keeper.cancel()
        await asyncio.wait({self._keeper})
        self._kill()
        if self.process is not None:
            await self.process.wait()

    async def _keep(self) -> None:
        pause, failures = FIRST_PAUSE_SECONDS, 0
        while failures < GIVE_UP_AFTER:
            began, left_out, self._renewed = time.monotonic(), len(self._left_out), False
            failures = 0 if await self._live() else failures + 1
            if self._renewed or len(self._left_out) > left_out:
                failures = 0
                continue
            if time.monotonic() - began > LONG_LIFE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self.given_up = f"the warm parent ended {failures} times before it was ready"
        logger.warning("processes are started cold reason=%r", self.problem)
        self._on_change()

    async def _live(self) -> bool:
        """Run one parent from its start to its end; returns whether it ever became ready."""
        self._importing = ""
        channel = self._channel = Channel(
            {
                Importing: lambda message: self._watch_import(message.module),
                NotImported: lambda message: self._leave_out(message.module, message.why),
                Unfit: lambda message: self._leave_out(message.module, message.why),
                Imported: self._is_ready,
            }
        )
        try:
            process = self.process = self._start(channel)
            code = await process.wait()
        except OSError as error:
            logger.warning("the warm parent cannot be started error=%r", error)
            return False
        finally:
            was_ready, self.ready, self._channel = self.ready, False, None
            channel.close()
            self._watch_import("")
        if was_ready:
            logger.warning("the warm parent ended and is replaced code=%d", code)
            self._on_change()
        elif self._importing and code != -signal.SIGKILL:
            self._leave_out(self._importing, f"it ended the process with code {code}")
        return was_ready

    def _start(self, channel: Channel) -> Process:
        modules = tuple(module for module in self._modules if module not in self._left_out)
        path = self._folder / "parent.json"
        with channel.parent_end as parent_end:
            ParentConfig(os.getpid(), parent_end.fileno(), modules).write(path)
            parent_end.set_inheritable(True)
            pid = self._children.spawn([self.python, BOOTSTRAP, "zygote", str(path)], environ=self.environ)
            return self._children.adopt(pid)

    def _is_ready(self, _said: Imported) -> None:
        self._watch_import("")
        if self._renewed:
            return
        self.ready = True
        self._on_change()

    def _watch_import(self, module: str) -> None:
        """Note the module that is being imported, and start its time limit; "" if none is."""
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        if module:
            self._importing = module
            loop = asyncio.get_running_loop()
            self._overdue = loop.call_later(PRELOAD_SECONDS, self._too_slow, module)

    def _too_slow(self, module: str) -> None:
        self._leave_out(module, f"its import takes longer than {PRELOAD_SECONDS:g} seconds")
        self._kill()

    def _leave_out(self, module: str, why: str) -> None:
        if module not in self._left_out:
            self._left_out[module] = why
            logger.warning("a module is not preloaded module=%s reason=%r", module, why)

    def _kill(self) -> None:
        if self.process is not None:
            self.process.signal(signal.SIGKILL)
