"""Messages as JSON: what other releases may send, and that each one has a meaning and somebody who takes it in."""

from dataclasses import fields, is_dataclass

import pytest

from elastic_worker import wire
from elastic_worker.coordinator.execute import Executor
from elastic_worker.coordinator.hearing import Hearing
from elastic_worker.coordinator.state import CoordinatorState, Rules
from elastic_worker.protocol import orders, reports
from elastic_worker.protocol.codec import Message, to_line

REPORTS = (*reports.LASTING, *reports.EVENTS, *reports.ANSWERS)
EXAMPLES = {
    "int": 7,
    "int | None": 3,
    "float": 0.5,
    "float | None": 0.25,
    "bool": True,
    "bool | None": True,
    "str": "why",
    "dict[str, Any]": {"epoch": 1},
    "dict[str, Any] | None": {"rank": 1},
    "Group": {"part": {"number": 1}},
    "Group | None": None,
    "Key": [2, 1],
}


def example(kind):
    return kind(**{each.name: EXAMPLES[each.type] for each in fields(kind)})


@pytest.mark.parametrize("kind", [*orders.ALL, *REPORTS])
def test_each_message_comes_back_from_json_as_it_was_and_says_what_it_means(kind):
    told = example(kind)
    assert kind.from_json(told.to_json()) == told
    assert is_dataclass(kind)
    assert kind.__doc__
    assert not kind.__doc__.startswith(kind.__name__), "the dataclass has made it"


def test_no_two_messages_of_one_direction_have_a_key_in_common():
    for kinds in (orders.ALL, REPORTS):
        assert len({kind.key for kind in kinds}) == len(kinds)
    defined = {kind for module in (orders, reports) for kind in vars(module).values() if _is_message(kind)}
    assert defined == {*orders.ALL, *REPORTS}


def test_the_coordinator_takes_in_each_report():
    state = CoordinatorState("u0", 1, Rules(), started=0.0)
    hearing = Hearing(state, Executor(state, lambda _uids, _message: None), None)
    assert set(hearing._handlers) == set(REPORTS)


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
    assert orders.Bind(None, [2, 1]).to_json() == {"bind": None, "at": [2, 1]}


def _is_message(kind):
    return isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
