"""The warm parent: what it does with bad modules, and what its death and the launcher's mean."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elastic_worker.processes import after_fork, zygote
from elastic_worker.processes import parent as parents
from elastic_worker.processes.control import ParentConfig
from elastic_worker.protocol.warm_parent import Fork
from tests.kit.proc import children_of, is_running
from tests.worker.processes.lab import a_lab, appears, until

LOADED = "import sys; print(sorted(m for m in sys.argv[2:] if m in sys.modules), file=open(sys.argv[1], 'w'))"
SIT = "import os, time; open(str(os.getpid()), 'w').close(); open('ready', 'w').close(); time.sleep(300)"


NATIVE_THREAD = """
import ctypes
libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
assert libc.pthread_create(ctypes.byref(thread), None, libc.sleep, ctypes.c_void_p(99)) == 0
libc.pthread_setname_np(thread, b"cupy's own")
"""
OPEN_DEVICE = """
from elastic_worker.processes import fitness
fitness.CUDA_DEVICE = __file__
opened = open(__file__)
"""
"""This machine has no GPU: another file is taken for what CUDA opens."""
BAD = {
    "absent": (None, "No module named 'bad'"),
    "broken": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "leaving": ("import sys; sys.exit(4)", "SystemExit: 4"),
    "starts a thread": ("import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()", "a thread"),
    "starts a native thread": (NATIVE_THREAD, "it starts a native thread (cupy's own)"),
    "opens a GPU": (OPEN_DEVICE, "bad.py: CUDA is in use"),
    "crashing": ("import os; os.abort()", "ended the process with code -6"),
    "hanging": ("import time; time.sleep(99)", "takes longer"),
}


@pytest.mark.parametrize(("text", "why"), BAD.values(), ids=BAD)
async def test_a_module_that_cannot_be_preloaded_is_named_and_the_rest_stays_warm(tmp_path, monkeypatch, text, why):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "work"))
    monkeypatch.setattr(parents, "PRELOAD_SECONDS", 3)
    async with a_lab(tmp_path, preload=["bad", "wave"]) as lab:
        if text is not None:
            lab.script(text, "bad.py")
        await lab.until_warm()
        process = await lab.start_script(LOADED, "loaded", "wave", "bad", "elastic_worker.processes.zygote")
        assert await process.wait() == 0
        assert (lab.folder / "loaded").read_text() == "['elastic_worker.processes.zygote', 'wave']\n"
        assert "module bad is not preloaded" in lab.starter.problem
        assert why in lab.starter.problem
        assert "wave" not in lab.starter.problem


TORCH_CUDA = """
import os
pid = None
def init():
    global pid
    pid = os.getpid()
def _is_in_bad_fork():
    return pid not in (None, os.getpid())
"""


async def test_a_module_that_initialises_cuda_is_left_out(tmp_path, monkeypatch):
    """This machine has no GPU: torch.cuda is one that says of itself what the real one says."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "work"))
    async with a_lab(tmp_path, modules=["torch.cuda"], preload=["looks", "wave"]) as lab:
        (lab.folder / "torch").mkdir()
        lab.script("import random\ndefault_generator = random.Random()\n", "torch/__init__.py")
        lab.script(TORCH_CUDA, "torch/cuda.py")
        lab.script("import torch.cuda; torch.cuda.init()", "looks.py")
        await lab.until_warm()
        assert lab.starter.problem.startswith("module looks is not preloaded: it initialises CUDA")
        process = await lab.start_script(LOADED, "loaded", "torch.cuda", "looks", "wave")
        assert await process.wait() == 0
        assert (lab.folder / "loaded").read_text() == "['torch.cuda', 'wave']\n"


SHORT_THREAD = NATIVE_THREAD.replace("libc.sleep, ctypes.c_void_p(99)", "libc.usleep, ctypes.c_void_p(20_000)")


async def test_a_native_thread_that_ends_by_itself_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "work"))
    async with a_lab(tmp_path, preload=["short"]) as lab:
        lab.script(SHORT_THREAD, "short.py")
        await lab.until_warm()
        assert lab.starter.problem == ""


async def test_no_problem_is_told_of_where_there_is_none(tmp_path):
    async with a_lab(tmp_path) as lab:
        assert not lab.starter.warm
        await lab.until_warm()
        assert lab.starter.problem == ""
        assert len(list(Path(f"/proc/{lab.parent.pid}/task").iterdir())) == 1


async def test_without_a_warm_parent_nothing_is_waited_for(tmp_path):
    async with a_lab(tmp_path, warm=False) as lab:
        assert lab.starter.warm
        assert await (await lab.start_script("raise SystemExit(3)")).wait() == 3


