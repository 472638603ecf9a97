"""What is read of processes in /proc."""

import subprocess
import sys
from collections import Counter

import pytest

from elastic_worker import proc

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
