"""A checkpoint of which anything is missing or changed is never loaded, and never means a start from zero."""

import json
import shutil

import pytest
import torch

from elastic_worker.library.checkpoints import CheckpointError, Checkpoints


def saved(folder, *steps):
    checkpoints = Checkpoints(folder, keep=len(steps))
    for step in steps:
        checkpoints.save({"w": torch.full((1000,), float(step)), "step": step}, step=step, order=(1, 0), wait=True)
    return folder / f"step-{steps[-1]}"


def missing(name):
    return lambda path: (path / name).unlink()


def short(name):
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:-1])


def flipped(name):
    def flip(path):
        content = bytearray((path / name).read_bytes())
        content[len(content) // 2] ^= 1
        (path / name).write_bytes(content)

    return flip


def of_format(number):
    def change(path):
        fields = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps({**fields, "format": number}))

    return change


def as_folder(name):
    def change(path):
        (path / name).unlink()
        (path / name).mkdir()

    return change


def emptied(path):
    shutil.rmtree(path)
    path.mkdir()


WAYS = {
    "data missing": (missing("__0_0.distcp"), "__0_0.distcp is missing"),
    "data short": (short("__0_0.distcp"), "__0_0.distcp has "),
    "data changed": (flipped("__0_0.distcp"), "__0_0.distcp has checksum "),
    "metadata missing": (missing(".metadata"), ".metadata is missing"),
    "metadata changed": (flipped(".metadata"), ".metadata has checksum "),
    "values changed": (flipped("structure.pickle"), "structure.pickle has checksum "),
    "manifest missing": (missing("manifest.json"), "manifest.json is missing"),
    "manifest short": (short("manifest.json"), "manifest.json is damaged"),
    "manifest of another version": (of_format(2), "manifest.json has format 2"),
    "data is a folder": (as_folder("__0_0.distcp"), "__0_0.distcp has "),
    "empty folder": (emptied, "manifest.json is missing"),
    "another step's": (lambda path: path.rename(path.with_name("step-99")), "it holds step 20"),
}


@pytest.mark.parametrize("way", WAYS)
def test_torn_checkpoint_is_skipped_and_logged_once(tmp_path, caplog, way):
    tear, why = WAYS[way]
    tear(saved(tmp_path, 10, 20))
    checkpoints = Checkpoints(tmp_path)
    for _ in range(2):
        found = checkpoints.newest()
        assert found.step == 10
        assert (checkpoints.load(found)["w"] == 10).all()
    told = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    assert len(told) == 1
    assert why in told[0]


def test_if_none_is_complete_that_is_an_error_that_names_each(tmp_path):
    saved(tmp_path, 10, 20)
    missing(".metadata")(tmp_path / "step-10")
    flipped("__0_0.distcp")(tmp_path / "step-20")
    with pytest.raises(CheckpointError) as raised:
        Checkpoints(tmp_path).newest()
    told = str(raised.value)
    assert "step-10: .metadata is missing" in told
    assert "step-20: __0_0.distcp has checksum" in told
    assert "to start anew delete that folder's content or choose another folder" in told


def test_checkpoints_that_are_gone_are_missed(tmp_path):
    shutil.rmtree(saved(tmp_path, 10))
    with pytest.raises(CheckpointError, match="the file `latest` names one that does not exist any more"):
        Checkpoints(tmp_path).newest()


def test_a_first_save_that_was_cut_short_is_no_checkpoint(tmp_path, caplog):
    """Nothing was ever saved: the job must be able to start."""
    (tmp_path / "step-10.1-0.tmp").mkdir()
    assert Checkpoints(tmp_path).newest() is None
    assert "step-10.1-0.tmp passed over reason=it was not written to its end" in caplog.text


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be read: .*Not a directory"):
        Checkpoints(tmp_path / "file").newest()
    checkpoints = Checkpoints(tmp_path / "file")
    checkpoints.save({"w": 1}, step=1, order=(1, 0))
    with pytest.raises(CheckpointError, match="step 1 was not saved: Not a directory"):
        checkpoints.wait()


def test_a_torn_one_gives_way_when_its_step_is_saved_again(tmp_path):
    missing("__0_0.distcp")(saved(tmp_path, 10, 20))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"w": torch.full((3,), 21.0)}, step=20, order=(1, 1), wait=True)
    assert checkpoints.load(checkpoints.newest())["w"].tolist() == [21.0] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-10", "step-20"]


def test_a_torn_one_does_not_count_among_those_that_are_kept(tmp_path):
    missing("__0_0.distcp")(saved(tmp_path, 10, 20))
    Checkpoints(tmp_path, keep=2).save({"w": 1}, step=30, order=(1, 0), wait=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-10", "step-20", "step-30"]
    Checkpoints(tmp_path, keep=2).save({"w": 1}, step=40, order=(1, 0), wait=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-30", "step-40"]


def test_a_checkpoint_that_is_removed_before_it_is_loaded_is_an_error(tmp_path):
    path = saved(tmp_path, 10)
    found = Checkpoints(tmp_path).newest()
    shutil.rmtree(path)
    with pytest.raises(CheckpointError, match="step-10 cannot be loaded"):
        Checkpoints(tmp_path).load(found)


def test_the_error_about_an_unreadable_checkpoint_names_the_torch_that_wrote_it(tmp_path):
    path = saved(tmp_path, 10)
    found = Checkpoints(tmp_path).newest()
    fields = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**fields, "torch": "99.0"}))
    (path / ".metadata").write_bytes(b"of the future")
    with pytest.raises(CheckpointError) as raised:
        Checkpoints(tmp_path).load(found)
    assert f"step-10 cannot be loaded (torch 99.0 wrote it, this is torch {torch.__version__}): " in str(raised.value)
