"""The wrapper with the torchrun of the oldest torch that is supported; the newest one runs in the local cluster."""

import pytest

from devcluster import torchtree
from devcluster.progress import Progress
from elastic_operator.build.wrapper import RUN_TORCHRUN
from elastic_worker.contract import ENV_LOCAL_ADDR, ENV_RDZV_ENDPOINT
from tests.build.containers import start
from tests.build.objects import env_of, make_pod, make_spec
from tests.kit.wait import until
from tests.worker.job.local import free_port
from tests.worker.job.pod import RESOLVER

SCRIPT = """\
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
while True:
    world = torch.ones(1)
    dist.all_reduce(world)
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(str(int(world)))
    if world == 3:
        break
    time.sleep(0.05)
dist.barrier()
"""
pytestmark = [pytest.mark.processes, pytest.mark.programs, pytest.mark.timeout(180)]


@pytest.fixture
def begin(tmp_path):
    """Starts the pod `number` of a job of two or three: 0 is the master."""
    tree = torchtree.ensure(Progress(quiet=True), tree="oldest")
    spec, port, pods = make_spec(min_=2, max_=3, nprocPerNode=1), free_port(), []
    (tmp_path / "train.py").write_text(SCRIPT)

    def begin(number):
        pod = make_pod(spec, role="worker" if number else "master", index=max(0, number - 1))
        own = {ENV_LOCAL_ADDR: f"127.0.0.{number + 1}", ENV_RDZV_ENDPOINT: f"127.0.0.1:{port}"}
        torch = {"PATH": f"{tree}/bin:/usr/bin:/bin", "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        alone = RESOLVER | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        words = [str(tmp_path / "train.py"), str(tmp_path / "world")]
        pods.append(start("dash", RUN_TORCHRUN, *words, env=env_of(pod) | own | torch | alone))
        return pods[-1]

    yield begin
    for pod in pods:
        pod.kill()


def test_two_pods_train_a_third_joins_and_all_end_well(begin, tmp_path):
    """In the environment of the pods of Torchrun mode."""
    pods = [begin(0), begin(1)]
    world = tmp_path / "world"
    until("two train", lambda: world.exists() and world.read_text() == "2", seconds=60)
    pods.append(begin(2))
    until("all have ended", lambda: not any(pod.running() for pod in pods), seconds=90)
    assert [pod.end()[0] for pod in pods] == [0, 0, 0]
    assert world.read_text() == "3"
