"""Watches the launcher's child processes: reaps each one that ends, wakes its waiter, and signals process groups.

As PID 1, or as a subreaper, the launcher becomes the parent of all orphans in the container, and reaps them here, too.
Because all children are reaped here, neither `subprocess` nor asyncio's subprocesses can be used: use `spawn`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from elastic_worker.proc import catches_signal, stat_of

from . import linux

KILL_SECONDS = 15.0
"""Time for the kernel to end a process after SIGKILL: the kernel may free a GPU's memory or write a core first."""

P = TypeVar("P", bound="Process")


class Process:
    """A child process that leads its own session and process group. Not to be used outside its event loop."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Exit code, or minus the signal that killed it. A waiter that may be cancelled awaits `wait()` instead."""

    async def wait(self) -> int:
        """Wait for its end; returns the exit code, or minus the signal that killed it."""
        return await asyncio.shield(self.exited)

    def signal(self, number: int) -> None:
        """Send a signal to the process group. Does nothing once the process has ended."""
        if self.exited.done():
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            # A process that was just started may not lead a group yet. Its pid is not reused before we reap it.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def stop(self, seconds: float) -> int | None:
        """Send SIGTERM, and SIGKILL to the group if it still runs after `seconds`. Returns what `wait` returns.

        Returns None if SIGKILL does not end it within `KILL_SECONDS`: it hangs in the kernel, as with a broken GPU or
        a file server that does not answer.
        """
        self.terminate()
        self.thaw()
        done, _ = await asyncio.wait({self.exited}, timeout=seconds)
        if not done:
            self.signal(signal.SIGKILL)
            done, _ = await asyncio.wait({self.exited}, timeout=KILL_SECONDS)
        return self.exited.result() if done else None

    def terminate(self) -> None:
        """Send SIGTERM to the whole group, since a shell does not pass the signal on."""
        self.signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop the group (SIGSTOP) until `thaw`."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen group continue (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def state(self) -> str:
        """The kernel's letter for the process's state: R, S, D, T (frozen), Z; "" once the process has ended."""
        fields = self._stat()
        return fields[0] if fields else ""

    def cpu_seconds(self) -> float:
        """CPU seconds that all its threads have used; 0 once the process has ended."""
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

    def dump_stacks(self) -> None:
        """Let the process print the stacks of its threads to its stderr, if it has already installed the handler."""
        if not self.exited.done() and catches_signal(self.pid, linux.DUMP_SIGNAL):
            os.kill(self.pid, linux.DUMP_SIGNAL)

    def _stat(self) -> list[str]:
        """Fields of /proc/PID/stat from the state on; none once the process has ended."""
        return [] if self.exited.done() else stat_of(Path(f"/proc/{self.pid}"))


class Children:
    """All children of this process, from its creation until `close`. Only one can exist at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched: dict[int, Process] = {}
        self._unclaimed: dict[int, int] = {}
        self._expecting = 0
        linux.set_subreaper(on=True)
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._reap()

    def adopt(self, pid: int) -> Process:
        """Watch a process that is a child, or becomes one."""
        return self.watch(Process(pid))

    def watch(self, process: P) -> P:
        """Watch a process that has its `Process` object already (see `adopt`)."""
        code = self._unclaimed.pop(process.pid, None)
        if code is None:
            self._watched[process.pid] = process
        else:
            process.exited.set_result(code)
        return process

    def spawn(self, argv: Sequence[str], *, environ: Mapping[str, str], output: tuple[int, int] = (1, 2)) -> int:
        """Start a program (a full path) with an empty stdin and default signal handlers.

        `output` are the file descriptors for its stdout and stderr. Returns its pid, to be watched. Raises OSError
        when the program cannot be executed.
        """
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
        copies = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(output, start=1)]
        return os.posix_spawn(
            argv[0],
            list(argv),
            dict(environ),
            file_actions=[*actions, *copies],
            setsigmask=[],
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """Within this context, the exit code of a process that ends before it is watched is kept for `watch`."""
        self._expecting += 1
        try:
            yield
        finally:
            self._expecting -= 1
            if not self._expecting:
                self._unclaimed.clear()

    def close(self) -> None:
        """Stop reaping. Processes that still run are left alone."""
        self._loop.remove_signal_handler(signal.SIGCHLD)
        linux.set_subreaper(on=False)

    def _reap(self) -> None:
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None:
                return
            self._ended(info.si_pid)

    def _ended(self, pid: int) -> None:
        """Reap one process.

        Its group is killed first, since data loaders' workers outlive it, and its pid may be reused after the reaping.
        """
        process = self._watched.pop(pid, None)
        if process is not None:
            _kill_group(pid)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if process is None:
            if self._expecting:
                self._unclaimed[pid] = code
        elif not process.exited.done():
            process.exited.set_result(code)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
