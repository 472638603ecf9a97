"""A process ends, and forks, when its threads have come to rest, and does not wait for one that never does."""

import sys

import pytest

from elastic_worker.processes import quiesce
from tests.worker.processes.lab import a_lab

BUSY = """
import os, sys, threading, time
quiesce = sys.modules["elastic_worker.processes.quiesce"]
quiesce.FINISH_SECONDS = quiesce.MOST_FINISH_SECONDS = quiesce.FORK_SECONDS = float(sys.argv[2])
def work():
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        pass
    open("rested", "w").close()
threading.Thread(target=work, daemon=True).start()
"""
FORK = (
    BUSY
    + """
rested = os.path.exists("rested")
if pid := os.fork():
    os.waitpid(pid, 0)
else:
    open("forked-later" if os.path.exists("rested") > rested else "forked", "w").close()
    os._exit(0)
"""
)
warm_and_cold = pytest.mark.parametrize("warm", [True, False], ids=["forked", "cold"])


@warm_and_cold
@pytest.mark.parametrize(("seconds", "most_seconds", "rested"), [(1.0, 30.0, True), (60.0, 0.2, False)])
async def test_the_end_waits_a_moment_for_threads_that_work(tmp_path, warm, seconds, most_seconds, rested):
    async with a_lab(tmp_path, warm=warm) as lab:
        await lab.until_warm()
        process = await lab.start_script(BUSY, str(seconds), str(most_seconds))
        assert await process.wait() == 0
        assert (lab.folder / "rested").exists() == rested


@warm_and_cold
@pytest.mark.parametrize(("seconds", "most_seconds", "later"), [(1.0, 30.0, True), (60.0, 0.2, False)])
@pytest.mark.skipif(sys.version_info >= quiesce.FIXED_IN, reason="forks need not wait")
async def test_a_fork_waits_a_moment_for_threads_that_work(tmp_path, warm, seconds, most_seconds, later):
    async with a_lab(tmp_path, warm=warm) as lab:
        await lab.until_warm()
        process = await lab.start_script(FORK, str(seconds), str(most_seconds))
        assert await process.wait() == 0
        assert (lab.folder / "forked-later").exists() == later
        assert (lab.folder / "forked").exists() != later


STARVED = """
import os, threading, time
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
me = os.getpid()
for _ in range(6):
    if not os.fork():
        while os.getppid() == me:
            sum(range(10_000))
        os._exit(0)
def work():
    while time.thread_time() < 0.5:
        pass
    open("rested", "w").close()
threading.Thread(target=work, daemon=True).start()
"""


async def test_on_a_busy_machine_the_moment_is_one_of_work_and_not_of_the_clock(tmp_path):
    async with a_lab(tmp_path, warm=False) as lab:
        process = await lab.start_script(STARVED)
        assert await process.wait() == 0
        assert (lab.folder / "rested").exists()
