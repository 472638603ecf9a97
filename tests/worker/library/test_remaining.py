"""How much of a training is left."""

import math

import pytest

from elastic_worker.library.remaining import Remaining


def test_the_pace_of_the_present_group_gives_the_remaining_time():
    remaining = Remaining()
    assert remaining.look(10, 100, 1000.0) == (10, None)
    assert remaining.look(20, 100, 1005.0) == (20, 40)
    remaining.entered()
    assert remaining.look(20, 100, 1010.0) == (20, 40)
    assert remaining.look(40, 100, 1015.0) == (40, 15)
    assert remaining.look(100, 100, 1020.0) == (100, 0)


def test_the_pace_of_the_group_before_holds_until_the_new_one_is_known():
    remaining = Remaining()
    remaining.look(10, 100, 1000.0)
    remaining.look(20, 100, 1005.0)
    remaining.entered()
    assert remaining.look(30, 100, 1020.0) == (30, 35)
    assert remaining.look(40, 100, 1030.0) == (40, 60)


def test_a_training_that_goes_back_is_measured_from_there():
    remaining = Remaining()
    assert remaining.look(50, 100, 0.0) == (50, None)
    assert remaining.look(10, 100, 10.0) == (10, None)
    assert remaining.look(20, 100, 11.0) == (20, 8)


@pytest.mark.parametrize("total", [None, 0, -1, math.inf, math.nan, True, "100", 4])
def test_without_a_total_nothing_is_known(total):
    assert Remaining().look(5, total, 0.0) == (None, None)
