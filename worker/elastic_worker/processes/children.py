"""Watches the launcher's child processes: reaps every one that ends, tells its waiter, and signals groups.

Everything ends up here: as PID 1 or as subreaper the launcher becomes the parent of all orphans in the container.
Because it reaps all children, neither `subprocess` nor asyncio's subprocesses can be used beside it: see `spawn`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from elastic_worker.proc import stat_of

from . import linux

KILL_SECONDS = 15.0
"""Time for the kernel to end a process after SIGKILL: it may free a GPU's memory or write a core first."""

P = TypeVar("P", bound="Process")


class Process:
    """A child, leader of its own session and process group. Use within the event loop that made it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Exit code, or minus the signal that killed it. Await `wait()` instead where the waiter may be cancelled."""

    async def wait(self) -> int:
        """The exit code, or minus the signal, once it has ended."""
        return await asyncio.shield(self.exited)

    def signal(self, number: int) -> None:
        """Send a signal to the group; nothing happens once the process is gone."""
        if self.exited.done():
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            # A process just started may not lead a group yet. Its pid is not reused until we reap it.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def stop(self, seconds: float) -> int | None:
        """Ask it to end, kill the group if it still runs after `seconds`; returns as `wait` does.

        None where not even that ends it: it hangs in the kernel, as with a sick GPU or a file server that is gone.
        """
        self.terminate()
        self.thaw()
        done, _ = await asyncio.wait({self.exited}, timeout=seconds)
        if not done:
            self.signal(signal.SIGKILL)
            done, _ = await asyncio.wait({self.exited}, timeout=KILL_SECONDS)
        return self.exited.result() if done else None

    def terminate(self) -> None:
        """Ask it to end: the whole group, as a shell does not pass the signal on."""
        self.signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop the group where it is, until `thaw`."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen group run on."""
        self.signal(signal.SIGCONT)

    def state(self) -> str:
        """The kernel's letter: R, S, D, T (frozen), Z; empty when the process is gone."""
        fields = self._stat()
        return fields[0] if fields else ""

    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far; 0 when it is gone."""
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

    def dump_stacks(self) -> None:
        """Have the process print the stacks of its threads to its stderr, if it has installed the handler yet."""
        if not self.exited.done() and self._catches(linux.DUMP_SIGNAL):
            os.kill(self.pid, linux.DUMP_SIGNAL)

    def _stat(self) -> list[str]:
        """Fields of /proc/PID/stat from the state on."""
        return [] if self.exited.done() else stat_of(Path(f"/proc/{self.pid}"))

    def _catches(self, number: int) -> bool:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
        return False


class Children:
    """All children of this process, from the moment it is made until `close`. There can be one at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched: dict[int, Process] = {}
        self._strangers: dict[int, int] = {}
        self._expecting = 0
        linux.set_subreaper(on=True)
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._reap()

    def adopt(self, pid: int) -> Process:
        """Watch a child, or a process that becomes one."""
        return self.watch(Process(pid))

    def watch(self, process: P) -> P:
        """As `adopt`, for a process that already has its object."""
        code = self._strangers.pop(process.pid, None)
        if code is None:
            self._watched[process.pid] = process
        else:
            process.exited.set_result(code)
        return process

    def spawn(self, argv: Sequence[str], *, environ: Mapping[str, str], output: tuple[int, int] = (1, 2)) -> int:
        """Start a program (a full path) with an empty stdin and default signals; returns its pid, to be watched.

        Raises OSError when the program cannot be executed.
        """
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
        # To 1 and 2 last to first, so that a descriptor is not overwritten before it is copied.
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
        """While it lasts, a process that ends before it is watched is remembered."""
        self._expecting += 1
        try:
            yield
        finally:
            self._expecting -= 1
            if not self._expecting:
                self._strangers.clear()

    def close(self) -> None:
        """Stop reaping; processes that still run are left alone."""
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
        """Reap one. First its group is killed (data loader workers outlive it), while the pid is still its own."""
        process = self._watched.pop(pid, None)
        if process is not None:
            _kill_group(pid)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if process is None:
            if self._expecting:
                self._strangers[pid] = code
        elif not process.exited.done():
            process.exited.set_result(code)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
