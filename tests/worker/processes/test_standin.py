"""A user's own command that calls torchrun reaches the launcher."""

import asyncio
import os
import signal

import pytest

from elastic_worker.processes import standin
from tests.worker.processes.lab import a_lab

ENVIRON = {**os.environ, "PATH": f"{standin.FOLDER}{os.pathsep}{os.environ['PATH']}"}


async def launch(lab, on_run, script):
    """A bash script that finds the stand-in; the process and the server."""
    socket = lab.folder / "socket"
    serving = asyncio.ensure_future(standin.serve(socket, on_run))
    await asyncio.sleep(0)
    (lab.folder / "launch.sh").write_text(script)
    environ = {**ENVIRON, standin.ENV_SOCKET: str(socket)}
    pid = lab.children.spawn(["/bin/bash", str(lab.folder / "launch.sh")], environ=environ)
    return lab.children.adopt(pid), serving


@pytest.mark.parametrize(("code", "seen"), [(0, 0), (3, 3), (-9, 137)])
async def test_the_call_is_passed_on_and_the_code_comes_back(tmp_path, code, seen):
    calls = []

    async def on_run(request):
        calls.append(request)
        return code

    async with a_lab(tmp_path, warm=False) as lab:
        script = f"cd {tmp_path}\nexport LR='ü 1'\ntorchrun --nproc-per-node=2 train.py \"a b\"\nexit $?\n"
        process, serving = await launch(lab, on_run, script)
        assert await process.wait() == seen
        serving.cancel()
        await asyncio.wait({serving})
        assert not (lab.folder / "socket").exists()
    (call,) = calls
    assert call.argv == ["--nproc-per-node=2", "train.py", "a b"]
    assert (call.directory, call.environ["LR"]) == (str(tmp_path), "ü 1")


async def test_it_ends_with_1_when_the_launcher_goes_away(tmp_path, capfd):
    called, never = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def on_run(_request):
        called.set()
        return await never

    async with a_lab(tmp_path, warm=False) as lab:
        process, serving = await launch(lab, on_run, "torchrun train.py\n")
        await called.wait()
        serving.cancel()
        never.cancel()
        assert await process.wait() == 1
    assert "the launcher is gone" in capfd.readouterr().err


async def test_the_launcher_learns_that_the_caller_is_gone(tmp_path):
    called, cancelled = asyncio.Event(), asyncio.Event()

    async def on_run(_request):
        called.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    async with a_lab(tmp_path, warm=False) as lab:
        process, serving = await launch(lab, on_run, "exec torchrun train.py\n")
        await called.wait()
        assert await process.stop(10) == -signal.SIGTERM
        await cancelled.wait()
        serving.cancel()


async def test_outside_a_pod_it_says_what_it_needs(tmp_path, capfd):
    async with a_lab(tmp_path, warm=False) as lab:
        process = lab.children.adopt(lab.children.spawn([str(standin.FOLDER / "torchrun")], environ=os.environ))
        assert await process.wait() == 1
    assert "ELASTIC_SOCKET is not set" in capfd.readouterr().err
