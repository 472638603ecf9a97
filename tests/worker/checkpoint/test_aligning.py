"""A pod's part in stopping a group right after a checkpoint, with real processes that write one."""

import asyncio

import pytest

from elastic_worker.launcher.aligning import Aligning
from elastic_worker.protocol.codec import to_line
from tests.kit.wait import within
from tests.worker.checkpoint.writing import running, wait_for, watching

WRITES = """
    from pathlib import Path
    folder = Path({folder!r})
    input()
    (folder / "model.bin").write_bytes(b"weights")
    input()
    file = (folder / "optimizer.bin").open("wb"); file.write(b"moments"); file.flush()
    input()
    file.close()
    (folder / "done").touch()
    while True:
        input()
"""


class Pod:
    """One process that writes two files and a marker; `told` is what the coordinator hears, in order."""

    def __init__(self, folder, script, watch):
        self.folder, self.script, self.watch, self.told = folder, script, watch, []
        self.aligning = Aligning(watch, lambda: [script], self.hear, lambda: None)

    def hear(self, *said):
        self.told.append(to_line(*said))

    async def gathers(self):
        """Its first file is written, and no other one is open."""
        await asyncio.to_thread(wait_for, lambda: self.watch.unfinished and not self.watch.behind)

    async def go_on(self, then):
        self.script.go_on()
        await asyncio.to_thread(wait_for, then)

    async def said(self, count):
        await asyncio.to_thread(wait_for, lambda: len(self.told) == count)


@pytest.fixture
async def pod(tmp_path):
    with running(WRITES.format(folder=str(tmp_path))) as script:
        async with watching(tmp_path, script, marker="done") as watch:
            script.go_on()  # a file that was there before the watch is none of its checkpoints
            pod = Pod(tmp_path, script, watch)
            yield pod
            pod.aligning.cancel()


async def test_who_has_half_a_checkpoint_does_not_stand_still_and_says_so_when_it_is_whole(pod):
    pod.aligning.begin(None, None)
    await pod.gathers()
    pod.aligning.stand_still(1, marked=False)
    await pod.said(1)
    assert pod.told == [{"still": False, "round": 1}]
    await pod.go_on(pod.watch.being_written)
    pod.script.go_on()
    await pod.said(2)
    assert pod.told[1] == {"aligned": True, "marked": True}
    assert pod.script.state() == "T"
    pod.aligning.stand_still(2, marked=False)
    await pod.said(3)
    assert pod.told[2] == {"still": True, "round": 2}


async def test_of_a_checkpoint_that_is_marked_only_the_open_file_is_waited_for(pod):
    await pod.gathers()
    await pod.go_on(pod.watch.being_written)
    pod.aligning.stand_still(1, marked=True)
    await asyncio.to_thread(wait_for, lambda: pod.script.thawed)
    assert pod.told == []
    pod.script.go_on()
    await pod.said(1)
    assert pod.told == [{"still": True, "round": 1}]
    assert pod.script.state() == "T"


async def test_between_two_files_when_time_is_over_a_checkpoint_is_waited_for(pod):
    await pod.gathers()
    pod.aligning.begin(0.0, None)
    await pod.go_on(pod.watch.being_written)
    assert pod.told == []
    pod.script.go_on()
    await pod.said(1)
    assert pod.told == [{"aligned": True, "marked": True}]


async def test_at_the_last_call_it_is_given_up(pod):
    await pod.gathers()
    pod.aligning.begin(0.0, 0.2)
    await pod.said(1)
    assert pod.told == [{"aligned": False, "marked": False}]
    assert pod.script.state() != "T"


async def test_processes_that_are_stopped_after_a_loss_write_their_file_to_its_end(pod):
    await pod.gathers()
    await pod.go_on(pod.watch.being_written)
    finishing = asyncio.ensure_future(pod.aligning.finish_writing(20.0))
    await asyncio.to_thread(wait_for, lambda: pod.script.thawed)
    pod.script.go_on()
    await within(20, finishing)
    assert not pod.watch.being_written()
    assert pod.script.state() == "T"
