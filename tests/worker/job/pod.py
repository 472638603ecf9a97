"""One pod: a launcher that is process 1 of its own PID namespace, as in a container."""

import math
import os
import signal
import subprocess
import time
from pathlib import Path

from devcluster import torchtree
from devcluster.progress import Progress
from elastic_worker import contract
from tests.kit.proc import children_of, command_line, descendants_of, open_files, stat_of

PYTHON = "/usr/bin/python3.11"
"""Debian's Python, for which the torch tree is installed."""
WORKER = Path(contract.__file__).parent
REAL = torchtree.DEFAULT_TREE
FAKE = "fake"
"""The tree with the fake torch, which a pod loads at once, for tests that do not depend on torch."""
RESOLVER = {"RES_OPTIONS": "timeout:1 attempts:1"}
"""torch resolves the name of each host that it has reached, even of 127.0.0.1; a lost answer would cost 5 s."""


class LocalPod:
    """`pid` is the launcher's on this machine; `place` is its network namespace, `inside` the command to enter it."""

    def __init__(self, name, uid, command, *, environ, log, inside=(), place=""):
        self.name, self.uid, self.log, self.place = name, uid, log, place
        with log.open("ab") as output:
            alone = [*inside, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *command]
            self.process = subprocess.Popen(alone, env=environ, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    @property
    def pid(self):
        """The launcher's pid; None before its start and after its end."""
        return next(iter(children_of(self.process.pid)), None)

    @property
    def code(self):
        """Its exit code, None while it runs."""
        return self.process.poll()

    def signal(self, number):
        """Send the launcher a signal, as the kubelet does."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def terminate(self):
        """Send SIGTERM."""
        self.signal(signal.SIGTERM)

    def kill(self):
        """End it with all its processes, at once; or as soon as it has started."""
        while self.pid is None and self.code is None:
            time.sleep(0.01)
        self.signal(signal.SIGKILL)
        self.process.wait(20)

    def training(self):
        """Pids of its training processes: those with an open record of steps."""
        return [pid for pid in self.processes() if any("/steps-" in name for name in open_files(pid))]

    def coordinator(self):
        """Pid of the coordinator, None where there is none."""
        return next((pid for pid in self.processes() if "coordinator/__main__" in command_line(pid)), None)

    def zygote(self):
        """Pid of the warm parent: the first of those with its command line, as those that it forked have it too."""
        return min((pid for pid in self.processes() if "bootstrap.py" in command_line(pid)), key=started_at)

    def processes(self):
        """All of its processes except the launcher, as this machine's pids."""
        pid = self.pid
        return [] if pid is None else descendants_of(pid)

    def at_work(self):
        """For a report: state and CPU time (hundredths of a second) of all of its processes."""
        fields = {pid: stat_of(pid) for pid in self.processes()}
        return {pid: f"{stat[0]} {int(stat[11]) + int(stat[12])}" for pid, stat in fields.items() if stat}

    def freeze(self):
        """Send SIGSTOP to all its processes, the launcher included."""
        for pid in [*self.processes(), self.pid]:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        """Let it continue."""
        for pid in [self.pid, *self.processes()]:
            os.kill(pid, signal.SIGCONT)

    def said(self):
        """Its whole log."""
        return self.log.read_text(errors="replace")


def torch_environment(tree=REAL):
    """The environment of a process with torch that uses loopback only."""
    tree = Path(__file__).with_name("fake_torch") if tree == FAKE else torchtree.ensure(Progress(), tree=tree)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("ELASTIC_", "PET_"))}
    return clean | {
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        **RESOLVER,
    }


def started_at(pid):
    """The start time in ticks since the machine's start; infinity if the process has ended."""
    stat = stat_of(pid)
    return int(stat[19]) if stat else math.inf
