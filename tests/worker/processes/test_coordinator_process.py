"""The coordinator's process ends with its launcher, also where no PID namespace ends all processes of a pod."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastic_worker import contract
from elastic_worker.launcher.coordinating import PROGRAM
from tests.kit.proc import children_of, command_line, is_running
from tests.kit.wait import until
from tests.worker.job.local import free_port

SECONDS = 20
LAUNCHER = """
import asyncio, os
from elastic_worker.launcher.coordinating import CoordinatorProcess
from elastic_worker.processes.children import Children

async def main():
    await CoordinatorProcess(Children(), os.environ).run()

asyncio.run(main())
"""


@pytest.fixture
def environ(tmp_path):
    """Of a master's pod."""
    own = {
        contract.ENV_JOB_UID: "job-uid",
        contract.ENV_INCARNATION: 1,
        contract.ENV_POD_NAME: "toy-master-0",
        contract.ENV_POD_UID: "pod-uid",
        contract.ENV_LOCAL_ADDR: "127.0.0.1",
        contract.ENV_ROLE: contract.ROLE_MASTER,
        contract.ENV_INDEX: 0,
        contract.ENV_TOKEN: "secret",
        contract.ENV_MASTER_ADDR: "127.0.0.1",
        contract.ENV_MASTER_PORT: free_port(),
        contract.ENV_STATUS_PORT: free_port(),
        contract.ENV_MEMBERSHIP_FILE: tmp_path / "membership",
        "TMPDIR": tmp_path,
    }
    return {**os.environ, **{name: str(value) for name, value in own.items()}}


def coordinator_of(launcher):
    """Its pid; None while there is none that serves."""
    started = (pid for pid in children_of(launcher) if str(PROGRAM) in command_line(pid))
    return next((pid for pid in started if ignores_sigterm(pid)), None)


def ignores_sigterm(pid):
    """The coordinator does so once it has begun its own work."""
    status = Path(f"/proc/{pid}/status").read_text()
    (ignored,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(ignored >> 14 & 1)


def test_the_coordinator_ends_with_a_launcher_that_is_killed(environ):
    with subprocess.Popen([sys.executable, "-c", LAUNCHER], env=environ) as launcher:
        coordinator = until("the coordinator", lambda: coordinator_of(launcher.pid), seconds=SECONDS)
        launcher.kill()
    until("its end", lambda: not is_running(coordinator), seconds=SECONDS)


def test_a_coordinator_whose_launcher_has_ended_before_it_began_ends_at_once(environ):
    """It finds itself the child of another process than the one that started it."""
    with subprocess.Popen(["true"]) as gone:
        pass
    started = subprocess.run([sys.executable, str(PROGRAM), str(gone.pid)], env=environ, timeout=SECONDS)
    assert started.returncode == 1
