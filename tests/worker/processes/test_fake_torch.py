"""The fake torch that launchers are tested with answers as the real one, wherever a launcher depends on the answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from elastic_worker.checkpoint.integrity import is_whole
from elastic_worker.launcher.describe import is_consequence
from elastic_worker.processes.program import SCRIPT, Program
from elastic_worker.processes.starter import TORCH_MODULES
from tests.worker.job.pod import FAKE, REAL, torch_environment
from tests.worker.processes.lab import a_lab, appears, of_rank, until

pytestmark = pytest.mark.programs

START = """
import os, signal, sys, time
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["RANK"])
print(torch.randn(1).item(), file=open("../drawn", "a"))
def say(*words):
    print(*words, file=open(f"said{rank}", "a"))
def meet(**options):
    dist.init_process_group("gloo", **options)
def until(name):
    while not Path(name).exists():
        time.sleep(0.005)
def sit():
    Path(f"sits{rank}").touch()
    time.sleep(300)
"""


async def waits(process, *, looks=20):
    """Until it has slept for so many looks in a row: it said a moment ago that it would wait for another one."""
    asleep = 0

    def look():
        nonlocal asleep
        asleep = asleep + 1 if process.state() == "S" else 0
        return asleep == looks

    await until(look)


async def told_to_go(folder, ranks, _store):
    """Once rank 1 sits, and rank 0 waits for it."""
    await appears(folder / "sits1")
    await appears(folder / "waits0")
    await waits(ranks[0])
    ranks[0].terminate()
    (folder / "told").touch()


async def store_is_gone(folder, ranks, store):
    """While rank 0 waits for rank 1, which never comes."""
    await appears(folder / "waits0")
    await waits(ranks[0])
    await store.process.stop(0)


@dataclass(frozen=True)
class Case:
    """What ranks 0 and 1 are to answer: exit code, words, and why it failed: because of another one ("peer"), or how.

    No answer is asked of a rank whose is None: it is ended at last.
    """

    script: str
    answers: tuple[tuple[int, str, str] | None, ...]
    meanwhile: Callable[..., Awaitable[None]] | None = None


TORN = "a checkpoint that is cut is no checkpoint"
CASES = {
    "ranks meet and add": Case(
        "meet()\nsum = torch.tensor([rank + 1.0, 2.0])\ndist.all_reduce(sum)\ndist.barrier()\n"
        "say(dist.get_rank(), dist.get_world_size(), sum.sum().item(), torch.get_num_threads())\n"
        "dist.destroy_process_group()\nsay(dist.is_initialized())",
        ((0, "0 2 7.0 1\nFalse\n", ""), (0, "1 2 7.0 1\nFalse\n", "")),
    ),
    "they learn together, from rank 0's weights, by averaged gradients": Case(
        "meet()\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.5)\n"
        "parallel = DistributedDataParallel(model)\n"
        "def total(): return sum(parameter.sum().item() for parameter in model.parameters())\n"
        "both = torch.tensor([total()])\ndist.all_reduce(both)\nsay(abs(both.item() - 2 * total()) < 1e-5)\n"
        "for _ in range(2):\n    optimizer.zero_grad()\n    before = total()\n"
        "    parallel(torch.ones(4 * (rank + 1), 2)).sum().backward()\n    optimizer.step()\n"
        "    say(round(before - total(), 4))",
        ((0, "True\n18.0\n18.0\n2 steps", ""), (0, "True\n18.0\n18.0\n2 steps", "")),
    ),
    "a peer that is killed ends the collective": Case(
        "meet()\ndist.barrier()\nif rank: os.kill(os.getpid(), signal.SIGKILL)\ndist.barrier()",
        ((1, "", "peer"), (-9, "", "")),
    ),
    "a peer that fails ends the collective, and says why itself": Case(
        "meet()\nif rank: raise ValueError('bad shard')\ndist.all_reduce(torch.ones(3))",
        ((1, "", "peer"), (1, "", "ValueError: bad shard")),
    ),
    "a silent peer ends it after the timeout only": Case(
        "meet(timeout=timedelta(seconds=2))\nsit() if rank else dist.barrier()", ((1, "", "peer"), None)
    ),
    "who waits for a peer goes when told to": Case(
        "meet()\nif rank: sit()\nPath('waits0').touch()\ndist.all_reduce(torch.ones(3))",
        ((-15, "", ""), None),
        told_to_go,
    ),
    "a handler runs only when the collective has ended": Case(
        "meet()\nsignal.signal(signal.SIGTERM, lambda *_: say(Path('comes').exists()))\n"
        "if rank:\n    Path('sits1').touch(); until('told'); Path('comes').touch()\n"
        "else:\n    Path('waits0').touch()\ndist.all_reduce(torch.ones(3))\nsay('after')",
        ((0, "True\nafter\n", ""), (0, "after\n", "")),
        told_to_go,
    ),
    "a store that is gone ends who waits for others in it": Case(
        "if rank: sit()\nPath('waits0').touch()\nmeet()", ((1, "", "peer"), None), store_is_gone
    ),
    TORN: Case(
        "torch.save({'epoch': 3, 'model': torch.nn.Linear(32, 32).state_dict()}, f'whole{rank}')\n"
        "say(torch.load(f'whole{rank}')['epoch'])\ncontent = Path(f'whole{rank}').read_bytes()\n"
        "Path(f'cut{rank}').write_bytes(content[:1000])\n"
        "try:\n    torch.load(f'cut{rank}')\nexcept RuntimeError:\n    say('torn')",
        ((0, "3\ntorn\n", ""), (0, "3\ntorn\n", "")),
    ),
}


@pytest.mark.parametrize("tree", [FAKE, REAL])
async def test_the_fake_and_the_real_one_give_the_same_answers(tmp_path, monkeypatch, tree):
    """In processes of one warm parent, as it takes seconds to get warm."""
    for name, value in torch_environment(tree).items():
        monkeypatch.setenv(name, value)
    async with a_lab(tmp_path, modules=TORCH_MODULES, count_steps=True) as lab:
        await lab.until_warm()
        assert lab.starter.problem == ""
        answers = {name: await answers_to(case, lab, name) for name, case in CASES.items()}
        assert answers == {name: case.answers for name, case in CASES.items()}
        assert [is_whole(lab.folder / TORN / name) for name in ("whole0", "cut0")] == [True, False]
        drawn = (lab.folder / "drawn").read_text().split()
        assert len(set(drawn)) == 2 * len(CASES), "processes that were forked alike draw other numbers"


async def answers_to(case, lab, name):
    """Of both ranks."""
    folder = lab.folder / name
    folder.mkdir()
    program = Program(SCRIPT, lab.script(START + case.script))
    store = await lab.starter.start_store()
    ranks = [
        await lab.starter.start(program, environ=of_rank(rank, store.port), directory=str(folder), local_rank=rank)
        for rank in range(2)
    ]
    if case.meanwhile is not None:
        await case.meanwhile(folder, ranks, store)
    answers = tuple([await answer(folder, rank, ranks[rank]) if case.answers[rank] else None for rank in range(2)])
    for process in (*ranks, store.process):
        await process.stop(0)
    return answers


async def answer(folder, rank, process):
    """Of one."""
    code = await process.wait()
    said = folder / f"said{rank}"
    words = said.read_text() if said.exists() else ""
    if process.steps.count:
        words += f"{process.steps.count} steps"
    error = process.error or {"message": "", "traceback": ""}
    return code, words, "peer" if is_consequence(error["traceback"]) else error["message"]
