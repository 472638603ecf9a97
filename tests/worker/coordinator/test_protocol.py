"""Messages as JSON: what other releases may send, and that each one has a meaning and somebody who takes it in."""

from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from elastic_worker import wire
from elastic_worker.coordinator.execute import Executor
from elastic_worker.coordinator.inbox import Inbox
from elastic_worker.coordinator.state import CoordinatorState, Rules
from elastic_worker.launcher.trainees import Trainees
from elastic_worker.library.line_state import LineState
from elastic_worker.protocol import orders, process_orders, process_reports, reports, standin, warm_parent
from elastic_worker.protocol.codec import Message, to_line

REPORTS = (*reports.STATE, *reports.EVENTS, *reports.ANSWERS)
DIRECTIONS = (
    orders.ALL,
    REPORTS,
    process_orders.ALL,
    process_reports.ALL,
    warm_parent.FROM_LAUNCHER,
    warm_parent.FROM_PARENT,
    (standin.Run,),
    (standin.Ended,),
)
PLACE = process_orders.GroupPlace(5, 2, 6, "10.0.0.1", 4000, 2, 3, 1)
EXAMPLES = {
    "int": 7,
    "int | None": 3,
    "float": 0.5,
    "float | None": 0.25,
    "bool": True,
    "bool | None": True,
    "str": "why",
    "str | None": "/checkpoints",
    "dict[str, Any]": {"epoch": 1},
    "StuckRank | None": reports.StuckRank(5, 2, 9, 70.0),
    "GenerationRecord": {"part": {"number": 1}},
    "GenerationRecord | None": None,
    "AttemptKey": [2, 1],
    "GroupPlace": PLACE,
    "GroupPlace | None": PLACE,
    "ScriptValue": 0.5,
    "list[str]": ["train.py"],
    "dict[str, str]": {"HOME": "/root"},
    "Python | None": standin.Python("/usr/bin/python3", "/usr", [3, 11]),
}


def example(kind):
    return kind(**{each.name: EXAMPLES[each.type] for each in fields(kind)})


@pytest.mark.parametrize("kind", sorted({each for kinds in DIRECTIONS for each in kinds}, key=repr))
def test_each_message_comes_back_from_json_as_it_was_and_says_what_it_means(kind):
    told = example(kind)
    assert kind.from_json(told.to_json()) == told
    assert is_dataclass(kind)
    assert kind.__doc__
    assert not kind.__doc__.startswith(kind.__name__), "the dataclass has made it"


def test_no_two_messages_of_one_direction_have_a_key_in_common():
    for kinds in DIRECTIONS:
        assert len({kind.key for kind in kinds}) == len(kinds)
    modules = (orders, reports, process_orders, process_reports, warm_parent, standin)
    defined = {kind for module in modules for kind in vars(module).values() if _is_message(kind)}
    assert defined == {kind for kinds in DIRECTIONS for kind in kinds}


def test_the_coordinator_takes_in_each_report():
    state = CoordinatorState("u0", 1, Rules(), started=0.0)
    inbox = Inbox(state, Executor(state, lambda _uids, _message: None), None)
    assert set(inbox._handlers) == set(REPORTS)


def test_launcher_and_process_take_in_all_that_they_say_to_each_other():
    trainees = Trainees("u1", Path("socket"), report=print, size=lambda: 1)
    assert {process_reports.Hello, *trainees._handlers} == set(process_reports.ALL)
    assert tuple(LineState(None)._handlers) == process_orders.ALL, "in this order"


def test_a_place_in_a_group_is_an_object_or_among_what_is_said_of_the_group():
    place = {"generation": 5, "rank": 2, "world": 6, "host": "h", "port": 4000}
    told = process_orders.GroupPlace(5, 2, 6, "h", 4000)
    assert process_orders.Prepare.from_json({"prepare": {**place, "at": [2, 1], "group": None}}).place == told
    assert process_orders.Bind.from_json({"bind": place, "at": [2, 1]}).place == told
    assert process_orders.Bind(None, [2, 1]).to_json() == {"bind": None, "at": [2, 1]}


def test_what_other_releases_leave_out_has_a_default_and_what_they_add_is_passed_over():
    assert orders.Stop.from_json({"stop": 7, "colour": "red"}) == orders.Stop(7, 5.0, dump=False)
    assert reports.Ready.from_json({"ready": 1, "joined": "4"}) == reports.Ready(True, 4)
    assert orders.Bind.from_json({"bind": None, "at": [2, 1]}) == orders.Bind(None, [2, 1])


@pytest.mark.parametrize("line", [{"failed": 7}, {"failed": {"rank": "first"}}, {"failed": None}])
def test_what_is_no_message_is_one_of_the_errors_that_whoever_reads_expects(line):
    with pytest.raises(wire.UNREADABLE):
        reports.Failed.from_json(line)


def test_several_messages_go_in_one_line_and_what_is_none_is_left_out():
    line = to_line(reports.Stopped(7, 30), reports.Runs(0))
    assert line == {"stopped": 7, "step": 30, "unkillable": "", "runs": 0}
    assert orders.Align().to_json() == {"align": None}
    assert process_reports.Progress(7, 0.5, boundary=9).to_json() == {"progress": {"step": 7, "epoch": 0.5, "tick": 9}}
    assert orders.Bind(None, [2, 1]).to_json() == {"bind": None, "at": [2, 1]}


def _is_message(kind):
    return isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
