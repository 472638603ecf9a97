"""Real processes that save and are killed, stopped or end at any moment; forked by one that has imported torch."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

import elastic_worker
from elastic_worker.library.checkpoints import Checkpoints
from tests.kit.wait import until

LIMIT_SECONDS = 60
KILLS = 8

FORKS = """
    import atexit, os, signal, sys, threading
    import torch
    from elastic_worker.library.checkpoint_attempt import Attempt
    from elastic_worker.library.checkpoints import Checkpoints

    def save_on_and_on(checkpoints, epoch, step):
        while True:
            state = {"w": torch.full((300_000,), float(step)), "moments": {0: (torch.full((300_000,), float(step)),)}}
            checkpoints.save(state, step=step, order=(epoch, 0), wait=True)
            print(step, flush=True)
            step += 1

    def save_once(checkpoints, epoch, step):
        complete = Attempt.complete
        def stop_first(*arguments):
            signal.raise_signal(signal.SIGSTOP)
            return complete(*arguments)
        Attempt.complete = stop_first
        print("saving", flush=True)
        checkpoints.save({"w": torch.full((300_000,), float(step))}, step=step, order=(epoch, 0))
        checkpoints._join()
        print(checkpoints.problem or "saved", flush=True)

    def save_and_end(checkpoints, epoch, step):
        begin, ending = Attempt.begin, threading.Event()
        def begin_at_the_end(*arguments):
            ending.wait()
            return begin(*arguments)
        Attempt.begin = begin_at_the_end
        atexit.register(ending.set)  # called before what Checkpoints has registered
        checkpoints.save({"w": torch.full((20_000_000,), float(step))}, step=step, order=(epoch, 0))
        print("unfinished" if checkpoints.last_step is None else "finished", flush=True)

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        name, folder, epoch, step = line.split()
        if name == "mark":
            print(name, flush=True)
            continue
        if not os.fork():
            print(os.getpid(), flush=True)  # here, so that it comes before all else that is printed
            globals()[name](Checkpoints(folder), int(epoch), int(step))
            break
"""


class Forks:
    """Asks the process for another child, and reads what the child prints."""

    def __init__(self):
        tree, package = (str(Path(module.__file__).parents[1]) for module in (torch, elastic_worker))
        environ = {**os.environ, "PYTHONPATH": f"{tree}:{package}", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(FORKS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        self._children = []

    def start(self, what, folder, *, epoch, step):
        """Its pid. No other child may be printing."""
        self._process.stdin.write(f"{what} {folder} {epoch} {step}\n")
        self._process.stdin.flush()
        self._children.append(int(self.line()))
        return self._children[-1]

    def line(self):
        """The next that is printed."""
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        return line.strip()

    def rest(self):
        """The lines of a child that has ended."""
        self._process.stdin.write("mark - 0 0\n")
        self._process.stdin.flush()
        return list(iter(self.line, "mark"))

    def close(self):
        for child in self._children:
            kill(child, signal.SIGKILL)
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def forks():
    forks = Forks()
    yield forks
    forks.close()


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_until(what, look):
    until(what, look, seconds=LIMIT_SECONDS, poll_seconds=0.001)


def has_ended(pid):
    return not Path(f"/proc/{pid}").exists()


def is_saving(folder):
    return any(path.name.startswith("step-") and path.name.endswith(".tmp") for path in folder.iterdir())


def stands_in_a_save(pid, folder):
    """Stopped, at any moment; it goes on unless that is in the middle of a save."""
    kill(pid, signal.SIGSTOP)
    wait_until("its stop", lambda: " T " in Path(f"/proc/{pid}/stat").read_text())
    if is_saving(folder):
        return True
    kill(pid, signal.SIGCONT)
    return False


@pytest.mark.parametrize("in_a_save", [True, False])
def test_whoever_is_killed_while_saving_leaves_a_complete_checkpoint(forks, tmp_path, in_a_save):
    folder, step = tmp_path / "checkpoints", 0
    for epoch in range(1, KILLS + 1):
        pid = forks.start("save_on_and_on", folder, epoch=epoch, step=step)
        told = int(forks.line())
        time.sleep(random.uniform(0, 0.08))
        if in_a_save:
            wait_until("the middle of a save", lambda pid=pid: stands_in_a_save(pid, folder))
        kill(pid, signal.SIGKILL)
        wait_until("its end", lambda pid=pid: has_ended(pid))
        told = max([told, *map(int, forks.rest())])
        assert is_saving(folder) or not in_a_save

        checkpoints = Checkpoints(folder)
        found = checkpoints.newest()
        assert found.step in (told, told + 1)
        loaded = checkpoints.load(found)
        assert (loaded["w"] == found.step).all()
        assert (loaded["moments"][0][0] == found.step).all()
        step = found.step + 1


def test_an_old_master_that_comes_back_while_saving_is_refused(forks, tmp_path):
    Checkpoints(tmp_path).save({"w": 1}, step=1, order=(2, 0), wait=True)
    unfinished = tmp_path / "step-9.2-0.tmp"
    pid = forks.start("save_once", tmp_path, epoch=2, step=9)
    assert forks.line() == "saving"
    wait_until("its stop", lambda: " T " in Path(f"/proc/{pid}/stat").read_text())
    assert unfinished.exists()
    assert not (tmp_path / "step-9").exists()

    Checkpoints(tmp_path).save({"w": 2}, step=2, order=(3, 0), wait=True)
    kill(pid, signal.SIGCONT)
    assert forks.line() == (
        "step 9 was not saved: a newer master (epoch 3) has written here; this one (epoch 2) is cut off"
    )
    wait_until("its end", lambda: has_ended(pid))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-1", "step-2"]


def test_a_save_under_way_at_the_end_of_the_process_is_completed(forks, tmp_path):
    pid = forks.start("save_and_end", tmp_path, epoch=1, step=5)
    assert forks.line() == "unfinished"
    wait_until("its end", lambda: has_ended(pid))
    checkpoints = Checkpoints(tmp_path)
    assert (checkpoints.load(checkpoints.newest())["w"] == 5).all()
