"""Child processes are reaped, signalled as groups, and leave nothing behind."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elastic_worker.processes.program import COMMAND, SCRIPT, Program
from tests.kit.proc import is_running
from tests.worker.processes.lab import a_lab, appears, until

READY = "import os, signal, sys, time\n"
SIT = "open('ready', 'w').close()\nwhile True:\n    time.sleep(0.01)\n"


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
async def test_a_process_that_heeds_sigterm_is_not_killed(tmp_path, frozen):
    heed = READY + "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n" + SIT
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script(heed)
        await appears(lab.folder / "ready")
        if frozen:
            process.freeze()
            await until(lambda: process.state() == "T")
        assert await process.stop(30) == 9
        process.signal(signal.SIGKILL)
        assert (process.state(), process.cpu_seconds()) == ("", 0.0)


@pytest.mark.parametrize(("kind", "asked"), [(SCRIPT, False), (COMMAND, True)])
async def test_only_of_a_command_the_children_are_asked_to_end(tmp_path, kind, asked):
    text = READY + (
        "pid = os.fork()\n"
        "def heed(*_):\n    open('child', 'w').close() if pid == 0 else time.sleep(1) or os._exit(3)\n"
        "signal.signal(signal.SIGTERM, heed)\n"
        "open('ready' if pid else 'child ready', 'w').close()\nwhile True:\n    time.sleep(0.01)\n"
    )
    async with a_lab(tmp_path) as lab:
        script = lab.script(text)
        program = Program(SCRIPT, script) if kind == SCRIPT else Program(COMMAND, sys.executable, (script,))
        process = await lab.start(program)
        await asyncio.gather(appears(lab.folder / "ready"), appears(lab.folder / "child ready"))
        assert await process.stop(30) == 3
        assert (lab.folder / "child").exists() == asked


async def test_a_process_that_ignores_sigterm_is_killed(tmp_path):
    ignore = READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SIT
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script(ignore)
        await appears(lab.folder / "ready")
        assert await process.stop(0.2) == -signal.SIGKILL


async def test_a_thawed_process_goes_on(tmp_path):
    text = READY + "open('ready', 'w').close()\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n"
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script(text)
        await appears(lab.folder / "ready")
        process.freeze()
        await until(lambda: process.state() == "T")
        (lab.folder / "go").touch()
        process.thaw()
        assert await process.wait() == 0


async def test_cpu_time_is_that_of_the_process(tmp_path):
    text = "import time\nwhile time.process_time() < 0.3:\n    pass\nopen('ready', 'w').close()\ntime.sleep(60)\n"
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script(text)
        await appears(lab.folder / "ready")
        assert 0.2 < process.cpu_seconds() < 10
        await process.stop(0)


@pytest.mark.parametrize("ending", ["os._exit(0)", "time.sleep(60)"], ids=["ends", "is stopped"])
async def test_nothing_of_a_group_outlives_its_leader(tmp_path, ending):
    text = (
        READY
        + "pid = os.fork()\nif pid == 0:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(300)\n"
        + f"open('part', 'w').write(str(pid))\nos.rename('part', 'ready')\n{ending}\n"
    )
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script(text)
        worker = int((await appears(lab.folder / "ready")).read_text())
        await process.stop(10)
        await until(lambda: not is_running(worker))


async def test_orphans_are_reaped(tmp_path):
    # The leader's end kills its group, and the child is none of it only after setsid.
    orphan = (
        "leader = os.getpid()\nif os.fork() == 0:\n    os.setsid()\n"
        "    open('part', 'w').write(str(os.getpid()))\n    os.rename('part', 'ready')\n"
        "    while os.getppid() == leader:\n        time.sleep(0.01)\n"
        "while not os.path.exists('ready'):\n    time.sleep(0.01)\n"
    )
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script(READY + orphan)
        assert await process.wait() == 0
        pid = int((await appears(lab.folder / "ready")).read_text())
        await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_the_code_of_a_child_that_ended_before_it_was_adopted_is_not_lost(tmp_path):
    async with a_lab(tmp_path) as lab:
        with lab.children.expecting():
            pid = lab.children.spawn([sys.executable, "-S", "-c", "raise SystemExit(4)"], environ=os.environ)
            await until(lambda: not Path(f"/proc/{pid}").exists())
            assert await lab.children.adopt(pid).wait() == 4


async def test_a_waiter_that_is_cancelled_does_not_harm_the_others(tmp_path):
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script("import time; time.sleep(60)")
        waiter = asyncio.ensure_future(process.wait())
        await asyncio.sleep(0)
        waiter.cancel()
        assert await process.stop(10) == -signal.SIGTERM


@contextmanager
def errors_in(path: Path) -> Iterator[Path]:
    """The file that standard error goes to in this block, of this process and of those it starts.

    `capfd.readouterr()` reads and then truncates the file that it shares with the children: what one of them writes in
    between is lost.
    """
    before = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield path
    finally:
        os.dup2(before, 2)
        os.close(before)


@pytest.mark.parametrize("warm", [True, False], ids=["forked", "cold"])
async def test_stacks_of_all_threads_are_printed_on_demand(tmp_path, warm):
    text = (
        READY + "import threading\ndef in_the_thread():\n    time.sleep(60)\n"
        "threading.Thread(target=in_the_thread, daemon=True).start()\ndef in_the_loop():\n"
        "    open('ready', 'w').close()\n    time.sleep(60)\nin_the_loop()\n"
    )
    with errors_in(tmp_path / "errors") as errors:
        async with a_lab(tmp_path, warm=warm) as lab:
            await lab.until_warm()
            process = await lab.start_script(text)
            await appears(lab.folder / "ready")
            process.dump_stacks()
            await until(lambda: all(name in errors.read_text() for name in ("in_the_loop", "in_the_thread")))
            assert await process.stop(10) == -signal.SIGTERM


async def test_stacks_are_not_asked_of_a_program_that_would_die_of_the_question(tmp_path):
    async with a_lab(tmp_path) as lab:
        pid = lab.children.spawn(["/bin/sleep", "60"], environ=os.environ)
        process = lab.children.adopt(pid)
        process.dump_stacks()
        assert await process.stop(10) == -signal.SIGTERM
