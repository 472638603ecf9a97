"""A process's line to its launcher: as JSON what launchers of releases before this one say and read."""

import json
import socket
import time
from types import SimpleNamespace

import pytest

from elastic_worker.contract import IN_PLACE
from elastic_worker.library import launcher_line
from elastic_worker.library.goodput import Goodput
from elastic_worker.library.launcher_line import LauncherLine, PodLeaves
from elastic_worker.library.reports import Reports
from elastic_worker.library.trainers import TrainerLine
from elastic_worker.protocol.process_orders import GroupPlace
from elastic_worker.protocol.process_reports import Hello

PLACE = {"generation": 5, "epoch": 2, "world": 6, "host": "10.0.0.1", "port": 4000, "rank": 2, "pods": 3, "pod": 1}
AT = [5, 1]


class Launcher:
    """Its end of the socket."""

    def __init__(self, path):
        self.path = str(path)
        self._server = socket.create_server(self.path, family=socket.AF_UNIX)

    def accept(self):
        self._connection, _ = self._server.accept()
        self._connection.settimeout(10)
        self._lines = self._connection.makefile("rb")

    def say(self, **message):
        self._connection.sendall(json.dumps({**message, "of a later release": 1}).encode() + b"\n")

    def hear(self):
        return json.loads(self._lines.readline())

    def hears_nothing_more(self):
        self.say(where=1)
        return set(self.hear()) == {"where"}

    def close(self):
        for each in (self._lines, self._connection, self._server):
            each.close()


class Formed:
    """A group, as its name."""

    def __init__(self, name):
        self.name = name


def form(place, name):
    assert place.world == PLACE["world"]
    if place.host == "unreachable":
        raise OSError("no route")
    return Formed(name)


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    monkeypatch.setattr(launcher_line.groups, "discard", lambda _formed: None)
    launcher = Launcher(tmp_path / "launcher")
    yield launcher
    launcher.close()


@pytest.fixture
def line(launcher):
    """Of a process in generation 4."""
    line = LauncherLine(launcher.path, Hello(1, IN_PLACE, ""), form=form)
    launcher.accept()
    assert launcher.hear() == {"localRank": 1, "kind": IN_PLACE, "checkpoints": ""}
    line.enter(4, None)
    yield line
    line._socket.close()


def wait_until_heard(line, launcher):
    assert launcher.hears_nothing_more()
    assert line._state.must_ask


def test_a_process_forms_the_next_group_agrees_and_goes_over(line, launcher):
    launcher.say(prepare={"group": None, "at": AT, "broken": False, **PLACE})
    assert launcher.hear() == {"formed": 1, "at": AT}
    line.boundary(lambda: None)
    launcher.say(ask=AT)
    assert launcher.hear() == {"passed": 1, "at": AT}
    launcher.say(propose=1, at=AT)
    assert launcher.hear() == {"agreed": False, "tick": 1, "at": AT}
    launcher.say(propose=2, at=AT)
    assert launcher.hear() == {"agreed": True, "tick": 2, "at": AT}
    launcher.say(bind=PLACE, at=AT)
    verdict = line.boundary(lambda: None)
    assert verdict.place == GroupPlace(5, 2, 6, "10.0.0.1", 4000, 2, 3, 1)
    assert (verdict.formed.name, verdict.save, line.bound) == ("library-5.1", False, AT)


@pytest.mark.usefixtures("line")
def test_a_process_says_why_a_group_is_not_formed(launcher):
    launcher.say(prepare={"at": AT, "broken": False, **PLACE, "host": "unreachable"})
    assert launcher.hear() == {"unformed": "OSError: no route", "at": AT}


def test_a_process_that_the_others_leave_behind_waits_for_another_group(line, launcher):
    launcher.say(propose=1, at=AT)
    assert launcher.hear() == {"agreed": True, "tick": 1, "at": AT}
    launcher.say(bind={**PLACE, "rank": -1}, at=AT)
    launcher.say(leave=1)
    with pytest.raises(PodLeaves):
        line.boundary(lambda: None)
    assert line.boundaries_passed == 1


def test_what_is_cancelled_is_not_waited_for(line, launcher):
    launcher.say(propose=1, at=AT)
    assert launcher.hear() == {"agreed": True, "tick": 1, "at": AT}
    launcher.say(cancel=1)
    assert launcher.hears_nothing_more()
    assert line.boundary(lambda: None) is None


