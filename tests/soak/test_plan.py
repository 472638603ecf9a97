"""What a soak does follows from its seed."""

from collections import Counter

from tests.soak.edits import EDITS
from tests.soak.faults import FAULT, FAULTS
from tests.soak.hostile import HOSTILITIES
from tests.soak.plan import FIRST_SECOND, LAST_SECOND, make_plan

KINDS = [*EDITS, *HOSTILITIES, *FAULTS]


def test_the_same_seed_makes_the_same_plan_and_another_seed_another_one():
    assert make_plan(7, 30, KINDS) == make_plan(7, 30, KINDS)
    assert make_plan(7, 30, KINDS) != make_plan(8, 30, KINDS)


def test_a_longer_plan_begins_like_a_shorter_one():
    assert make_plan(7, 30, KINDS)[:5] == make_plan(7, 5, KINDS)


def test_each_minute_has_a_policy_edit_a_job_edit_a_hostile_act_and_a_fault_in_order_of_time():
    for number, deeds in enumerate(make_plan(7, 30, KINDS)):
        assert Counter(deed.sort for deed in deeds) == {"policy": 1, "job": 1, "turn": 1, "hostile": 1, "fault": 1}
        assert {deed.minute for deed in deeds} == {number}
        assert deeds == sorted(deeds, key=lambda deed: deed.second)
        assert all(FIRST_SECOND <= deed.second <= LAST_SECOND for deed in deeds)


def test_no_fault_comes_again_before_all_others_have_been():
    dealt = [deed.name for deeds in make_plan(7, len(FAULTS), KINDS) for deed in deeds if deed.sort == FAULT]
    assert sorted(dealt) == sorted(kind.name for kind in FAULTS)


def test_no_two_deeds_have_one_name():
    assert len({kind.name for kind in KINDS}) == len(KINDS)
