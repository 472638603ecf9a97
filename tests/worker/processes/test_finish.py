"""A process ends when its threads have come to rest, and does not wait for one that never does."""

import pytest

from tests.worker.processes.lab import a_lab

BUSY = """
import sys, threading, time
def work():
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        pass
    open("rested", "w").close()
threading.Thread(target=work, daemon=True).start()
"""


@pytest.mark.parametrize("warm", [True, False], ids=["forked", "cold"])
@pytest.mark.parametrize(("seconds", "rested"), [(0.4, True), (60.0, False)])
async def test_the_end_waits_a_moment_for_threads_that_work(tmp_path, warm, seconds, rested):
    async with a_lab(tmp_path, warm=warm) as lab:
        await lab.until_warm()
        process = await lab.start_script(BUSY, str(seconds))
        assert await process.wait() == 0
        assert (lab.folder / "rested").exists() == rested
