"""Runs the examples' scripts with the local cluster's torch and the system's Python, on this machine's CPU."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from devcluster import torchtree
from devcluster.progress import Progress
from elastic_worker import contract
from tests.worker.job.pod import RESOLVER, WORKER
from tests.worker.trainers.jobs import with_trainers

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
# The torch tree is installed for the base image's Python, Debian's own.
PYTHON = "/usr/bin/python3.11"
TOGETHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
"""What makes two processes of a script."""
TIMEOUT_SECONDS = 120


@cache
def environment() -> dict[str, str]:
    """Of a process that finds torch and the library, and talks to loopback only."""
    paths = os.pathsep.join([str(torchtree.ensure(Progress())), str(WORKER.parent)])
    torch = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    # As in the operator's pods: restarted processes that find their predecessors' addresses in a shared store cannot
    # connect to them.
    store = {contract.ENV_NO_SHARED_STORE: "1"}
    return os.environ | torch | store | RESOLVER | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def run(*words: str | Path, folder: Path) -> str:
    """Run a script to its end, in a folder where it leaves its checkpoints; what it said."""
    return _run([PYTHON, *map(str, words)], folder, environment())


def run_line(line: str, *, folder: Path) -> str:
    """Run a line of a page in a shell that finds torchrun and `examples/`, and leave checkpoints in the folder."""
    (folder / "examples").symlink_to(EXAMPLES)
    programs = f"{torchtree.ensure(Progress())}/bin:{Path(PYTHON).parent}:/bin"
    environ = with_trainers(environment()) if "examples/hugging-face/" in line else environment()
    return _run(["bash", "-euo", "pipefail", "-c", line], folder, environ | {"PATH": programs})


def _run(command: list[str], folder: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
