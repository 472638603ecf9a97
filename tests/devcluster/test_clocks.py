"""The clock of a running process is shifted and set right again; other clocks of it, and other processes, are not."""

import platform
import subprocess
import sys
import time

import pytest

from devcluster import clocks

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the code that is written is for x86_64")
ASK = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
HOUR, NEAR = 3600, 60


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        yield it
        it.stdin.close()


def seconds_ahead(process):
    """Of this process: its wall clock and its monotonic clock."""
    process.stdin.write("?\n")
    process.stdin.flush()
    wall, monotonic = map(float, process.stdout.readline().split())
    return wall - time.time(), monotonic - time.monotonic()


@pytest.mark.processes
@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_wall_clock_is_shifted_and_set_right_while_the_process_runs(process, seconds):
    assert abs(seconds_ahead(process)[0]) < NEAR
    clocks.shift([process.pid], seconds)
    wall, monotonic = seconds_ahead(process)
    assert abs(wall - seconds) < NEAR
    assert abs(monotonic) < NEAR
    clocks.shift([process.pid], 0)
    assert abs(seconds_ahead(process)[0]) < NEAR


def test_a_process_that_is_gone_is_no_error():
    gone = subprocess.Popen(["true"])
    gone.wait()
    clocks.shift([gone.pid], HOUR)
