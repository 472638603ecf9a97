"""torch's modules as launchers, and a script that starts its processes by itself; more lines are in `launchers`."""

import pytest

from tests.worker.job.local import LocalJob
from tests.worker.job.pod import PYTHON, REAL

pytestmark = [pytest.mark.processes, pytest.mark.programs, pytest.mark.timeout(300)]

SECONDS = 200
SCRIPT = """\
import argparse, os, sys

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "local", args.local_rank, "in", sys.prefix)
"""


def job(folder, line, *, pods):
    (folder / "train.py").write_text(SCRIPT)
    return LocalJob(folder, tree=REAL, fewest=pods, command=["--command", "--", "bash", "-c", f"cd {folder}; {line}"])


@pytest.mark.parametrize(
    ("line", "local"),
    [(f"{PYTHON} -m torch.distributed.run --standalone", -1), (f"{PYTHON} -m torch.distributed.launch", 0)],
    ids=["run", "launch"],
)
def test_torchs_launchers_as_modules_reach_our_launcher(tmp_path, line, local):
    """The older one passes --local-rank, which a script of before torch 2.0 is given as it takes it."""
    with job(tmp_path, f"{line} --nproc_per_node=2 train.py", pods=1) as trains:
        trains.start(0)
        assert trains.wait_code(trains.pods[0], seconds=SECONDS) == 0, trains.report()
        for rank in range(2):
            assert f"rank {rank} of 2 local {rank if local == 0 else local} in /usr" in trains.pods[0].said()


SPAWNS = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(gpu, gpus, hosts, host):
    dist.init_process_group("gloo", init_method="env://", rank=host * gpus + gpu, world_size=hosts * gpus)
    sum = torch.ones(1)
    dist.all_reduce(sum)
    print(f"rank {dist.get_rank()} sum {int(sum)}\\n", end="", flush=True)  # one write: two processes share the stream
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, nprocs=2, args=(2, int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])))
"""


def test_a_script_that_spawns_its_own_processes_counts_pods_where_each_has_one_process(tmp_path):
    (tmp_path / "train.py").write_text(SPAWNS)
    with LocalJob(tmp_path, tree=REAL, fewest=2, nproc=1, command=["--", str(tmp_path / "train.py")]) as trains:
        trains.start(0, 1)
        assert [trains.wait_code(pod, seconds=SECONDS) for pod in trains.all_pods] == [0, 0], trains.report()
        for host, pod in enumerate(trains.all_pods):
            assert all(f"rank {2 * host + gpu} sum 4" in pod.said() for gpu in range(2)), trains.report()
