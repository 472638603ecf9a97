"""What launcher and training processes say to each other is, as JSON, what releases before this one say and read."""

import asyncio
import json
from pathlib import Path

import pytest

from elastic_worker.contract import IN_PLACE, RESTART
from elastic_worker.coordinator.part import Part
from elastic_worker.launcher.trainees import Trainees
from elastic_worker.protocol import process_reports, reports

PART = Part(
    5, 2, host="10.0.0.1", world_size=6, store_port=4000, pods=3, place=1, first_rank=2, processes=2
).to_message()
PLACE = {"generation": 5, "epoch": 2, "world": 6, "host": "10.0.0.1", "port": 4000, "pods": 3, "pod": 1}
NOT_IN_IT = Part(5, 2, host="10.0.0.1", world_size=6, store_port=4000, pods=3).to_message()
OUT = {**PLACE, "pods": 1, "pod": 0, "rank": -1}
AT = [5, 1]


class Wire:
    """The launcher's end of the connection to a process: what was written to it, line by line."""

    def __init__(self):
        self.said = []

    def write(self, data):
        assert data.endswith(b"\n")
        self.said.append(json.loads(data))

    def is_closing(self):
        return False

    async def drain(self):
        pass


class Line:
    """A launcher with so many processes: what it tells them, and the coordinator."""

    def __init__(self, count=1, kind=IN_PLACE):
        self.told = []
        self.library = Trainees("u1", Path("socket"), report=lambda *said: self.told.extend(said), size=lambda: count)
        self.wires = [Wire() for _ in range(count)]
        self.trainees = [
            self.library.add({"localRank": rank, "kind": kind, "checkpoints": ""}, wire)
            for rank, wire in enumerate(self.wires)
        ]

    def hear(self, line):
        """From the coordinator: what each process is told then."""
        self.library.handle_order(line)
        return self.said()

    def said(self):
        said = [wire.said for wire in self.wires]
        for wire in self.wires:
            wire.said = []
        return said

    def take(self, *lines):
        """From each process one: what the coordinator is told then."""
        self.told.clear()
        for trainee, line in zip(self.trainees, lines, strict=False):
            self.library.handle_report(trainee, line)
        return self.told


def as_read(place):
    """With what a process assumes where nothing is said; no release reads `group`."""
    return {"pods": 1, "pod": 0, **{key: value for key, value in place.items() if key != "group"}}


# -- to the processes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [False, True])
def test_each_process_is_told_to_form_the_next_group_with_its_own_rank(broken):
    told = Line(2).hear({"prepare": {"group": PART, "at": AT, "broken": broken}})
    assert [as_read(line["prepare"]) for (line,) in told] == [
        {**PLACE, "rank": rank, "at": AT, "broken": broken} for rank in (2, 3)
    ]
    assert all(set(line) == {"prepare"} for (line,) in told)


def test_a_process_of_a_pod_that_is_not_in_the_next_group_is_told_so():
    ((line,),) = Line().hear({"prepare": {"group": NOT_IN_IT, "at": AT, "broken": False}})
    assert as_read(line["prepare"]) == {**OUT, "at": AT, "broken": False}
    ((line,),) = Line().hear({"bind": NOT_IN_IT, "at": AT})
    assert line == {"bind": line["bind"], "at": AT}
    assert as_read(line["bind"]) == OUT


@pytest.mark.parametrize(
    "line",
    [
        {"ask": AT},
        {"propose": 7, "at": AT},
        {"cancel": 1},
        {"broken": 4},
        {"bind": None, "at": AT},
        {"bind": None, "at": AT, "save": True},
    ],
)
def test_what_is_the_same_for_all_goes_to_each_as_the_coordinator_says_it(line):
    assert Line(2).hear(line) == [[line], [line]]


def test_each_process_is_bound_to_the_group_with_its_own_rank():
    assert Line(2).hear({"bind": PART, "at": AT}) == [[{"bind": {**PLACE, "rank": rank}, "at": AT}] for rank in (2, 3)]


def test_what_does_not_concern_groups_that_change_in_place_is_not_handed_on():
    assert Line().hear({"form": PART, "stop": 3, "seconds": 5.0, "leave": 1, "save": True, "after": 0.0}) == [[]]


def test_processes_are_told_whether_there_is_a_coordinator_and_of_which_epoch():
    line = Line()
    line.library.set_coordinator(None)
    line.library.set_coordinator(3)
    assert line.said() == [[{"away": True}, {"away": False, "epoch": 3}]]


async def test_before_its_pod_leaves_the_first_process_saves_and_then_all_end():
    line = Line(2)
    leaving = asyncio.ensure_future(line.library.leave(save=True, seconds=60))
    await asyncio.sleep(0)
    assert line.said() == [[{"save": 1}], []]
    line.take({"saved": 1})
    await leaving
    assert line.said() == [[{"leave": 1}], [{"leave": 1}]]


