"""Real processes that save and are killed, or end, at any moment."""

import os
import random
import signal
import time

import pytest

from elastic_worker.library.checkpoints import CheckpointError, Checkpoints
from tests.kit.proc import stat_of
from tests.kit.wait import until
from tests.worker.library import processes

LIMIT_SECONDS = 60
KILLS = 8

SAVES = """
    import itertools
    from elastic_worker.library.checkpoints import Checkpoints
    checkpoints = Checkpoints({folder!r})
    for step in itertools.count({step}):
        state = {{"w": torch.full((300_000,), float(step)), "moments": {{0: (torch.full((300_000,), float(step)),)}}}}
        checkpoints.save(state, step=step, order=({epoch}, 0), wait=True)
        tell(step=step)
"""

DIES_WHEN_IT_REPLACES_ONE = """
    from pathlib import Path
    from elastic_worker.library.checkpoints import Checkpoints
    checkpoints, rename = Checkpoints({folder!r}), Path.rename
    def rename_or_die(path, target):
        if target.name == "step-7" and target.parent.joinpath("latest").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(path, target)
    Path.rename = rename_or_die
    for epoch in (1, 2):
        checkpoints.save({{"w": epoch}}, step=7, order=(epoch, 0), wait=True)
"""

SAVES_AND_ENDS = """
    import atexit
    from elastic_worker.library.checkpoint_save import SaveAttempt
    from elastic_worker.library.checkpoints import Checkpoints
    begin, ending, checkpoints = SaveAttempt.begin, threading.Event(), Checkpoints({folder!r})
    def begin_at_the_end(*arguments):
        ending.wait()
        return begin(*arguments)
    SaveAttempt.begin = begin_at_the_end
    atexit.register(ending.set)  # called before what Checkpoints has registered
    checkpoints.save({{"w": torch.full((20_000_000,), 5.0)}}, step=5, order=(1, 0))
    tell(saved=checkpoints.last_step)
"""


def wait_until(what, look):
    until(what, look, seconds=LIMIT_SECONDS, poll_seconds=0.001)


def is_saving(folder):
    return any(path.name.startswith("step-") and path.name.endswith(".tmp") for path in folder.iterdir())


def stands_in_a_save(pid, folder):
    """Stopped, at any moment; it goes on unless that is in the middle of a save."""
    os.kill(pid, signal.SIGSTOP)
    wait_until("its stop", lambda: stat_of(pid)[0] == "T")
    if is_saving(folder):
        return True
    os.kill(pid, signal.SIGCONT)
    return False


@pytest.mark.parametrize("in_a_save", [True, False])
def test_kill_while_saving_leaves_a_complete_checkpoint(tmp_path, in_a_save):
    folder, step = tmp_path / "checkpoints", 0
    for epoch in range(1, KILLS + 1):
        script = SAVES.format(folder=str(folder), step=step, epoch=epoch)
        process = processes.Running(script, 0, 0, cold=False)
        wait_until("its first checkpoint", lambda process=process: processes.told(process.said()))
        time.sleep(random.uniform(0, 0.08))
        if in_a_save:
            wait_until("the middle of a save", lambda process=process: stands_in_a_save(process.pid, folder))
        process.kill()
        told = processes.told(process.end(LIMIT_SECONDS)[1])["step"]
        assert is_saving(folder) or not in_a_save

        checkpoints = Checkpoints(folder)
        found = checkpoints.newest()
        assert found.step in (told, told + 1)
        loaded = checkpoints.load(found)
        assert (loaded["w"] == found.step).all()
        assert (loaded["moments"][0][0] == found.step).all()
        step = found.step + 1


def test_whoever_is_killed_while_it_replaces_the_only_checkpoint_leaves_that(tmp_path):
    processes.Running(DIES_WHEN_IT_REPLACES_ONE.format(folder=str(tmp_path)), 0, 0, cold=False).end(LIMIT_SECONDS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "old-7.2-0.tmp", "step-7.2-0.tmp"]
    checkpoints = Checkpoints(tmp_path, keep=1)
    found = checkpoints.newest()
    assert (found.step, found.order, checkpoints.load(found)) == (7, (1, 0), {"w": 1})
    checkpoints.save({"w": 3}, step=8, order=(3, 0), wait=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-8"]
    (tmp_path / "step-8").rename(tmp_path / "old-8.3-0.tmp")
    (tmp_path / "old-8.3-0.tmp" / ".metadata").unlink()  # as one whose removal has begun
    with pytest.raises(CheckpointError, match="the file `latest` names one that does not exist any more"):
        checkpoints.newest()


def test_a_save_under_way_at_the_end_of_the_process_is_completed(tmp_path):
    assert processes.run(SAVES_AND_ENDS.format(folder=str(tmp_path)), 1) == [{"saved": None}]
    checkpoints = Checkpoints(tmp_path)
    assert (checkpoints.load(checkpoints.newest())["w"] == 5).all()
