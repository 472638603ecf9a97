"""A checkpoint path that is a folder: complete with its marker, or when nothing more comes."""

import asyncio
import pickle

from elastic_worker.checkpoint import candidates
from elastic_worker.checkpoint.candidates import QUIET_SECONDS
from elastic_worker.checkpoint.inotify import Inotify
from tests.kit.wait import within
from tests.worker.checkpoint.writing import (
    is_pending,
    running,
    safetensors_bytes,
    settled,
    wait_for,
    watching,
    zip_bytes,
)


async def completed(watch, count):
    await asyncio.to_thread(wait_for, lambda: watch.completed == count)


async def test_several_files_with_pauses_between_them_make_one_checkpoint(tmp_path, monkeypatch):
    # Far longer than the pauses, also where the script is slow.
    monkeypatch.setattr(candidates, "QUIET_SECONDS", 4.0)
    code = f"""
        import json, time
        from pathlib import Path
        from tests.worker.checkpoint.writing import safetensors_bytes, zip_bytes
        folder = Path({str(tmp_path / "out")!r}) / "checkpoint-100"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(safetensors_bytes())
        time.sleep(0.4)
        (folder / "optimizer.pt").write_bytes(zip_bytes())
        time.sleep(0.4)
        (folder / "trainer_state.json").write_text(json.dumps({{"step": 100}}))
        input()
    """
    with running(code) as script:
        async with watching(tmp_path / "out", script) as watch:
            await completed(watch, 1)
            assert (tmp_path / "out" / "checkpoint-100" / "trainer_state.json").exists()
            await settled(watch)
            assert watch.completed == 1


async def test_an_open_file_makes_it_wait_however_long_it_is_quiet(tmp_path):
    (tmp_path / "out").mkdir()
    code = f"""
        from tests.worker.checkpoint.writing import zip_bytes
        content = zip_bytes()
        input()
        open({str(tmp_path / "out" / "model.pt")!r}, "wb").write(content)
        file = open({str(tmp_path / "out" / "optimizer.pt")!r}, "wb")
        file.write(content[:1000]); file.flush()
        input()
        file.write(content[1000:]); file.close()
        input()
    """
    optimizer = tmp_path / "out" / "optimizer.pt"
    with running(code) as script:
        async with watching(tmp_path / "out", script) as watch:
            script.go_on()
            await asyncio.to_thread(wait_for, lambda: optimizer.exists() and optimizer.stat().st_size == 1000)
            await asyncio.sleep(2.5 * QUIET_SECONDS)
            assert (watch.completed, is_pending(watch), watch.being_written()) == (0, True, True)
            script.go_on()
            await completed(watch, 1)


async def test_a_marker_may_be_empty_and_waits_for_files_that_are_still_open(tmp_path):
    (tmp_path / "model.pt").write_bytes(zip_bytes())
    code = f"""
        file = open({str(tmp_path / "rng_state_1.pth")!r}, "wb")
        input()
        file.write(b"state"); file.close()
        input()
    """
    with running(code) as script:
        async with watching(tmp_path, script, marker="*.done") as watch:
            await asyncio.to_thread(wait_for, watch.being_written)
            (tmp_path / "8.done").touch()
            await within(20, watch.check_after(watch.checks + 1))
            assert watch.completed == 0
            script.go_on()
            await completed(watch, 1)


async def test_the_metadata_of_torch_ends_a_checkpoint_at_once(tmp_path):
    step = tmp_path / "out" / "step-10"
    async with watching(tmp_path / "out") as watch:
        step.mkdir(parents=True)
        (step / "__0_0.distcp").write_bytes(b"tensors")
        (step / "__1_0.distcp").write_bytes(b"tensors")
        await settled(watch)
        await asyncio.sleep(1.5 * QUIET_SECONDS)
        assert watch.completed == 0
        (step / ".metadata.tmp").write_bytes(pickle.dumps({"tensors": 2}))
        (step / ".metadata.tmp").rename(step / ".metadata")
        await completed(watch, 1)
        assert watch.verify()
        (step / ".metadata").write_bytes(pickle.dumps({"tensors": 2})[:-1])
        await settled(watch)
        assert watch.completed == 1


async def test_a_folder_under_a_temporary_name_counts_when_it_is_renamed(tmp_path):
    temporary, out = tmp_path / "out" / "step-10.tmp", tmp_path / "out"
    async with watching(out) as watch:
        temporary.mkdir(parents=True)
        (temporary / "model.pt").write_bytes(zip_bytes())
        (temporary / ".metadata").write_bytes(pickle.dumps({}))
        await asyncio.sleep(1.5 * QUIET_SECONDS)
        assert watch.completed == 0
        temporary.rename(out / "step-10")
        await completed(watch, 1)


async def test_the_whole_path_may_be_put_there_by_a_rename(tmp_path):
    async with watching(tmp_path / "out") as watch:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "model.pt").write_bytes(zip_bytes())
        (tmp_path / "new").rename(tmp_path / "out")
        await completed(watch, 1)
        (tmp_path / "out").rename(tmp_path / "old")
        (tmp_path / "out").mkdir()
        (tmp_path / "old" / "model.pt").write_bytes(zip_bytes())
        await asyncio.sleep(1.5 * QUIET_SECONDS)
        assert watch.completed == 1
        (tmp_path / "out" / "model.pt").write_bytes(zip_bytes())
        await completed(watch, 2)


async def test_a_torn_newest_file_makes_no_checkpoint_and_spoils_no_later_one(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    async with watching(out) as watch:
        (out / "a.safetensors").write_bytes(safetensors_bytes())
        (out / "b.safetensors").write_bytes(safetensors_bytes()[:-1])
        await asyncio.to_thread(wait_for, lambda: is_pending(watch))
        await settled(watch)
        assert watch.completed == 0
        (out / "c.safetensors").write_bytes(safetensors_bytes())
        await completed(watch, 1)


async def test_logs_descriptions_and_deletions_are_no_checkpoints(tmp_path):
    out = tmp_path / "out"
    (out / "old").mkdir(parents=True)
    (out / "old" / "model.pt").write_bytes(zip_bytes())
    code = f"""
        file = open({str(out / "events.out.tfevents.1.host")!r}, "wb")
        while True:
            input()
    """
    with running(code) as script:
        async with watching(out, script) as watch:
            await asyncio.to_thread(wait_for, (out / "events.out.tfevents.1.host").exists)
            (out / "log.jsonl").write_text("{}\n")
            (out / "config.json").write_text("{}")
            (out / "README.md").write_text("a model")
            (out / "old" / "model.pt").unlink()
            await asyncio.sleep(1.5 * QUIET_SECONDS)
            assert watch.completed == 0
            (out / "model.pt").write_bytes(zip_bytes())
            await completed(watch, 1)
            assert not watch.being_written()


async def test_a_folder_made_between_looking_and_watching_is_not_missed(tmp_path, monkeypatch):
    step, add = tmp_path / "out" / "step-1", Inotify.add

    def add_late(self, folder):
        if folder == step.parent:  # what lies in it has just been listed
            step.mkdir(exist_ok=True)
        return add(self, folder)

    (tmp_path / "out").mkdir()
    monkeypatch.setattr(Inotify, "add", add_late)
    async with watching(tmp_path / "out") as watch:
        (step / "model.pt").write_bytes(zip_bytes())
        await completed(watch, 1)