def test_the_process_that_is_least_far_is_found_where_no_step_ends():
    line = Line(2)
    assert line.library.poll_stuck(60) is None
    assert line.said() == [[{"where": 1}], [{"where": 1}]]
    line.take(
        {"where": {"tick": 8, "seconds": 70.0, "median": 0.1}}, {"where": {"tick": 7, "seconds": 61.0, "median": 0.0}}
    )
    assert line.library.poll_stuck(60) == (1, process_reports.Position(boundary=7, seconds=61.0, median=0.0))
    line.take({"where": {"tick": 9, "seconds": 0.0, "median": 0.1}})
    assert line.library.poll_stuck(60) is None


# -- from the processes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hello", [{"checkpoints": "/checkpoints"}, {"checkpoints": ""}, {}])
def test_a_process_says_hello_with_its_place_in_the_pod_and_where_it_writes_checkpoints(hello):
    told = []
    library = Trainees("u1", Path("socket"), report=lambda *said: told.extend(said), size=lambda: 1)
    trainee = library.add({"localRank": 0, "kind": RESTART, **hello}, Wire())
    assert (trainee.local_rank, trainee.change_mode, library.change_mode) == (0, RESTART, RESTART)
    assert told == ([reports.CheckpointFolder("/checkpoints")] if hello.get("checkpoints") else [])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([{"formed": 1, "at": AT}] * 2, [reports.Formed(AT)]),
        ([{"formed": 1, "at": AT}], []),
        ([{"passed": 3, "at": AT}, {"passed": 4, "at": AT}], [reports.AtBoundary(4, AT)]),
        (
            [{"agreed": True, "tick": 7, "at": AT}, {"agreed": False, "tick": 7, "at": AT}],
            [reports.Agreed(False, 7, AT)],
        ),
        ([{"agreed": True, "tick": 7, "at": AT}, {"agreed": True, "tick": 8, "at": AT}], []),
        ([{"savedTogether": 1, "at": AT}, {"savedTogether": 0, "at": AT}], [reports.SavedTogether(False, AT)]),
        ([{"unformed": "no route", "at": AT}], [reports.Unformed("no route", AT)]),
        ([{"generation": 5, "stepped": 0.25}, {"generation": 5, "stepped": 0.5}], [reports.Stepped(5, 0.5)]),
        ([{"generation": 5, "stepped": 0.0}] * 2, [reports.Stepped(5)]),
        ([{"lost": 4}], [reports.CutOff(4)]),
        ([{"lastCheckpointStep": 30}], [reports.Checkpoint(), reports.LastCheckpointStep(30)]),
        ([{"checkpointError": "no space"}], [reports.CheckpointError("no space")]),
        ([{"waits": 1}] * 2, [reports.Ready(True, 0, False, IN_PLACE)]),
        ([{"waits": 1}, {"joined": 4}], [reports.Ready(True, 0, True, IN_PLACE)]),
        ([{"joined": 4}] * 2, [reports.Ready(True, 4, True, IN_PLACE)]),
        ([{"saved": 1}], []),
    ],
)
def test_the_coordinator_is_told_what_the_processes_say_when_all_that_must_have_said_it(lines, told):
    assert Line(2).take(*lines) == told


async def test_what_a_process_says_that_cannot_be_read_is_passed_over_and_the_next_line_is_heard(tmp_path):
    told, heard = [], asyncio.Event()
    library = Trainees("u1", tmp_path / "socket", report=lambda *said: (told.extend(said), heard.set()), size=lambda: 1)
    serving = asyncio.ensure_future(library.serve())
    await asyncio.sleep(0.05)
    _, writer = await asyncio.open_unix_connection(str(tmp_path / "socket"))
    for line in ({"localRank": 0, "kind": IN_PLACE}, {"joined": "soon"}, {"passed": 3, "at": None}, {"lost": 4}):
        writer.write(json.dumps(line).encode() + b"\n")
    await asyncio.wait_for(heard.wait(), 10)
    assert told == [reports.CutOff(4)]
    writer.close()
    serving.cancel()
    await asyncio.wait({serving})


@pytest.mark.parametrize(
    "said",
    [
        {"step": 7, "epoch": 2, "samples": 90, "tick": 9, "median": 0.1, "goodput": {"share": 1.0}, "loss": 0.25},
        {"step": 7, "epoch": 0.5, "tick": 9},
    ],
)
def test_how_the_training_goes_is_what_the_first_process_said_last(said):
    line = Line(2)
    assert line.take({"progress": said}, {"progress": {"step": 99, "epoch": 0, "tick": 0}}) == []
    assert line.library.progress().to_json() == {"progress": said}