async def test_the_parent_lives_through_signals_meant_for_others(tmp_path):
    async with a_lab(tmp_path) as lab:
        await lab.until_warm()
        pid = lab.parent.pid
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
        assert await (await lab.start_script("raise SystemExit(3)")).wait() == 3
        assert lab.parent.pid == pid
        assert os.getsid(pid) == pid


async def test_training_goes_on_when_the_parent_is_killed_and_another_takes_its_place(tmp_path):
    async with a_lab(tmp_path) as lab:
        await lab.until_warm()
        process = await lab.start_script(SIT)
        await appears(lab.folder / "ready")
        os.kill(lab.parent.pid, signal.SIGKILL)
        await until(lambda: not lab.starter.warm)
        assert await (await lab.start_script("raise SystemExit(3)")).wait() == 3, "started cold meanwhile"
        await lab.until_warm()
        another = await lab.start_script(LOADED, "loaded", "elastic_worker.processes.zygote")
        assert await another.wait() == 0
        assert (lab.folder / "loaded").read_text() == "['elastic_worker.processes.zygote']\n"
        assert process.state() in "SR"
        assert await process.stop(10) == -signal.SIGTERM


async def test_a_parent_that_does_not_answer_is_replaced_and_runs_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(parents, "FORK_SECONDS", 0.2)
    async with a_lab(tmp_path) as lab:
        await lab.until_warm()
        frozen = lab.parent.pid
        os.kill(frozen, signal.SIGSTOP)
        process = await lab.start_script(SIT)
        await appears(lab.folder / "ready")
        await until(lambda: not is_running(frozen))
        await lab.until_warm()
        assert [path.name for path in lab.folder.glob("[0-9]*")] == [str(process.pid)]
        await process.stop(10)


async def test_a_parent_that_never_gets_ready_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(parents, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(parents, "GIVE_UP_AFTER", 2)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "work"))
    async with a_lab(tmp_path, modules=["killed"]) as lab:
        lab.script("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed.py")
        await lab.until_warm()
        assert "ended 2 times before it was ready" in lab.starter.problem
        assert await (await lab.start_script("raise SystemExit(3)")).wait() == 3


async def test_a_cancelled_start_leaves_no_process(tmp_path):
    before = set(children_of(os.getpid()))
    async with a_lab(tmp_path) as lab:
        await lab.until_warm()
        starting = asyncio.ensure_future(lab.start_script(SIT))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()
        # The parent forks in the order in which it is asked: after this one, the unwanted one has been forked too.
        assert await (await lab.start_script("pass", name="later.py")).wait() == 0
        await until(lambda: set(children_of(os.getpid())) - before == {lab.parent.pid})


LAUNCHER = """
import asyncio, os, pathlib, sys
from elastic_worker.processes.children import Children
from elastic_worker.processes.starter import Starter
from elastic_worker.processes.program import Program

async def main(folder):
    starter = Starter(children=Children(), preload=(), warm=True, count_steps=False, folder=folder, modules=["json"])
    await starter.open()
    for name in ("cold", "forked"):
        program = Program("script", sys.argv[2], (name,))
        process = await starter.start(program, environ=os.environ, directory=sys.argv[1], local_rank=0)
        while not starter.warm:
            await starter.changed.wait()
            starter.changed.clear()
    await process.wait()

asyncio.run(main(pathlib.Path(sys.argv[1], "scratch")))
"""
TELL = """
import os, sys, time
open("part" + sys.argv[1], "w").write(str(os.getpid()))
os.rename("part" + sys.argv[1], sys.argv[1])
time.sleep(300)
"""


async def test_nothing_outlives_a_launcher_that_is_killed(tmp_path):
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "train.py").write_text(TELL)
    command = [sys.executable, str(tmp_path / "launcher.py"), str(tmp_path), str(tmp_path / "train.py")]
    with subprocess.Popen(command) as launcher:  # noqa: ASYNC220  # it starts at once
        pids = [int((await appears(tmp_path / name)).read_text()) for name in ("cold", "forked")]
        pids += children_of(launcher.pid)
        assert len(set(pids)) == 3, "both processes and the warm parent"
        launcher.kill()
    await until(lambda: not any(map(is_running, pids)))


def test_a_process_that_is_stopped_right_after_its_start_ends(monkeypatch):
    """The parent ignores SIGTERM, and what is forked from it does so until it has handlers of its own."""
    launcher = os.getpid()

    class Control:
        def send(self, _message):
            os.kill(os.getpid(), signal.SIGTERM)  # as early as the launcher can

        def close(self):
            pass

    monkeypatch.setattr(zygote.ticket, "take", lambda _path: None)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        zygote._set_up(ParentConfig(launcher, 0, ()), Fork("ticket", 1), Control(), [])
        after_fork.reset_signals()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
