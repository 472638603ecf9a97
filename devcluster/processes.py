"""Starts the cluster's processes and finds them again. The process table is the only record of them.

Every process has a mark in its environment, NAME/PART, which its children inherit (containerd's shims, too). So no pid
file can be stale, and all leftovers of a crashed run can be found. Processes inside containers do not have the mark;
they are found through the node's cgroup.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevclusterError
from devcluster.names import Layout

MARK = "ELASTIC_PYTORCH_DEVCLUSTER"
# A process that still runs one of these programs has not executed its command yet.
LAUNCHERS = frozenset({"setsid", "nsenter", "unshare", "sh"})
POLL_SECONDS = 0.02
START_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Process:
    """A marked process. `leads`: it is the started process, not one of its children."""

    pid: int
    part: str
    leads: bool


def find(layout: Layout, part: str = "") -> list[Process]:
    """The processes of a part such as `n1/kubelet`, of all parts below `n1`, or of the whole cluster for ""."""
    wanted = layout.mark(part).rstrip("/")
    found = []
    for pid, mark in marks().items():
        if mark == wanted or mark.startswith(wanted + "/"):
            found.append(Process(pid=pid, part=mark.removeprefix(layout.name + "/"), leads=_session(pid) == pid))
    return found


def leader(layout: Layout, part: str) -> int | None:
    """The pid of the process that was started as `part`; None if it does not run."""
    return next((p.pid for p in find(layout, part) if p.part == part and p.leads and not _is_launcher(p.pid)), None)


def marks() -> dict[int, str]:
    """Pid -> mark of every marked process of the machine. Zombies have none."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (mark := _mark_of(int(entry.name))) is not None:
            found[int(entry.name)] = mark
    return found


def _mark_of(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    for variable in environment.split(b"\0"):
        if variable.startswith(prefix):
            return variable.removeprefix(prefix).decode(errors="replace")
    return None


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _is_launcher(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() in LAUNCHERS
    except OSError:
        return True


def start(
    layout: Layout,
    part: str,
    command: Iterable[str | Path],
    *,
    inside: int | None = None,
    env: Mapping[str, str] | None = None,
    before: Iterable[str] = (),
) -> int:
    """Start `command` as `part`, detached, its output appended to logs/PART.log; return its pid.

    `inside` is the pid of an anchor whose network and mount namespaces it enters. `before` is put before the command,
    for unshare. A part that already runs is not started again.
    """
    running = leader(layout, part)
    if running is not None:
        return running
    enter = ["nsenter", "--target", str(inside), "--net", "--mount"] if inside is not None else []
    log = layout.logs / f"{part.replace('/', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    # setsid --fork makes init the parent, so that this process need not wait for it.
    words = ["setsid", "--fork", *enter, *before, *(str(word) for word in command)]
    with log.open("ab") as output:
        subprocess.run(
            words,
            env=os.environ | (env or {}) | {MARK: layout.mark(part)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=True,
            cwd="/",
        )
    return _wait_for_leader(layout, part, log=log)


def _wait_for_leader(layout: Layout, part: str, *, log: Path) -> int:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        pid = leader(layout, part)
        if pid is not None:
            return pid
        time.sleep(POLL_SECONDS)
    raise DevclusterError(f"{part} ended at once; {last_words(log)}")


def last_words(log: Path) -> str:
    """Name a log file and its last line."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return f"the end of {log}: {next((line.strip() for line in reversed(lines) if line.strip()), 'nothing')}"


def send(pids: Iterable[int], signal_number: signal.Signals) -> None:
    """Send a signal; processes that have ended already are no error."""
    for pid in pids:
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            continue


def kill_all(list_pids: Callable[[], Iterable[int]], *, seconds: float = 20.0) -> None:
    """Kill until `list_pids` finds no process, since a dying process may have just forked; then all is released.

    Raises DevclusterError for processes that do not die in time.
    """
    end = time.monotonic() + seconds
    while pids := list(list_pids()):
        if not _kill(pids, seconds=end - time.monotonic()):
            raise DevclusterError(f"processes {pids} do not die; look at /proc/PID/stack")


def _kill(pids: Iterable[int], *, seconds: float) -> bool:
    """Kill them, and wait for their end; returns whether all have ended.

    It waits for their pidfds: a dying process frees its memory, which has the mark, before its sockets.
    """
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as opened:
        pollers = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                opened.callback(os.close, descriptor)
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                pollers.append(select.poll())
                pollers[-1].register(descriptor, select.POLLIN)
        return all(poller.poll(max(0.0, end - time.monotonic()) * 1000.0) for poller in pollers)
