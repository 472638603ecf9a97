"""A user's own command that calls torchrun reaches the launcher."""

import asyncio
import os
import signal
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from elastic_worker.processes import standin, standin_client, torchrun
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


async def test_the_command_ends_with_1_when_the_launcher_goes_away(tmp_path, capfd):
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
    assert "the launcher has ended" in capfd.readouterr().err


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


AGENT = """\
import sys
from types import SimpleNamespace

import elastic_pytorch_torchrun


def run_script_path():
    pass


def launch_agent(config, entrypoint, args):
    return elastic_pytorch_torchrun.hand_over(None)


launch_agent(SimpleNamespace(nproc_per_node=2), {entrypoint}, {args})
"""
"""What torch's agent is called with by torchrun and its kin, in a python that has no torch."""


def plugin_folder(folder):
    folder.mkdir()
    standin.install_plugin(folder)
    return folder


@pytest.mark.parametrize(
    ("entrypoint", "args", "argv"),
    [
        ("sys.executable", ["-u", "train.py", "--lr", 1], ["--", "train.py", "--lr", "1"]),
        ("sys.executable", ["-u", "-m", "train", "-m"], ["--module", "train", "-m"]),
        ("run_script_path", ["/a/train.py", "x"], ["--run-path", "/a/train.py", "x"]),
        ("'bash'", ["-c", "ls"], ["--no-python", "bash", "-c", "ls"]),
        (
            "sys.executable",
            ["-u", "new.py", "--local-rank=${local_rank}"],
            ["--", "new.py", "--local-rank=${local_rank}"],
        ),
        (
            "sys.executable",
            ["-u", "old.py", "--local-rank=${local_rank}"],
            ["--", "old.py", "--local_rank=${local_rank}"],
        ),
        (
            "sys.executable",
            ["-u", "no.py", "--local-rank=${local_rank}"],
            ["--", "no.py", "--local-rank=${local_rank}"],
        ),
    ],
)
async def test_any_launcher_that_starts_torchs_agent_reaches_the_launcher_instead(tmp_path, entrypoint, args, argv):
    calls = []

    async def on_run(request):
        calls.append(request)
        return 7

    (tmp_path / "old.py").write_text("parser.add_argument('--local_rank')")
    (tmp_path / "new.py").write_text("parser.add_argument('--local_rank', '--local-rank')")
    (tmp_path / "agent.py").write_text(AGENT.format(entrypoint=entrypoint, args=args))
    way = plugin_folder(tmp_path / "plugin")
    async with a_lab(tmp_path, warm=False) as lab:
        serving = asyncio.ensure_future(standin.serve(lab.folder / "socket", on_run))
        await asyncio.sleep(0)
        environ = {**ENVIRON, standin.ENV_SOCKET: str(lab.folder / "socket"), "PYTHONPATH": str(way)}
        script = f"cd {tmp_path} && exec {sys.executable} agent.py"
        process = lab.children.adopt(lab.children.spawn(["/bin/sh", "-c", script], environ=environ))
        assert await process.wait() == 7
        serving.cancel()
        await asyncio.wait({serving})
    (call,) = calls
    assert call.argv == ["--nproc-per-node=2", *argv]
    assert standin.is_ours(call.python)
    assert call.python.version == [*sys.version_info[:2]]
    assert standin.without_plugin(way, call.environ).get("PYTHONPATH") is None


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"min_nodes": 1, "max_nodes": 1, "rdzv_endpoint": "127.0.0.1:29500", "max_restarts": 0}, []),
        ({"min_nodes": 1, "max_nodes": 1, "rdzv_endpoint": "localhost:0", "max_restarts": 0}, []),
        ({"min_nodes": 1, "max_nodes": 1, "rdzv_endpoint": "", "max_restarts": 0}, []),
        (
            {"min_nodes": 1, "max_nodes": 3, "rdzv_endpoint": "192.0.0.1:1234", "max_restarts": 2},
            ["--nnodes=1:3", "--rdzv-endpoint=192.0.0.1:1234", "--max-restarts=2"],
        ),
    ],
)
def test_what_else_the_line_says_goes_along_for_the_launcher_to_name(config, told):
    agent = {"config": SimpleNamespace(nproc_per_node=4, **config), "entrypoint": "python", "args": ["-u", "train.py"]}
    argv = standin_client._argv_of(agent)
    assert argv == [*told, "--nproc-per-node=4", "--", "train.py"]
    assert [flag for flag, _ in torchrun.parse(argv).ignored] == sorted(told)


def test_a_function_cannot_be_handed_over(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT.format(entrypoint="lambda: 1", args=[]))
    environ = {**ENVIRON, "PYTHONPATH": str(plugin_folder(tmp_path / "plugin"))}
    done = subprocess.run(
        [sys.executable, tmp_path / "agent.py"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].endswith("a function cannot be run in Elastic mode; call torchrun SCRIPT")


def test_the_plugin_is_one_for_torchruns_rendezvous(tmp_path):
    (found,) = metadata.distributions(path=[str(plugin_folder(tmp_path / "plugin"))])
    (plugin,) = found.entry_points
    assert (plugin.group, plugin.name, plugin.value) == (
        "torchrun.handlers",
        "elastic-pytorch",
        "elastic_pytorch_torchrun:handler",
    )


def test_other_paths_stay_where_the_plugin_is_taken_away(tmp_path):
    assert standin.without_plugin(tmp_path, {"PYTHONPATH": f"{tmp_path}:/mine", "A": "b"}) == {
        "PYTHONPATH": "/mine",
        "A": "b",
    }
    assert standin.without_plugin(tmp_path, {"A": "b"}) == {"A": "b"}
