"""What is read of processes in /proc."""

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from elastic_worker import proc
from tests.kit.proc import stat_of
from tests.kit.wait import until

pytestmark = pytest.mark.processes

READS = "import os; child = os.fork(); open('/dev/zero', 'rb').read({size}); print(flush=True); input()"


def test_sessions_are_told_apart_in_one_look_at_all_processes(monkeypatch):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    small, large = (
        subprocess.Popen([sys.executable, "-c", READS.format(size=size)], **pipes) for size in (1 << 20, 64 << 20)
    )
    with small, large:
        for process in (small, small, large, large):
            process.stdout.readline()
        looks, stat_of = Counter(), proc.stat_of
        monkeypatch.setattr(proc, "stat_of", lambda folder: looks.update([folder]) or stat_of(folder))
        found = proc.sessions([small.pid, large.pid])
        assert [(leader in pids, len(pids)) for leader, pids in found.items()] == [(True, 2), (True, 2)]
        assert set(looks.values()) == {1}
        moved = proc.moved_bytes([small.pid, large.pid])
        assert 2 << 20 <= moved[small.pid] < 64 << 20 <= moved[large.pid] // 2
        looks.clear()
        assert proc.sessions([]) == {}
        assert not looks
        for process in (small, large):
            process.communicate(b"\n\n")


ENDED = """
import ctypes, os, threading, time
child = os.fork()
if child == 0:
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
beside = os.fork()
if beside == 0:
    threading.Thread(target=time.sleep, args=(300,)).start()
    exits_a_thread = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    ctypes.CDLL(None).syscall(exits_a_thread, 0)
print(child, beside, flush=True)
input()
"""


def test_who_has_ended_is_in_no_session_unless_another_thread_of_it_runs():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen([sys.executable, "-c", ENDED], **pipes) as process:
        child, beside = map(int, process.stdout.readline().split())
        until("the first thread to end", lambda: stat_of(beside)[0] == "Z", seconds=60)
        assert stat_of(child)[0] == "Z"
        assert proc.sessions([process.pid]) == {process.pid: {process.pid, beside}}
        os.killpg(process.pid, signal.SIGKILL)
