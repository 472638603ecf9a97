"""Watches the path where a script saves its checkpoints, and signals when one is complete.

The script is not involved. Files that other pods write on a shared mount are not seen. Only the pod that writes
matters, since its processes are stopped right after. A mount that hangs must not stop the heartbeats, so everything
that touches the mount runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from elastic_worker.checkpoint.finder import Finder
from elastic_worker.checkpoint.inotify import Notice

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""Pause before the next try to watch a path that could not be watched."""
MAX_NOTICES = 10_000
"""Notices kept while a check lasts. More of them wait in the kernel, which reports when it drops some."""


class CheckpointWatch:
    """The watch on one path.

    `writers` returns the leaders of the sessions in which this pod's training processes run. `marker` is the name of
    the file that ends a checkpoint in a folder (see `Candidates`), "" for the known ones.
    """

    def __init__(self, path: Path, *, writers: Callable[[], Iterable[int]], marker: str = "") -> None:
        self.path = path
        self.problem = ""
        """Why the path cannot be watched or read, as text for users; "" while it can be."""
        self.checks = 0
        """Checks that have ended."""
        self.completed = 0
        """Checks that found a complete checkpoint."""
        self.last: float | None = None
        """Monotonic seconds of the last complete checkpoint."""
        self.changed = asyncio.Event()
        """Set at each complete checkpoint and when `problem` changes; the waiter clears it."""
        self._make_finder = partial(Finder, path, writers, marker=marker)
        self._finder: Finder | None = None
        self._task: asyncio.Task[None] | None = None
        self._happened = asyncio.Event()
        self._looking = False
        self._notices: list[Notice] = []
        self._checked = asyncio.Event()
        self._alarms: list[Callable[[], None]] = []

    async def open(self) -> None:
        """Start to watch. If that fails, `problem` says why, and the watch is retried in the background."""
        await self._try_to_watch()
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._drop()

    async def check_after(self, checks: int) -> None:
        """Return once more than this number of `checks` have ended, so that none is missed between two calls."""
        while self.checks <= checks:
            await self._checked.wait()

    @contextmanager
    def alarm(self, ring: Callable[[], None]) -> Iterator[None]:
        """Within this context, call `ring` the moment a checkpoint may be complete, before it is checked."""
        self._alarms.append(ring)
        try:
            yield
        finally:
            self._alarms.remove(ring)

    @property
    def unfinished(self) -> bool:
        """Whether a checkpoint is under way, even if no file of it is open now."""
        return self.behind or (self._finder is not None and self._finder.unfinished())

    @property
    def marked(self) -> bool:
        """Whether a marker ended the last complete checkpoint, so that no pod has more of it to write."""
        return self._finder is not None and self._finder.marked

    @property
    def behind(self) -> bool:
        """Whether there are notices that were not handled yet; another check follows."""
        return self._looking or self._happened.is_set()

    def being_written(self) -> bool:
        """Whether one of the writers has a file of the checkpoint open for writing. Takes milliseconds."""
        return self._finder is not None and self._finder.being_written()

    def verify(self) -> bool:
        """Whether the last candidate is unchanged and complete. Reads a little of it."""
        return self._finder is not None and self._finder.verify()

    async def _run(self) -> None:
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._happened.wait(), self._patience())
            try:
                await (self._try_to_watch() if self._finder is None else self._look(self._finder))
            except Exception as error:
                # If this ended unnoticed, a waiter would wait for ever for a checkpoint.
                log.exception("path=%s cannot be checked; the watch restarts", self.path)
                self._note_surprise(error)

    def _patience(self) -> float | None:
        """Seconds until the next check if nothing happens; None if none is due."""
        if self._finder is None:
            return RETRY_SECONDS
        due_at = self._finder.due_at()
        return None if due_at is None else max(0.0, due_at - time.monotonic())

    async def _try_to_watch(self) -> None:
        try:
            self._finder = await asyncio.to_thread(self._make_finder)
        except OSError as error:
            self._note_problem(error)
        else:
            self._set_problem("")
            self._listen(self._finder)

    async def _look(self, finder: Finder) -> None:
        # Notices are read meanwhile: on a slow mount a check takes longer than a script's step.
        self._looking = True
        self._happened.clear()
        notices, self._notices = self._notices, []
        try:
            is_complete = await asyncio.to_thread(finder.find, notices)
        except OSError as error:
            self._note_problem(error)
            self._drop()
            is_complete = False
        except Exception as error:  # wake the waiter in any case: processes may be frozen
            log.exception("path=%s cannot be checked; the watch restarts", self.path)
            self._note_surprise(error)
            is_complete = False
        else:
            self._listen(finder)
        finally:
            self._looking = False
        if is_complete:
            self._announce()
        self.checks += 1
        self._checked.set()
        self._checked = asyncio.Event()

    def _listen(self, finder: Finder) -> None:
        asyncio.get_running_loop().add_reader(finder.descriptor, self._notice, finder)

    def _unlisten(self, finder: Finder) -> None:
        asyncio.get_running_loop().remove_reader(finder.descriptor)

    def _notice(self, finder: Finder) -> None:
        notices, may_complete = finder.read()
        self._notices.extend(notices)
        if len(self._notices) > MAX_NOTICES:
            self._unlisten(finder)  # until the next check has handled these
        if may_complete:
            for ring in self._alarms:
                ring()
        self._happened.set()

    def _announce(self) -> None:
        self.completed += 1
        self.last = time.monotonic()
        log.debug("checkpoint complete path=%s completed=%d", self.path, self.completed)
        self.changed.set()

    def _note_problem(self, error: OSError) -> None:
        self._set_problem(f"checkpoints at {self.path} cannot be watched: {error.strerror or error}")

    def _note_surprise(self, error: Exception) -> None:
        self._set_problem(f"checkpoints at {self.path} cannot be watched: {error!r}")
        self._drop()

    def _set_problem(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        self.changed.set()
        if problem:
            log.warning("%s", problem)

    def _drop(self) -> None:
        finder, self._finder = self._finder, None
        self._notices = []
        self._happened.clear()
        if finder is not None:
            self._unlisten(finder)
            finder.close()
