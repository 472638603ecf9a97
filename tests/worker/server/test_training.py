"""What scripts say of their training, as /status shows it: whatever they say, it is JSON that everybody can read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_worker.launcher.training import training_status
from elastic_worker.library.goodput import Goodput
from elastic_worker.protocol.process_reports import Progress

SAID = {"step": 7, "epoch": 2, "samples": 90, "loss": 0.25, "boundary": 9, "median": 0.1}


def refuse_constant(name):
    raise AssertionError(f"{name} is no JSON")


def as_read(said):
    """As whoever asks for /status gets it."""
    return json.loads(json.dumps(training_status(Progress(**said))), parse_constant=refuse_constant)


def test_what_the_library_tells_is_shown():
    goodput = Goodput()
    goodput.spend("startup")
    goodput.step_done()
    read = as_read({**SAID, "goodput": goodput.to_status()})
    assert (read["epoch"], read["samplesSeen"], read["loss"]) == (2, 90, 0.25)
    assert set(read["goodput"]["seconds"]) == set(goodput.seconds)
    assert 0 <= read["goodput"]["share"] <= 1


def test_how_much_is_left_is_shown_if_it_can_be():
    said = {"percentage": 42, "remaining": 90}
    assert as_read(said) == {"progressPercentage": 42, "estimatedRemainingSeconds": 90}
    for wrong in (101, -1, True, 0.5, "1"):
        assert as_read({"percentage": wrong}) == {}


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), float("-inf"), 10**400, True, "0.1", None])
def test_a_loss_that_is_no_finite_number_is_left_out(loss):
    assert as_read({**SAID, "loss": loss}) == {"epoch": 2, "samplesSeen": 90}


@pytest.mark.parametrize("goodput", [None, 0.5, [], {}, {"share": 2}, {"share": float("nan")}, {"lost": 1.0}])
def test_an_account_without_a_share_is_left_out(goodput):
    assert "goodput" not in as_read({**SAID, "goodput": goodput})


def test_parts_that_are_no_seconds_are_left_out():
    read = as_read({"goodput": {"share": 1, "lost": -1.0, "startup": float("inf"), "other": "1", "productive": 2.0}})
    assert read["goodput"] == {"share": 1, "seconds": {"productive": 2.0}}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("share"), of, max_size=40),
    max_leaves=50,
)


@given(st.dictionaries(st.sampled_from([*SAID, "goodput", "percentage", "remaining"]), anything))
def test_whatever_is_said_it_can_be_shown(said):
    assert len(json.dumps(as_read(said))) < 4096
