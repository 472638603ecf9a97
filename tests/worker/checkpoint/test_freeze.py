"""Stopping training processes right after a checkpoint, with real processes and files."""

import asyncio
import threading
import time

import pytest

from elastic_worker.checkpoint.finder import Finder
from elastic_worker.checkpoint.freeze import freeze_between_writes, stop_at_checkpoint
from elastic_worker.checkpoint.integrity import is_whole
from tests.kit.wait import within
from tests.worker.checkpoint.writing import Script, running, wait_for, watching, zip_bytes

SAVES_FOREVER = """
    import time
    from tests.worker.checkpoint.writing import zip_bytes
    content = zip_bytes(200_000)
    while True:
        with open({path!r}, "wb") as file:
            for start in range(0, len(content), 20_000):
                file.write(content[start:start + 20_000]); file.flush()
                time.sleep(0.01)
        time.sleep(0.1)
"""
IDLES = "import time\ntime.sleep(600)"


async def test_the_processes_stand_still_right_after_a_whole_checkpoint(tmp_path):
    path = tmp_path / "ckpt.pt"
    with running(SAVES_FOREVER.format(path=str(path))) as script, running(IDLES) as other:
        async with watching(path, script, other) as watch:
            assert await stop_at_checkpoint(watch, [script, other], seconds=20)
            assert (script.state(), other.state()) == ("T", "T")
            before = path.stat().st_mtime_ns
            await asyncio.sleep(0.3)
            assert path.stat().st_mtime_ns == before
            assert is_whole(path)
            assert watch.completed >= 1


async def test_processes_frozen_in_the_middle_of_the_next_checkpoint_are_let_go_on(tmp_path):
    path = tmp_path / "ckpt.bin"
    code = f"""
        input()
        open({str(path)!r}, "wb").write(b"first")
        input()
        file = open({str(path)!r}, "ab"); open({str(tmp_path / "begun")!r}, "w")
        input()
        file.write(b"second"); file.close()
        while True:
            input()
    """

    class Late(Script):
        """Gets its next checkpoint begun before it is frozen for the first time."""

        def freeze(self):
            if not self.frozen:
                self.go_on()
                wait_for((tmp_path / "begun").exists)
            super().freeze()

        def thaw(self):
            super().thaw()
            self.go_on()

    with running(code, kind=Late) as script:
        async with watching(path, script) as watch:
            held = asyncio.ensure_future(stop_at_checkpoint(watch, [script], seconds=20))
            await asyncio.sleep(0)
            script.go_on()
            assert await held
            assert script.frozen == 2
            assert script.state() == "T"
            assert not watch.being_written()


async def test_without_a_checkpoint_in_time_they_run_on(tmp_path):
    with running(IDLES) as script:
        async with watching(tmp_path / "ckpt.pt", script) as watch:
            assert not await stop_at_checkpoint(watch, [script], seconds=0.2)
            assert (script.state() == "T", script.frozen) == (False, 0)


async def test_a_checkpoint_being_written_when_time_is_over_is_waited_for(tmp_path):
    path = tmp_path / "ckpt.pt"
    code = f"""
        from tests.worker.checkpoint.writing import zip_bytes
        content = zip_bytes()
        file = open({str(path)!r}, "wb"); file.write(content[:100]); file.flush()
        input()
        file.write(content[100:]); file.close()
        while True:
            input()
    """
    with running(code) as script:
        async with watching(path, script) as watch:
            await asyncio.to_thread(wait_for, lambda: path.exists() and path.stat().st_size == 100)
            held = asyncio.ensure_future(stop_at_checkpoint(watch, [script], seconds=0.05))
            await asyncio.sleep(0.5)
            assert not held.done()
            script.go_on()
            assert await within(20, held)
            assert script.state() == "T"


async def test_at_the_last_call_it_gives_up_even_while_one_is_being_written(tmp_path):
    path = tmp_path / "ckpt.pt"
    with running(f"file = open({str(path)!r}, 'wb'); file.write(b'x'); file.flush(); input()") as script:
        async with watching(path, script) as watch:
            await asyncio.to_thread(wait_for, path.exists)
            now = time.monotonic()
            assert not await stop_at_checkpoint(watch, [script], seconds=0.05, last_call=now + 0.5)
            assert script.state() != "T"


async def test_cancelled_it_leaves_nobody_frozen(tmp_path):
    path, looking, cancelled = tmp_path / "ckpt.pt", threading.Event(), threading.Event()

    def is_slow():
        looking.set()
        return cancelled.wait(20)

    with running(SAVES_FOREVER.format(path=str(path))) as script:
        async with watching(path, script) as watch:
            watch.verify = is_slow
            held = asyncio.ensure_future(stop_at_checkpoint(watch, [script], seconds=20))
            assert await asyncio.to_thread(looking.wait, 20)
            assert script.state() == "T"
            held.cancel()
            with pytest.raises(asyncio.CancelledError):
                await held
            cancelled.set()
            await asyncio.to_thread(wait_for, lambda: script.state() != "T")


async def test_a_process_that_is_gone_does_not_matter(tmp_path):
    path = tmp_path / "ckpt.bin"
    with running("") as gone, running(IDLES) as script:
        async with watching(path, script) as watch:
            await asyncio.to_thread(wait_for, lambda: gone.state() == "Z")
            held = asyncio.ensure_future(stop_at_checkpoint(watch, [script, gone], seconds=20))
            await asyncio.sleep(0.1)
            path.write_bytes(zip_bytes())
            assert await held
            assert script.state() == "T"


