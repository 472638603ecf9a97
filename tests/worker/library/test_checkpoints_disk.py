"""A full disk costs a checkpoint, not the training, and not the checkpoints that are there. Mounts a small tmpfs."""

import pytest
import torch

from elastic_worker.library.checkpoints import CheckpointError, Checkpoints
from tests.worker.disk import small_disk

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path):
    """A folder on a disk of 8 MiB."""
    with small_disk(tmp_path / "disk", "8m") as folder:
        yield folder


def used(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def state_of(mib, value):
    return {"w": torch.full((mib * MIB // 4,), float(value))}


SAVES = {
    "one large tensor": lambda: state_of(7, 2),
    "the overhead of many small ones": lambda: {"w": [torch.tensor(float(i)) for i in range(6000)]},
    "values": lambda: {"w": b"x" * (7 * MIB)},
}


@pytest.mark.parametrize("kind", SAVES)
def test_a_full_disk_is_told_and_the_next_save_that_fits_is_made(disk, kind):
    folder = disk / "checkpoints"
    checkpoints = Checkpoints(folder, keep=1)
    checkpoints.save(state_of(3, 1), step=1, order=(1, 0), wait=True)
    before = used(folder)

    checkpoints.save(SAVES[kind](), step=2, order=(1, 0))
    with pytest.raises(CheckpointError, match=r"step 2 was not saved: no space left in .*disk/checkpoints: make room"):
        checkpoints.wait()
    assert sorted(path.name for path in folder.iterdir()) == ["latest", "step-1"]
    assert used(folder) == before
    assert checkpoints.last_step == 1
    assert (checkpoints.load(Checkpoints(folder).newest())["w"] == 1).all()

    checkpoints.save(state_of(3, 3), step=3, order=(1, 0), wait=True)
    assert checkpoints.problem == ""
    assert (checkpoints.load(Checkpoints(folder).newest())["w"] == 3).all()


def test_a_disk_that_other_files_fill_is_told_until_there_is_room(disk):
    folder, other = disk / "checkpoints", disk / "other"
    checkpoints = Checkpoints(folder)
    with pytest.raises(OSError, match="No space left"):
        other.write_bytes(bytes(9 * MIB))
    for step in (1, 2):
        checkpoints.save(state_of(1, step), step=step, order=(1, 0))
        with pytest.raises(CheckpointError, match="no space left"):
            checkpoints.wait()
    assert Checkpoints(folder).newest() is None
    other.unlink()
    checkpoints.save(state_of(1, 3), step=3, order=(1, 0), wait=True)
    assert Checkpoints(folder).newest().step == 3
