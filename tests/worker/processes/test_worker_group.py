"""The processes of a pod as a whole: what one generation holds is free when the next one's processes start."""

import asyncio
import logging
import os
import signal
from contextlib import asynccontextmanager

import pytest

from elastic_worker import contract, settings
from elastic_worker.coordinator.model import Generation, Pod
from elastic_worker.coordinator.part import part_of
from elastic_worker.launcher.trainees import Trainees
from elastic_worker.launcher.worker_group import WorkerGroup
from elastic_worker.processes import leftover
from elastic_worker.processes.program import SCRIPT, Program
from elastic_worker.protocol.codec import to_line
from tests.kit.proc import is_running
from tests.worker.processes.lab import a_lab, appears, until

HOLDS = """
import fcntl, os, sys, time
def put(name, text):
    open("part" + name, "w").write(text)
    os.rename("part" + name, name)
name = str(len([name for name in os.listdir() if name.startswith("found")]))
with open("card", "a") as card:
    try:
        fcntl.flock(card, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = "free"
    except BlockingIOError:
        found = "held"
put("found" + name, found)
if os.fork() == 0:
    os.setpgid(0, 0)
    card = open("card", "a")
    fcntl.flock(card, fcntl.LOCK_EX)
    put("held" + name, str(os.getpid()))
    time.sleep(300)
    os._exit(0)
while not os.path.exists("fail" + name):
    time.sleep(0.01)
sys.exit(1)
"""
"""Its child holds what a GPU would be. It is in the session, and not in the group that dies with the main process."""
POD = Pod("u0", "toy-master-0", "127.0.0.1", 1, is_master=True, index=0)
ENVIRON = {
    contract.ENV_JOB_UID: "job",
    contract.ENV_INCARNATION: "1",
    contract.ENV_POD_NAME: POD.name,
    contract.ENV_POD_UID: POD.uid,
    contract.ENV_LOCAL_ADDR: POD.address,
    contract.ENV_ROLE: contract.ROLE_MASTER,
    contract.ENV_INDEX: "0",
    contract.ENV_TOKEN: "token",
    contract.ENV_MASTER_ADDR: "127.0.0.1",
}


@asynccontextmanager
async def a_group(tmp_path):
    """Its lab, the group, and all that it has told."""
    told = []
    async with a_lab(tmp_path) as lab:
        tell = lambda *said: told.append(to_line(*said))  # noqa: E731
        library = Trainees(POD.uid, lab.folder / "socket", report=tell, size=lambda: 1)
        group = WorkerGroup(
            settings.read(ENVIRON),
            lab.starter,
            tell,
            remember_generation=lambda _: None,
            environ=os.environ,
            trainees=library,
        )
        group.program, group.directory = Program(SCRIPT, lab.script(HOLDS)), str(lab.folder)
        try:
            yield lab, group, told
        finally:
            await group.stop(seconds=0)


def generation(number):
    """What the launcher is told of it."""
    return part_of(Generation(number, epoch=1, pods=(POD,)), POD.uid).to_message()


async def test_the_next_generation_starts_when_the_last_one_has_no_process_left(tmp_path):
    async with a_group(tmp_path) as (lab, group, _):
        for number in range(4):
            await group.form(generation(number + 1))
            assert (await appears(lab.folder / f"found{number}")).read_text() == "free"
            await appears(lab.folder / f"held{number}")


async def test_a_process_that_failed_is_replaced_when_nothing_is_left_of_it(tmp_path):
    """By one that joins a group that trains: the others of this pod are not stopped for it."""
    async with a_group(tmp_path) as (lab, group, _):
        await group.form(generation(1))
        await appears(lab.folder / "held0")
        (lab.folder / "fail0").touch()
        await until(lambda: group.processes[0].exited.done())
        await group.start_missing()
        assert (await appears(lab.folder / "found1")).read_text() == "free"


async def test_what_sigkill_does_not_end_is_named_and_not_waited_for_without_end(tmp_path, monkeypatch, caplog):
    """The kernel ends all that a test can start: here nobody is killed."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(leftover, "KILLED_SECONDS", 0.2)
    async with a_group(tmp_path) as (lab, group, told):
        await group.form(generation(1))
        held = int((await appears(lab.folder / "held0")).read_text())
        with monkeypatch.context() as patched:
            patched.setattr(leftover, "_kill", lambda _pid: None)
            await group.form(generation(2))
        assert is_running(held)
        assert (await appears(lab.folder / "found1")).read_text() == "held"
        assert f"process {held} " in caplog.text
        assert told[-1]["started"] == 2
        os.kill(held, signal.SIGKILL)


async def test_a_number_that_another_process_has_by_now_is_left_alone(tmp_path):
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script("import time; time.sleep(300)")
        await until(lambda: os.getsid(process.pid) == process.pid)
        await leftover.end([process.pid])
        assert process.state() in "SR"
        assert await process.stop(10) < 0


@pytest.mark.parametrize("leaders", [[], [2**22]], ids=["none", "ended"])
async def test_nothing_is_waited_for_where_nothing_is_left(leaders):
    assert await asyncio.wait_for(leftover.end(leaders), 10) == []
