"""The places of waiting jobs: each team has lines of its own, in the order in which jobs are served (161)."""

from __future__ import annotations

import pytest

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.forecast.positions import positions, queued_jobs, rounded
from tests.plan.allocate.world import make_inputs, make_job, make_node, make_team

NODE = make_node("n1", 2)
TEAMS = [make_team("red"), make_team("blue")]


def places(*jobs):
    """The place of each waiting job."""
    inputs = make_inputs([NODE], jobs, teams=TEAMS)
    allocation = allocate(inputs)
    return positions(queued_jobs(inputs.jobs, allocation), allocation)


def test_a_line_is_in_the_order_of_priority_and_age_and_each_team_has_its_own():
    runs = make_job("runs", 2, on="n1 n1", team="red", priority=9)
    old, young = make_job("old", 2, age=9, team="red"), make_job("young", 2, age=1, team="red")
    urgent, other = make_job("urgent", 2, age=0, team="red", priority=1), make_job("other", 2, age=0, team="blue")
    assert places(runs, young, old, urgent, other) == {"urgent": 1, "old": 2, "young": 3, "other": 1}


def test_jobs_that_run_want_nothing_or_have_no_clear_flavor_have_no_place_in_line():
    runs = make_job("runs", 2, on="n1 n1", team="red", priority=9)
    ended, unclear = (
        make_job("ended", 2, team="red", wants_pods=False),
        make_job("x", 2, team="red", flavor_problem="two"),
    )
    assert places(runs, ended, unclear, make_job("waits", 2, team="red")) == {"waits": 1}


@pytest.mark.parametrize(
    ("exact", "told"), [(1, 1), (10, 10), (11, 20), (20, 20), (21, 30), (99, 100), (101, 200), (4321, 5000)]
)
def test_far_back_only_one_digit_is_exact(exact, told):
    assert rounded(exact) == told


def test_where_the_first_of_5000_starts_31_hear_of_it():
    assert sum(rounded(place) != rounded(place - 1) for place in range(2, 5001)) == 31