async def test_processes_do_not_stand_still_for_long_while_a_mount_hangs(tmp_path, monkeypatch):
    path, find, heals = tmp_path / "ckpt.bin", Finder.find, threading.Event()

    def find_late(self, notices):
        heals.wait(20)
        return find(self, notices)

    monkeypatch.setattr("elastic_worker.checkpoint.freeze.LONGEST_SECONDS", 0.3)
    monkeypatch.setattr(Finder, "find", find_late)
    with running(IDLES) as script:
        async with watching(path, script) as watch:
            held = asyncio.ensure_future(stop_at_checkpoint(watch, [script], seconds=20))
            await asyncio.sleep(0.1)
            path.write_bytes(b"weights")
            await asyncio.to_thread(wait_for, lambda: script.thawed == 1)
            await asyncio.to_thread(wait_for, lambda: script.state() != "T")
            assert script.frozen == 1
            assert not held.done()
            held.cancel()
            heals.set()


async def test_processes_are_frozen_at_once_though_an_earlier_check_still_reads_from_a_slow_mount(
    tmp_path, monkeypatch
):
    path = tmp_path / "ckpt.bin"
    with running(IDLES) as script:
        async with watching(path, script) as watch:
            held, checks, heals = await _stopping_while_a_check_hangs(watch, script, monkeypatch)
            path.write_bytes(b"weights")
            try:
                await asyncio.to_thread(wait_for, lambda: script.frozen == 1)
                assert len(checks) == 1
            finally:
                heals.set()
            assert await held
            assert (script.state(), script.thawed) == ("T", 0)


async def test_a_checkpoint_counts_that_is_found_before_the_result_of_the_check_before_it_was_heard(
    tmp_path, monkeypatch
):
    path = tmp_path / "ckpt.bin"
    with running(IDLES) as script:
        async with watching(path, script) as watch:
            held, checks, heals = await _stopping_while_a_check_hangs(watch, script, monkeypatch)
            in_a_thread = asyncio.to_thread

            async def in_no_time(function, *args):
                if getattr(function, "__func__", None) is Finder.find:
                    return function(*args)
                return await in_a_thread(function, *args)

            monkeypatch.setattr(asyncio, "to_thread", in_no_time)
            path.write_bytes(b"weights")
            try:
                await in_a_thread(wait_for, lambda: script.frozen == 1)
            finally:
                heals.set()
            assert await held
            assert (script.state(), script.thawed, len(checks)) == ("T", 0, 2)


async def _stopping_while_a_check_hangs(watch, script, monkeypatch):
    """The stop at the next checkpoint, the checks that began, and the event that lets the first one end."""
    find, checks, heals = Finder.find, [], threading.Event()

    def find_slowly(self, notices):
        checks.append(notices)
        heals.wait(20)
        return find(self, notices)

    monkeypatch.setattr(Finder, "find", find_slowly)
    held = asyncio.ensure_future(stop_at_checkpoint(watch, [script], seconds=20))
    await asyncio.sleep(0)
    (watch.path.parent / "another").touch()
    await asyncio.to_thread(wait_for, lambda: len(checks) == 1)
    return held, checks, heals


async def test_an_error_while_looking_leaves_nobody_frozen_and_is_told(tmp_path, monkeypatch):
    path = tmp_path / "ckpt.bin"
    monkeypatch.setattr(Finder, "find", lambda _self, _notices: 1 / 0)
    with running(IDLES) as script:
        async with watching(path, script) as watch:
            held = asyncio.ensure_future(stop_at_checkpoint(watch, [script], seconds=20))
            await asyncio.sleep(0.1)
            path.write_bytes(b"weights")
            await asyncio.to_thread(wait_for, lambda: "ZeroDivisionError" in watch.problem)
            await asyncio.to_thread(wait_for, lambda: script.state() != "T")
            assert script.frozen == 1
            held.cancel()


async def test_processes_that_are_to_stop_finish_the_file_they_write(tmp_path):
    """Another pod, which does not see who writes, has found the checkpoint complete one file earlier."""
    path = tmp_path / "checkpoints"
    path.mkdir()
    code = f"""
        from tests.worker.checkpoint.writing import zip_bytes
        content = zip_bytes()
        file = open({str(path / "optimizer.pt")!r}, "wb"); file.write(content[:100]); file.flush()
        input()
        file.write(content[100:]); file.close()
        input()
    """
    with running(code) as script:
        async with watching(path, script) as watch:
            await asyncio.to_thread(wait_for, lambda: watch.being_written())
            held = asyncio.ensure_future(freeze_between_writes(watch, [script], seconds=20))
            await asyncio.to_thread(wait_for, lambda: script.thawed)
            assert not held.done()
            script.go_on()
            assert await within(20, held)
            assert script.state() == "T"
            assert is_whole(path / "optimizer.pt")


async def test_processes_that_are_to_stop_and_write_on_and_on_run_when_time_is_over(tmp_path):
    path = tmp_path / "ckpt.pt"
    with running(f"file = open({str(path)!r}, 'wb'); file.write(b'x'); file.flush(); input()") as script:
        async with watching(path, script) as watch:
            await asyncio.to_thread(wait_for, lambda: watch.being_written())
            assert not await freeze_between_writes(watch, [script], seconds=0.3)
            assert script.state() != "T"
