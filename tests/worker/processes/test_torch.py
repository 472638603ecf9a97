"""With the real torch: what the warm parent is for, steps that are counted, and the store."""

import asyncio
import os
import signal

import pytest

from elastic_worker.processes.program import SCRIPT, Program
from elastic_worker.processes.starter import TORCH_MODULES
from tests.kit.proc import open_files
from tests.worker.job.pod import torch_environment
from tests.worker.processes.lab import a_lab, appears, of_rank

pytestmark = pytest.mark.programs

TRAIN = """
import os, sys
before = set(sys.modules)
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.AdamW(torch.nn.parallel.DistributedDataParallel(model).parameters())
for _ in range(5):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
imported = [name for name in sys.modules if name.startswith("torch") and name not in before]
print(total.item(), torch.get_num_threads(), len(imported), file=open(f"rank{dist.get_rank()}", "w"))
dist.destroy_process_group()
"""

COMPILED = """
import torch
weight = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
@torch.compile(backend="eager", fullgraph=False)
def step():
    optimizer.step()
for _ in range(3):
    weight.sum().backward()
    step()
assert weight[0] < 0
for _ in range(2):
    optimizer.step()
"""

RECORDED = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("bad shard")
main()
"""

LOADER = """
import os, torch
from torch.utils.data import DataLoader, Dataset
class Squares(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.tensor(index * index)
if __name__ == "__main__":
    for context in ("spawn", "fork"):
        loader = DataLoader(Squares(), batch_size=4, num_workers=1, multiprocessing_context=context)
        assert torch.cat(list(loader)).tolist() == [n * n for n in range(8)]
"""


@pytest.fixture(autouse=True)
def torch_is_found(monkeypatch):
    """By this process's children. Nothing is loaded by this process itself."""
    for name, value in {**torch_environment(), "OMP_NUM_THREADS": "2"}.items():
        monkeypatch.setenv(name, value)


async def test_processes_from_the_warm_parent_train(tmp_path, capfd):
    """One parent for all of this: it takes seconds to get warm."""
    async with a_lab(tmp_path, modules=TORCH_MODULES, count_steps=True) as lab:
        await lab.until_warm()
        assert lab.starter.problem == ""
        await two_ranks_meet_in_the_store(lab)
        await nothing_is_counted_twice_or_broken_by_a_compiler(lab)
        process = await lab.start_script(RECORDED)
        assert await process.wait() == 1
        assert process.error["message"] == "ValueError: bad shard"
        assert "in main" in process.error["traceback"]
        process = await lab.start_script(LOADER)
        assert await process.wait() == 0
        one_thread_and_no_gpu(lab.parent.pid)
        await random_numbers_differ(lab)
    assert "leaked" not in capfd.readouterr().err


MULTIPLIES = "import numpy\nrows = numpy.ones((500, 500))\nrows @ rows\n"
ADDS = "import torch\nrows = torch.ones(1000, 1000)\nrows + rows\n"


async def test_threads_of_a_library_that_ends_them_for_forks_are_no_harm_and_those_of_tensors_are(
    tmp_path, monkeypatch
):
    tree = os.environ["PYTHONPATH"]
    monkeypatch.setenv("PYTHONPATH", f"{tree}{os.pathsep}{tmp_path / 'work'}")
    async with a_lab(tmp_path, modules=TORCH_MODULES[:1], preload=["multiplies", "adds"]) as lab:
        lab.script(MULTIPLIES, "multiplies.py")
        lab.script(ADDS, "adds.py")
        await lab.until_warm()
        assert lab.starter.problem.startswith("module adds is not preloaded: it starts a native thread")
        assert "multiplies" not in lab.starter.problem


async def two_ranks_meet_in_the_store(lab):
    program = Program(SCRIPT, lab.script(TRAIN))
    for generation in range(2):
        store = await lab.starter.start_store()
        environs = [{**of_rank(rank, store.port), "TORCHELASTIC_RESTART_COUNT": str(generation)} for rank in range(2)]
        ranks = [await lab.start(program, environ=environ) for environ in environs]
        assert [await process.wait() for process in ranks] == [0, 0]
        for rank, process in enumerate(ranks):
            total, threads, imported = (lab.folder / f"rank{rank}").read_text().split()
            assert (total, threads) == ("3.0", "1")
            assert int(imported) < 20, "what training needs is there already"
            assert process.steps.count == 5
            assert process.steps.first < process.steps.last
        assert await store.process.stop(10) == -signal.SIGTERM


async def nothing_is_counted_twice_or_broken_by_a_compiler(lab):
    process = await lab.start_script(COMPILED)
    assert await process.wait() == 0
    assert process.steps.count in (2, 5), "steps within a compiled region may be left out"


async def random_numbers_differ(lab):
    text = (
        "import sys, numpy, torch\nnumbers = torch.initial_seed(), torch.rand(1).item(), numpy.random.rand()\n"
        "print(*numbers, file=open(sys.argv[1], 'w'))\n"
    )
    for name in ("one", "two"):
        assert await (await lab.start_script(text, name)).wait() == 0
    one, two = ((lab.folder / name).read_text().split() for name in ("one", "two"))
    assert not set(one) & set(two)


def one_thread_and_no_gpu(pid: int) -> None:
    links = open_files(pid)
    assert not [link for link in links if "nvidia" in link]
    sockets = [link for link in links if link.startswith("socket:")]
    assert len(sockets) == 1, "the control channel only"


async def test_a_cold_process_counts_steps_too_and_imports_nothing_for_it(tmp_path):
    text = "import sys\nassert 'torch' not in sys.modules\n" + (
        "import torch\nweight = torch.nn.Parameter(torch.zeros(3))\noptimizer = torch.optim.SGD([weight])\n"
        "for _ in range(4):\n    weight.sum().backward()\n    optimizer.step()\n"
        "open('ready', 'w').close()\nsys.stdin.read()\n__import__('time').sleep(60)\n"
    )
    async with a_lab(tmp_path, warm=False, count_steps=True) as lab:
        process = await lab.start_script(text)
        await asyncio.gather(appears(lab.folder / "ready"))
        assert process.steps.count == 4, "while it runs"
        await process.stop(10)
        assert process.steps.count == 4, "and afterwards"


async def test_steps_are_not_counted_where_that_is_turned_off(tmp_path):
    async with a_lab(tmp_path, warm=False, count_steps=False) as lab:
        process = await lab.start_script("import sys; assert len(sys.meta_path) < 6")
        assert await process.wait() == 0
        assert process.steps == (0, None, None, 0)


async def test_a_store_is_served_without_a_warm_parent(tmp_path):
    async with a_lab(tmp_path, warm=False) as lab:
        store = await lab.starter.start_store()
        _, writer = await asyncio.open_connection("127.0.0.1", store.port)
        writer.close()
        await writer.wait_closed()
