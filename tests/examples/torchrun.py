"""Runs the toy with the local cluster's torch and the system's Python, as a pod would, on this machine's CPU."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from devcluster import torchtree
from devcluster.progress import Progress
from elastic_worker import contract
from tests.worker.job.pod import RESOLVER

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
TOY = EXAMPLES / "toy" / "train.py"
# The torch tree is installed for the base image's Python, Debian's own.
PYTHON = "/usr/bin/python3.11"
TIMEOUT_SECONDS = 120
EPOCH = re.compile(r"\[(\d+)] epoch (\d+) \(rank = (\d+), local_rank = (\d+)\) loss = \d+\.\d+")


@dataclass(frozen=True, slots=True)
class Epoch:
    """One line of the toy's log about an epoch."""

    pid: int
    epoch: int
    rank: int
    local_rank: int


def parse_epoch(line: str) -> Epoch | None:
    """What the line says of an epoch, if it speaks of one and of nothing else."""
    match = EPOCH.fullmatch(line.rstrip("\n"))
    return Epoch(*map(int, match.groups())) if match else None


@cache
def environment() -> dict[str, str]:
    """Of a process that finds torch, and talks to loopback only."""
    torch = {"PYTHONPATH": str(torchtree.ensure(Progress())), "PYTHONDONTWRITEBYTECODE": "1"}
    # As in the operator's pods: restarted processes that find their predecessors' addresses in a shared store cannot
    # connect to them.
    store = {contract.ENV_NO_SHARED_STORE: "1"}
    return os.environ | torch | store | RESOLVER | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def start(*arguments: str, folder: Path, processes: int = 2, max_restarts: int = 0) -> subprocess.Popen[str]:
    """Start the toy under torchrun in `folder`, where it puts its checkpoint; stdout and stderr are one pipe."""
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.Popen(
        [*torchrun, f"--max-restarts={max_restarts}", str(TOY), "--pause=0.05", *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(*arguments: str, folder: Path, processes: int = 2) -> list[str]:
    """Run the toy to its end and return its log, line by line."""
    with start(*arguments, folder=folder, processes=processes) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        finally:
            process.terminate()  # does nothing to one that has ended
    assert process.returncode == 0, output
    return output.splitlines()


def epochs(lines: list[str]) -> list[Epoch]:
    """The epochs a log speaks of."""
    return [found for found in map(parse_epoch, lines) if found]


def run_python(script: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script with torch, without torchrun."""
    command = [PYTHON, str(script), *map(str, arguments)]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
