"""What the records of trainings are judged by: each rule has a case that breaks it."""

import pytest

from tests.soak.records import Cause, Step, judge

STEPS = 4
"""Of an epoch."""


def group(number, *, begin, epochs, time, ranks=1, stop=STEPS, master=1):
    """A group's steps, one a second: whole epochs from `begin` on, of the last one `stop` steps."""
    made = []
    for epoch in range(begin, begin + epochs):
        for step in range(stop if epoch == begin + epochs - 1 else STEPS):
            made += [
                Step(time + rank / 100, (master, number), f"u{rank}", rank, ranks, epoch, step) for rank in range(ranks)
            ]
            time += 1.0
    return made


def verdict(*groups, causes=(), most=100.0):
    return judge([step for one in groups for step in one], causes, epoch_steps=STEPS, most_pause_seconds=most)


def test_planned_changes_lose_nothing():
    found = verdict(
        group(1, begin=0, epochs=2, time=0, ranks=2),
        group(2, begin=2, epochs=1, time=20, ranks=3),
        group(1, begin=3, epochs=2, time=40, master=2),
    )
    assert found.wrong == ()
    assert (found.epochs, found.lost, len(found.changes)) == (5, 0, 2)
    assert found.longest_pause_seconds == pytest.approx(17.0)


def test_a_fault_may_cost_the_work_since_the_last_checkpoint():
    broken = group(1, begin=0, epochs=2, time=0, stop=3)
    again = group(2, begin=1, epochs=2, time=20)
    assert verdict(broken, again, causes=[Cause("a kill", 6.5, 50.0)]).wrong == ()
    assert verdict(broken, again, causes=[Cause("a kill", 6.5, 50.0)]).lost == 3


def test_a_loss_without_a_fault_is_wrong():
    found = verdict(
        group(1, begin=0, epochs=2, time=0, stop=3),
        group(2, begin=1, epochs=2, time=20),
        causes=[Cause("a kill, later", 30.0, 50.0)],
    )
    assert found.wrong == ("3 steps were done again from group (1, 1) to (1, 2), though no fault was under way",)


def test_a_loss_is_a_faults_however_long_the_next_group_takes():
    broken = group(1, begin=0, epochs=2, time=0, stop=3)
    slow = group(2, begin=1, epochs=2, time=90)
    assert verdict(broken, slow, causes=[Cause("a kill", 6.5, 50.0)]).wrong == ()
    assert len(verdict(broken, slow, causes=[Cause("an earlier kill", 0.0, 5.0)]).wrong) == 1


def test_more_than_an_epoch_is_wrong_even_after_a_fault():
    broken = group(1, begin=0, epochs=3, time=0, stop=2)
    found = verdict(broken, group(2, begin=1, epochs=3, time=20), causes=[Cause("a kill", 0.0, 50.0)])
    assert found.wrong == (
        "6 steps were done again from group (1, 1) to (1, 2): a kill cost 6 steps in all, an epoch has 4",
    )


def test_a_fault_that_ends_two_groups_may_cost_one_epoch_in_all():
    groups = (
        group(1, begin=0, epochs=2, time=0, stop=3),
        group(2, begin=1, epochs=1, time=20, stop=2),
        group(3, begin=1, epochs=1, time=30),
    )
    assert len(verdict(*groups, causes=[Cause("a kill", 0.0, 50.0)]).wrong) == 1


def test_what_a_fault_costs_is_not_put_down_to_an_earlier_one_that_has_not_quite_ended():
    groups = (
        group(1, begin=0, epochs=2, time=0, stop=3),
        group(2, begin=1, epochs=1, time=20, stop=2),
        group(3, begin=1, epochs=1, time=30),
    )
    faults = [Cause("a kill", 0.0, 50.0), Cause("another", 21.5, 50.0)]
    assert verdict(*groups, causes=faults).wrong == ()
    late = [Cause("a kill", 0.0, 50.0), Cause("another", 19.0, 50.0)]  # both may have ended both groups
    assert verdict(*groups, causes=late).wrong == ()


def test_an_epoch_left_out_is_wrong():
    found = verdict(group(1, begin=0, epochs=2, time=0), group(2, begin=3, epochs=1, time=20))
    assert found.wrong == ("after epoch 1, step 3 of group (1, 1) comes epoch 3, step 0 of group (1, 2)",)


def test_a_step_left_out_within_a_group_is_wrong():
    steps = group(1, begin=0, epochs=2, time=0)
    del steps[2]
    assert verdict(steps).wrong == ("after epoch 0, step 1 of group (1, 1) comes epoch 0, step 3 of group (1, 1)",)


def test_a_group_that_goes_back_by_itself_is_wrong():
    steps = group(1, begin=0, epochs=1, time=0) + group(1, begin=0, epochs=1, time=20)
    assert verdict(steps).wrong == ("after epoch 0, step 3 of group (1, 1) comes epoch 0, step 0 of group (1, 1)",)


def test_a_training_that_does_not_begin_at_the_beginning_is_wrong():
    assert verdict(group(1, begin=1, epochs=1, time=0)).wrong == ("it begins with epoch 1, step 0",)


@pytest.mark.parametrize(("master", "number"), [(1, 2), (2, 1)])
def test_a_process_of_an_older_group_that_goes_on_after_a_newer_one_has_begun_is_wrong(master, number):
    old, new = group(1, begin=0, epochs=1, time=0), group(number, begin=1, epochs=1, time=10, master=master)
    late = [Step(10.5 + step, (1, 1), "u1", 1, 2, 1, step) for step in range(2)]
    assert verdict(old, late[:1], new).wrong == ()  # it was frozen in the middle of it
    found = verdict(old, late, new)
    told = f"1.50 s after group ({master}, {number}) had begun"
    assert found.wrong == (f"rank 1 of group (1, 1) went on, and did a step {told}",)


def test_a_standstill_is_wrong():
    groups = (group(1, begin=0, epochs=1, time=0), group(2, begin=1, epochs=1, time=103))
    assert verdict(*groups, most=100.0).wrong == ()
    assert verdict(*groups, most=99.0).wrong == ("it stood still for 100 s",)
