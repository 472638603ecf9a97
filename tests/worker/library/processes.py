"""Runs a small script in real processes that meet in a store, and collects what each of them reports.

The script gets `rank`, `port` and `tell` (any JSON value, by keyword) as globals, and is run by torch's own Python.
"""

import json
import os
import signal
import subprocess
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import distributed as dist

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


@dataclass
class Ended:
    """What a process has told, and how it ended."""

    told: dict
    code: int
    output: str


@dataclass
class Processes:
    """Those of one script, with their store."""

    store: dist.TCPStore
    running: list[subprocess.Popen] = field(default_factory=list)

    def start(self, script: str, rank: int) -> subprocess.Popen:
        """One more process of the script."""
        tree = str(Path(torch.__file__).parents[1])
        environ = {
            **os.environ,
            "PYTHONPATH": f"{tree}:{ROOT / 'worker'}",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        source = PRELUDE + textwrap.dedent(script)
        command = [PYTHON, "-c", source, str(rank), str(self.store.port)]
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.running.append(process)
        return process

    def end(self, process: subprocess.Popen, seconds: float) -> Ended:
        """Wait for it; one that takes longer is killed, and has the code of that."""
        try:
            output, _ = process.communicate(timeout=max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        told = {}
        for line in output.splitlines():
            if line.startswith("told "):
                told.update(json.loads(line[len("told ") :]))
        return Ended(told, process.returncode, output)


def new_store() -> dist.TCPStore:
    """A store for processes to meet in."""
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def run(script: str, count: int, *, seconds: float = 60.0, lost: tuple[int, ...] = ()) -> list[dict]:
    """What each rank told. All must end by themselves and without an error, but for those `lost` on purpose."""
    processes = Processes(new_store())
    end = time.monotonic() + seconds
    started = [processes.start(script, rank) for rank in range(count)]
    ended = {}
    for rank, process in enumerate(started):
        if rank not in lost:
            ended[rank] = processes.end(process, end - time.monotonic())
    for rank in lost:
        started[rank].send_signal(signal.SIGKILL)
        ended[rank] = processes.end(started[rank], 10)
    failed = [f"rank {rank}: {one.code}\n{one.output}" for rank, one in ended.items() if one.code and rank not in lost]
    assert not failed, "\n".join(failed)
    return [ended[rank].told for rank in range(count)]
