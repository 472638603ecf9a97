"""The judges of `make chaos`, and what its table and its line of JSON say of two rounds."""

import json

import pytest

from tests.worker.chaos.compare import summary, table
from tests.worker.chaos.run import Outcome, Torment, assert_one_group_at_a_time

LIBRARY = Torment(3, 60.0, {"cut": (1, 4.0), "join": (1, 0.2), "no fault": (0, 0.3)})
TORCHRUN = Torment(3, 60.0, {"cut": (1, 5.0), "two at once": (1, 40.0)})


def figures():
    ours = [Outcome(LIBRARY, samples=100), Outcome(Torment(1, 20.0, {"cut": (1, 2.0)}), samples=50, read=1)]
    return summary(ours, [TORCHRUN, Torment(1, 20.0, {})], [])


def test_faults_and_what_they_cost_are_added_up_by_kind():
    library = figures()["library"]
    assert library["by_kind"] == {"cut": [2, 6.0], "join": [1, 0.2], "no fault": [0, 0.3]}
    assert (library["faults"], library["lost"], library["goodput"]) == (4, 6.5, round(1 - 6.5 / 80, 4))


def test_the_ratio_is_what_torchrun_lost_over_what_the_library_lost():
    assert figures()["ratios"]["lost_torchrun_over_library"] == round(45.0 / 6.5, 2)


def test_the_table_has_each_kind_that_either_met_with_seconds_for_each_fault():
    rows = {line[:22].strip(): line[22:].split() for line in table(figures()).splitlines()}
    assert rows["cut"] == ["2", "3.00", "s", "5.00", "s"]
    assert rows["two at once"] == ["0", "0.00", "s", "40.00", "s"]
    assert rows["no fault"] == ["0", "0.30", "s", "0.00", "s"]


def test_all_of_it_goes_into_a_line_of_json():
    assert json.loads(json.dumps(figures())) == figures()


def line(time, generation, step, rank=0):
    return {"time": time, "master": 1, "generation": generation, "epoch": 0, "step": step, "rank": rank}


def test_an_older_group_does_no_step_after_a_later_one_except_a_step_that_all_had_done():
    steps = [line(1.0, 1, 1), line(1.1, 1, 1, rank=1), line(2.0, 1, 2, rank=1), line(3.0, 2, 3, rank=1)]
    assert_one_group_at_a_time([*steps, line(4.0, 1, 2)])
    with pytest.raises(AssertionError, match="had begun"):
        assert_one_group_at_a_time([*steps, line(4.0, 1, 3)])
