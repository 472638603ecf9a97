"""The job's token stays with launchers and coordinator: no training process has it, and nothing shows it."""

import json
import urllib.request

import pytest

from elastic_worker import contract
from tests.kit.proc import command_line, environ_of
from tests.worker.job.local import FAKE_TORCH, TOKEN, LocalJob

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]


def shown_by(pod, path):
    """What the launcher answers there."""
    port = environ_of(pod.pid)[contract.ENV_STATUS_PORT]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return answer.read().decode()


@FAKE_TORCH
@pytest.mark.parametrize("warm", ["1", "0"])
def test_no_training_process_has_it_and_nothing_shows_it(tmp_path, warm, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, script="environ.py", environ={contract.ENV_WARM: warm}) as job:
        job.start(0, 1)
        files = [tmp_path / f"environ-{rank}.json" for rank in range(2)]
        job.wait("both scripts", lambda: all(file.exists() for file in files))
        told = [json.loads(file.read_text()) for file in files]
        for one in told:
            assert contract.ENV_TOKEN not in one
            assert TOKEN not in one.values()
        for pod in job.all_pods:
            assert TOKEN in environ_of(pod.pid).values(), "the launcher has it"
            below = {pid: environ_of(pid) for pid in pod.processes() if pid != pod.coordinator()}
            assert any(below.values())
            for pid, environ in below.items():
                assert TOKEN not in environ.values(), command_line(pid)
            job.wait("a whole environment in the log", lambda said=pod.said: any(str(one) in said() for one in told))
            assert TOKEN not in pod.said()
            assert TOKEN not in shown_by(pod, "/status")
            assert TOKEN not in shown_by(pod, "/metrics")
