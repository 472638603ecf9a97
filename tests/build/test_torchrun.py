"""The wrapper with the torchrun of the oldest torch that is supported; the newest one runs in the local cluster."""

import pytest

from tests.api.jobs import make_container, make_template
from tests.build.objects import make_spec
from tests.build.torchrun_pods import TorchrunPods
from tests.kit.wait import until

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


def test_two_pods_train_a_third_joins_and_all_end_well(tmp_path):
    """In the environment of the pods of Torchrun mode."""
    (tmp_path / "train.py").write_text(SCRIPT)
    template = make_template(make_container(args=["train.py", "world"]))
    with TorchrunPods(tmp_path, make_spec(template, min_=2, max_=3, nprocPerNode=1), tree="oldest") as job:
        job.begin(0)
        job.begin(1)
        world = tmp_path / "world"
        until("two train", lambda: world.exists() and world.read_text() == "2", seconds=60)
        job.begin(2)
        assert [code for code, _, _ in job.end(seconds=90)] == [0, 0, 0]
        assert world.read_text() == "3"