def test_all_save_together_where_they_are_bound_to_no_group(line, launcher):
    launcher.say(propose=1, at=AT)
    assert launcher.hear() == {"agreed": True, "tick": 1, "at": AT}
    launcher.say(bind=None, at=AT, save=True)
    saved = []
    verdict = line.boundary(lambda: saved.append("alone"))
    assert (verdict.place, verdict.save, saved) == (None, True, [])


def test_the_first_process_saves_and_leaves_when_it_is_told_to(line, launcher):
    launcher.say(save=1)
    launcher.say(leave=1)
    wait_until_heard(line, launcher)
    saved = []
    with pytest.raises(PodLeaves):
        line.boundary(lambda: saved.append("alone"))
    assert saved == ["alone"]
    assert launcher.hear() == {"saved": 1}


@pytest.mark.parametrize("generation", [3, 4])
def test_only_the_group_that_is_meant_is_broken(line, launcher, monkeypatch, generation):
    monkeypatch.setattr(launcher_line.watchdog, "watch", lambda _is_well: None)
    launcher.say(broken=generation)
    assert launcher.hears_nothing_more()
    assert line._state.is_broken is (generation == 4)


def test_a_process_knows_of_which_master_it_hears_and_whether_there_is_none(line, launcher):
    launcher.say(away=False, epoch=3)
    launcher.say(away=True)
    assert launcher.hears_nothing_more()
    assert (line.master, line._state.is_away) == (3, True)
    launcher.say(away=False)
    launcher.say(away=False, epoch=2)
    assert launcher.hears_nothing_more()
    assert (line.master, line._state.is_away) == (3, False)


def test_a_process_says_how_far_it_is_and_how_long_its_step_takes(line, launcher):
    launcher.say(where=1)
    assert launcher.hear() == {"where": {"tick": 0, "seconds": 0.0, "median": 0.0}}
    line.boundary(lambda: None)
    line.step_began, line.median_step = time.monotonic() - 60, 0.25
    launcher.say(where=1)
    said = launcher.hear()["where"]
    assert (said["tick"], said["median"]) == (1, 0.25)
    assert 60 <= said["seconds"] < 70


def test_what_a_process_cannot_read_is_passed_over_and_the_next_line_is_heard(line, launcher):
    launcher.say(propose="soon", at=AT)
    launcher.say(bind={"rank": "first"}, at=AT)
    launcher.say(prepare=7)
    launcher.say(propose=1, at=AT)
    assert launcher.hear() == {"agreed": True, "tick": 1, "at": AT}
    assert line._state.must_ask


def test_a_process_that_waits_or_has_lost_its_peers_says_so(line, launcher):
    line.lost()
    assert launcher.hear() == {"lost": 4}
    line.park()
    assert launcher.hear() == {"waits": 1}


def test_a_process_tells_of_its_first_step_its_progress_and_its_checkpoints(line, launcher):
    goodput = Goodput()
    told = Reports(line, goodput)
    state = SimpleNamespace(step=7, data=SimpleNamespace(epoch=2, length=100, cursor=30))
    told.entered(5)
    told.committed(state, None, None)
    assert launcher.hear() == {"generation": 5, "stepped": 0.0}
    progress = launcher.hear()["progress"]
    assert set(progress.pop("goodput")) == {"share", *goodput.seconds}
    assert progress == {"step": 7, "epoch": 2, "samples": 230, "tick": 0, "median": 0.0}
    told.entered(6)
    told.committed(state, 1, SimpleNamespace(last_step=6, problem="no space"))
    stepped = launcher.hear()
    assert (set(stepped), stepped["generation"]) == ({"generation", "stepped"}, 6)
    assert stepped["stepped"] > 0
    assert launcher.hear()["progress"]["loss"] == 1.0
    assert launcher.hear() == {"lastCheckpointStep": 6}
    assert launcher.hear() == {"checkpointError": "no space"}


def test_a_trainer_of_somebody_elses_says_less(launcher, monkeypatch):
    for name, value in {"LIBRARY": launcher.path, "GENERATION": "4"}.items():
        monkeypatch.setenv(f"ELASTIC_{name}", value)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    trainer = TrainerLine()
    trainer.begin(step=0, newest=None, remedy="")
    launcher.accept()
    hello = launcher.hear()
    assert hello == {"localRank": 0, "kind": "restart"}
    assert launcher.hear() == {"joined": 4}
    trainer.report(step=7, epoch=0.5)
    assert launcher.hear() == {"generation": 4, "stepped": 0.0}
    assert launcher.hear() == {"progress": {"step": 7, "epoch": 0.5, "tick": 0}}
    trainer.saved(7)
    assert launcher.hear() == {"lastCheckpointStep": 7}
    trainer._line._socket.close()
