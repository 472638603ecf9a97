"""A checkpoint path that names one file: complete as soon as that file is."""

import asyncio
import os
import resource

from elastic_worker.checkpoint import watch as watch_module
from tests.kit.wait import within
from tests.worker.checkpoint.writing import running, settled, wait_for, watching, zip_bytes

SECONDS = 20
"""For what must happen."""
A_WHILE = 0.3
"""For what must not happen."""


async def test_a_file_written_slowly_in_place_is_complete_when_it_is_closed(tmp_path):
    path = tmp_path / "ckpt.pt"
    code = f"""
        from tests.worker.checkpoint.writing import zip_bytes
        content = zip_bytes()
        file = open({str(path)!r}, "wb")
        for start in range(0, len(content), 100):
            file.write(content[start:start + 100]); file.flush()
        input()
        file.close()
        input()
    """
    with running(code) as script:
        async with watching(path, script) as watch:
            await asyncio.to_thread(wait_for, lambda: path.exists() and path.stat().st_size > 5000)
            await asyncio.sleep(A_WHILE)
            assert watch.being_written()
            assert watch.completed == 0
            script.go_on()
            await asyncio.to_thread(wait_for, lambda: watch.completed == 1)
            assert (watch.completed, watch.being_written(), watch.verify()) == (1, False, True)
            assert watch.last is not None


async def test_a_rename_to_the_name_counts_and_the_temporary_file_does_not(tmp_path):
    path = tmp_path / "ckpt.pt"
    async with watching(path) as watch:
        (tmp_path / "ckpt.pt.tmp").write_bytes(zip_bytes())
        await settled(watch)
        assert watch.completed == 0
        (tmp_path / "ckpt.pt.tmp").rename(path)
        await asyncio.to_thread(wait_for, lambda: watch.completed == 1)
        (tmp_path / "other.pt").write_bytes(zip_bytes())
        await settled(watch)
        assert watch.completed == 1


async def test_a_writer_killed_in_the_middle_leaves_no_checkpoint(tmp_path):
    path = tmp_path / "ckpt.pt"
    code = f"""
        from tests.worker.checkpoint.writing import zip_bytes
        file = open({str(path)!r}, "wb")
        file.write(zip_bytes()[:3000]); file.flush()
        input()
    """
    with running(code) as script:
        async with watching(path, script) as watch:
            await asyncio.to_thread(wait_for, lambda: path.exists() and path.stat().st_size == 3000)
            script.kill()
            await settled(watch)
            assert watch.completed == 0
            assert not watch.verify()
            path.write_bytes(zip_bytes())
            await asyncio.to_thread(wait_for, lambda: watch.completed == 1)


async def test_a_file_just_opened_and_closed_is_no_checkpoint(tmp_path):
    async with watching(tmp_path / "ckpt.bin") as watch:
        (tmp_path / "ckpt.bin").touch()
        await settled(watch)
        assert watch.completed == 0


async def test_a_second_process_that_still_writes_the_file_makes_it_wait(tmp_path):
    path = tmp_path / "ckpt.bin"
    code = f"""
        file = open({str(path)!r}, "ab")
        file.write(b"the beginning"); file.flush()
        input()
        file.write(b"the rest"); file.close()
        input()
    """
    with running(code) as script:
        async with watching(path, script) as watch:
            await asyncio.to_thread(wait_for, lambda: path.exists() and path.stat().st_size)
            path.open("ab").close()
            await settled(watch)
            assert watch.completed == 0
            script.go_on()
            await asyncio.to_thread(wait_for, lambda: watch.completed == 1)


async def test_folders_on_the_way_may_come_later_and_be_replaced(tmp_path):
    path = tmp_path / "runs" / "one" / "ckpt.pt"
    async with watching(path) as watch:
        path.parent.mkdir(parents=True)
        path.write_bytes(zip_bytes())
        await asyncio.to_thread(wait_for, lambda: watch.completed == 1)
        (tmp_path / "runs").rename(tmp_path / "old")
        path.parent.mkdir(parents=True)
        (tmp_path / "old" / "one" / "ckpt.pt").write_bytes(zip_bytes())
        await settled(watch)
        assert watch.completed == 1
        path.write_bytes(zip_bytes())
        await asyncio.to_thread(wait_for, lambda: watch.completed == 2)


async def test_a_symlink_is_followed_and_its_replacement_counts(tmp_path):
    path = tmp_path / "latest.pt"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "ckpt-1.pt").write_bytes(zip_bytes())
    path.symlink_to("data/ckpt-1.pt")
    async with watching(path) as watch:
        (tmp_path / "data" / "ckpt-1.pt").write_bytes(zip_bytes())
        await asyncio.to_thread(wait_for, lambda: watch.completed == 1)
        (tmp_path / "data" / "ckpt-2.pt").write_bytes(zip_bytes())
        await settled(watch)
        assert watch.completed == 1
        (tmp_path / "new").symlink_to("data/ckpt-2.pt")
        (tmp_path / "new").rename(path)
        await asyncio.to_thread(wait_for, lambda: watch.completed == 2)
        (tmp_path / "data" / "ckpt-2.pt").write_bytes(zip_bytes())
        await asyncio.to_thread(wait_for, lambda: watch.completed == 3)


async def test_what_lay_there_before_is_not_counted_and_a_deletion_neither(tmp_path):
    path = tmp_path / "ckpt.pt"
    path.write_bytes(zip_bytes())
    async with watching(path) as watch:
        await settled(watch)
        path.unlink()
        await settled(watch)
        assert watch.completed == 0


async def test_a_path_below_a_file_is_told_as_a_problem(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    async with watching(tmp_path / "file" / "ckpt.pt") as watch:
        assert watch.problem == ""  # the file may be replaced by a folder
        (tmp_path / "file").unlink()
        (tmp_path / "file").mkdir()
        (tmp_path / "file" / "ckpt.pt").write_bytes(zip_bytes())
        await asyncio.to_thread(wait_for, lambda: watch.completed == 1)


async def test_without_descriptors_left_it_says_so_and_tries_again(tmp_path, monkeypatch):
    monkeypatch.setattr("elastic_worker.checkpoint.watch.RETRY_SECONDS", 0.05)
    path, before = tmp_path / "ckpt.pt", resource.getrlimit(resource.RLIMIT_NOFILE)
    await asyncio.to_thread(os.getpid)  # the thread exists before descriptors run out
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        async with watching(path) as watch:
            assert "cannot be watched: Too many open files" in watch.problem
            assert watch.changed.is_set()
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            await asyncio.to_thread(wait_for, lambda: watch.problem == "")
            path.write_bytes(zip_bytes())
            await asyncio.to_thread(wait_for, lambda: watch.completed == 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_an_error_that_nobody_foresaw_is_told_and_the_watch_goes_on(tmp_path, monkeypatch):
    """Whoever waits for a checkpoint would wait for ever if the watch ended unseen."""
    path = tmp_path / "ckpt.pt"
    monkeypatch.setattr(watch_module, "RETRY_SECONDS", 0.1)
    faults = [RuntimeError("unforeseen")]

    def writers():
        if faults:
            raise faults.pop()
        return []

    watch = watch_module.CheckpointWatch(path, writers=writers)
    await watch.open()
    try:
        path.write_bytes(zip_bytes())
        await within(SECONDS, watch.changed.wait())
        assert "unforeseen" in watch.problem
        await asyncio.to_thread(wait_for, lambda: not watch.problem)
        completed = watch.completed
        path.write_bytes(zip_bytes())
        await asyncio.to_thread(wait_for, lambda: watch.completed > completed)
    finally:
        await watch.close()
