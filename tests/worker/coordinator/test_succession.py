"""What masters of one job leave beside the checkpoint for each other, and what follows for those who find it."""

from pathlib import Path, PurePath

import pytest

from elastic_worker.checkpoint.names import is_log
from elastic_worker.coordinator.decide import decide
from elastic_worker.coordinator.succession import Succession
from tests.worker.coordinator.states import make_membership, make_state, member, training


def master(path, epoch, *, job="u"):
    return Succession(str(path), job_uid=job, epoch=epoch)


@pytest.mark.parametrize("below", ["checkpoint.pt", "folder"])
def test_an_earlier_master_finds_a_later_one(tmp_path, below):
    (tmp_path / "folder").mkdir()
    first, second = master(tmp_path / below, 1), master(tmp_path / below, 2)
    assert first.look() == 1
    assert second.look() == 2
    assert first.look() == 2


def test_the_later_one_is_found_where_the_checkpoints_folder_came_in_between(tmp_path):
    first, second = master(tmp_path / "later", 1), master(tmp_path / "later", 2)
    second.look()
    (tmp_path / "later").mkdir()
    assert first.look() == 2


def test_the_later_one_writes_into_the_file_that_the_earlier_one_has_made(tmp_path):
    """NFS remembers for up to a minute that a name is not there; a file that is opened again it asks the server for."""
    first = master(tmp_path / "folder", 9)
    first.look()
    (tmp_path / "folder").mkdir()
    first.look()
    files = [next(folder.glob(".elastic-master-*")) for folder in (tmp_path, tmp_path / "folder")]
    before = [file.stat().st_ino for file in files]
    master(tmp_path / "folder", 10).look()
    assert [file.stat().st_ino for file in files] == before
    assert [int(file.read_text()) for file in files] == [10, 10]


def test_an_earlier_one_never_hides_a_later_one_and_takes_no_note_of_its_away(tmp_path):
    for epoch in (1, 3, 2):
        master(tmp_path / "c.pt", epoch).look()
    first = master(tmp_path / "c.pt", 1)
    assert first.look() == 3
    first.forget()
    assert first.look() == 3
    master(tmp_path / "c.pt", 3).forget()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_told_of_later_is_a_place_for_notes_too(tmp_path):
    first, second = master("", 1), master("", 2)
    for each in (first, second):
        each.add(str(tmp_path / "run"))
        each.look()
    assert first.look() == 2


def test_another_job_with_the_same_folder_is_another_matter(tmp_path):
    master(tmp_path / "c.pt", 2).look()
    assert master(tmp_path / "c.pt", 1, job="another").look() == 1


def test_what_is_left_is_no_checkpoint(tmp_path):
    master(tmp_path / "c.pt", 2).look()
    for file in tmp_path.iterdir():
        assert is_log(PurePath(file.name))


def test_without_a_place_nothing_is_known(tmp_path):
    assert not master("", 2).is_known
    for path in ("", tmp_path / "no" / "such" / "place", Path("/c.pt")):
        master(path, 2).look()
        assert master(path, 1).look() == 1


def test_who_trains_stops_when_a_later_master_has_taken_over_and_does_not_begin_again():
    state = training(0, 1, newest_epoch=2)
    decision = decide(state, 5.0)
    assert (decision.act, decision.reason) == ("stop", "MasterLost")
    assert "epoch 2" in decision.sentence
    waiting = make_state(member(0), member(1), membership=make_membership(0, 1), newest_epoch=2)
    assert decide(waiting, 5.0).act == "stay"
    own = make_state(member(0), member(1), membership=make_membership(0, 1), epoch=2, newest_epoch=2)
    assert decide(own, 5.0).act == "form"


def test_a_later_master_waits_a_moment_before_it_begins():
    state = make_state(member(0), member(1), membership=make_membership(0, 1), epoch=2, gives_way_until=3.0)
    waits = decide(state, 1.0)
    assert (waits.act, waits.until) == ("stay", 3.0)
    assert decide(state, 3.0).act == "form"
