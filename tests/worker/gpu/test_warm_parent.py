"""The warm parent of a pod with GPUs: it has imported all that training needs, and has no hold on a GPU."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from elastic_worker.processes.starter import TORCH_MODULES
from tests.kit.proc import open_files
from tests.worker.processes.lab import a_lab

USES_GPU = """
import os, torch
before = torch.cuda.is_initialized()
total = torch.ones(1000, device="cuda").sum().item()
print(total, before, torch.cuda.is_initialized(), file=open("used", "w"))
"""
TOUCHES_GPU = "import torch\ntorch.ones(1, device='cuda')\n"
ASKS_FOR_GPU = "import torch\nassert torch.cuda.is_available()\n"
HAS_OWN_CUDA = "import ctypes\nassert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
"""As cupy, numba and jax: torch knows nothing of it."""


@pytest.fixture(autouse=True)
def torch_is_found(monkeypatch, tmp_path):
    """By this process's children, and so is a module that cannot be preloaded."""
    for name, text in (("touches_gpu", TOUCHES_GPU), ("asks_for_gpu", ASKS_FOR_GPU), ("has_own_cuda", HAS_OWN_CUDA)):
        (tmp_path / f"{name}.py").write_text(text)
    tree = Path(torch.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{tree}:{tmp_path}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


async def test_processes_that_it_forks_use_the_gpu_and_it_has_nothing_of_one_itself(tmp_path):
    async with a_lab(tmp_path, modules=TORCH_MODULES) as lab:
        await lab.until_warm()
        assert lab.starter.problem == ""
        assert devices_of(lab.parent.pid) == []
        assert lab.parent.pid not in compute_processes()
        for _ in range(2):
            process = await lab.start_script(USES_GPU)
            assert await process.wait() == 0
            assert (lab.folder / "used").read_text().split() == ["1000.0", "False", "True"]
        assert devices_of(lab.parent.pid) == []


async def test_a_module_that_uses_the_gpu_when_it_is_imported_is_left_out(tmp_path):
    async with a_lab(tmp_path, modules=TORCH_MODULES, preload=["touches_gpu"]) as lab:
        await lab.until_warm()
        assert lab.starter.problem.startswith("module touches_gpu is not preloaded: it initialises CUDA")
        assert devices_of(lab.parent.pid) == []
        process = await lab.start_script(USES_GPU)
        assert await process.wait() == 0


async def test_a_module_that_asks_for_a_gpu_is_preloaded_and_one_with_its_own_cuda_is_not(tmp_path):
    async with a_lab(tmp_path, modules=TORCH_MODULES, preload=["asks_for_gpu", "has_own_cuda"]) as lab:
        await lab.until_warm()
        assert lab.starter.problem.startswith("module has_own_cuda is not preloaded: it opens /dev/nvidia-uvm")
        assert "asks_for_gpu" not in lab.starter.problem
        process = await lab.start_script(USES_GPU)
        assert await process.wait() == 0


def devices_of(pid):
    """GPU devices that the process has open."""
    return [name for name in open_files(pid) if name.startswith("/dev/nvidia")]


def compute_processes():
    """Pids with a CUDA context, as far as nvidia-smi is there and sees this PID namespace."""
    if shutil.which("nvidia-smi") is None:
        return set()
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=os.environ).stdout
    return {int(word) for word in told.split() if word.isdigit()}
