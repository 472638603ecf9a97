"""Runs a small script in real processes that meet in a store, and collects the report of each.

The script gets `rank`, `port` and `tell` (any JSON value, by keyword) as globals, and is run by torch's own Python. Its
processes are forked from a launcher's warm parent, which has imported torch once for all tests, or are new
interpreters.
"""

import atexit
import itertools
import json
import os
import select
import signal
import socket
import tempfile
import textwrap
import time
from functools import cache
from pathlib import Path

import torch
from torch import distributed as dist

from elastic_worker.processes import control, linux, ticket
from elastic_worker.processes.parent import BOOTSTRAP
from elastic_worker.processes.program import SCRIPT, Program
from elastic_worker.processes.starter import TORCH_MODULES
from elastic_worker.protocol.warm_parent import Fork

ROOT = Path(__file__).parents[3]
PYTHON = "/usr/bin/python3.11"
PRELUDE = """\
import faulthandler, json, os, signal, sys, threading, time
import torch
from torch import distributed as dist
from elastic_worker.library import forming, groups
rank, port = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
faulthandler.dump_traceback_later(25)

def tell(**values):
    print("told " + json.dumps(values), flush=True)

def form(name, rank, world, *, timeout=30.0, **options):
    return groups.form(
        backend="gloo", host="127.0.0.1", port=port, prefix=name, rank=rank, world=world, timeout=timeout, **options
    )

def counts():
    return [len(os.listdir("/proc/self/" + kind)) for kind in ("fd", "task")]

"""


class WarmParent:
    """A launcher's warm parent, used without an event loop. It ends with this process."""

    def __init__(self):
        self._temporary = tempfile.TemporaryDirectory(prefix="warm-")  # removed when this process ends
        self._folder = Path(self._temporary.name)
        self._numbers = itertools.count()
        self._line, theirs = control.pair()
        atexit.register(self._line.close)
        path = self._folder / "orders"
        with theirs:
            theirs.set_inheritable(True)
            control.ParentConfig(os.getpid(), theirs.fileno(), (*TORCH_MODULES, "elastic_worker.library.job")).write(
                path
            )
            spawn(BOOTSTRAP, "zygote", path, output=2)
        self._hear("ready")

    def fork(self, source, *args, output):
        """Pid of a new process that runs the source, a child of this one."""
        linux.set_subreaper(on=True)
        number = next(self._numbers)
        script, path = self._folder / f"{number}.py", self._folder / f"{number}.ticket"
        script.write_text(source)
        program = Program(SCRIPT, str(script), args)
        ticket.write(ticket.Ticket(os.getpid(), program, environment(), directory=str(self._folder)), path)
        socket.send_fds(self._line, [control.encode(Fork(str(path), number))], [output, output])
        return self._hear("pid")

    def _hear(self, word):
        while word not in (message := json.loads(self._line.recv(control.MESSAGE_BYTES))):
            assert message.keys() == {"importing"}, message
        return message[word]


warm_parent = cache(WarmParent)


def spawn(*args, output):
    """Pid of a new process of torch's own Python."""
    copies = [(os.POSIX_SPAWN_DUP2, output, target) for target in (1, 2)]
    return os.posix_spawn(PYTHON, [PYTHON, *map(str, args)], environment(), file_actions=copies)


def environment():
    """The environment of a process with torch and the library."""
    tree = str(Path(torch.__file__).parents[1])
    own = {"PYTHONPATH": f"{tree}:{ROOT / 'worker'}", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own}


class Running:
    """A process of a script, `cold` if it is not forked."""

    def __init__(self, script, rank, port, *, cold):
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `end`
        source, output = PRELUDE + textwrap.dedent(script), self._output.fileno()
        if cold:
            self.pid = spawn("-c", source, rank, port, output=output)
        else:
            self.pid = warm_parent().fork(source, str(rank), str(port), output=output)

    def said(self):
        """Its output so far."""
        return os.pread(self._output.fileno(), 1 << 20, 0).decode()

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def end(self, seconds):
        """Its exit code and output; a process that takes longer is killed, and its code shows that."""
        ended = os.pidfd_open(self.pid)
        if not select.select([ended], [], [], max(seconds, 0.1))[0]:
            self.kill()
        os.close(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with self._output as output:
            output.seek(0)
            return code, output.read()


def new_store():
    """A store for processes to meet in."""
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def run(script, count, *, seconds=60.0, lost=(), cold=False):
    """The reports of all ranks. All must end by themselves and without an error, except those `lost` on purpose."""
    store = new_store()
    end = time.monotonic() + seconds
    running = [Running(script, rank, store.port, cold=cold) for rank in range(count)]
    ended = {rank: process.end(end - time.monotonic()) for rank, process in enumerate(running) if rank not in lost}
    for rank in lost:
        running[rank].kill()
        ended[rank] = running[rank].end(10)
    failed = [f"rank {rank}: {code}\n{output}" for rank, (code, output) in ended.items() if code and rank not in lost]
    assert not failed, "\n".join(failed)
    return [told(output) for _, (_, output) in sorted(ended.items())]


def told(output):
    """All reported values, by name."""
    values = {}
    for line in output.splitlines():
        if line.startswith("told "):
            values.update(json.loads(line.removeprefix("told ")))
    return values
