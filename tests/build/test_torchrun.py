"""The wrapper with real torchruns: of the oldest torch that is supported, and of the newest one."""

import time

import pytest

from devcluster import torchtree
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


ENDLESS = """\
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
while True:
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 0:
        Path("world").write_text(str(dist.get_world_size()))
"""
MISSED_SECONDS = 10.0
"""Longer than torchrun's keep-alive, and than process 1 takes to look."""


def stands_still(file):
    """Whether nothing was written to it for so long."""
    return time.time() - file.stat().st_mtime > MISSED_SECONDS


@pytest.mark.parametrize("tree", ["oldest", torchtree.DEFAULT_TREE])
def test_pod_logs_show_a_smaller_group_only_while_it_trains(tree, tmp_path):
    """Its machine is off, and they wait for it; then what they wait for is ended."""
    (tmp_path / "train.py").write_text(ENDLESS)
    world = tmp_path / "world"
    template = make_template(make_container(args=["train.py"]))
    with TorchrunPods(tmp_path, make_spec(template, min_=2, max_=3, nprocPerNode=1), tree=tree) as job:
        for number in range(3):
            job.begin(number)

        def are_a_group(*numbers):
            ranks = [job.rank(number) for number in numbers]
            return (
                all(one is not None and one.size == len(numbers) for one in ranks)
                and len({one.group for one in ranks}) == 1
                and {one.rank for one in ranks} == set(range(len(numbers)))
            )

        until("three train", lambda: world.exists() and world.read_text() == "3", seconds=90)
        until("they say so", lambda: are_a_group(0, 1, 2), seconds=10)
        job.pods[2].freeze()
        until("the others wait for it", lambda: stands_still(world), seconds=60)
        assert are_a_group(0, 1, 2)
        job.pods.pop().kill()
        until("they say that they train on", lambda: are_a_group(0, 1), seconds=60)
        until("they train on", lambda: world.read_text() == "2", seconds=60)
