"""The account of a job under faults: red where a sample was left out or came twice, or a checkpoint was not needed."""

import pytest

from elastic_worker.library.sampler import Sampler
from tests.worker.chaos import account
from tests.worker.job.exactly_once import BATCH, LENGTH, STEPS

WORLD = 3


def lineage():
    """What three ranks write down of an epoch, all in one group."""
    sampler = Sampler(LENGTH, global_batch=BATCH, micro_batch=account.MICRO, seed=7)
    return {step: [_line(sampler, step, rank) for rank in range(WORLD)] for step in range(1, STEPS + 1)}


def lost_seconds(steps, *, ended):
    return sum(lost for *_, lost in account.losses(steps, began=0.0, ended=ended))


def _line(sampler, step, rank):
    share = sampler.share_at((step - 1) * BATCH, rank, WORLD)
    samples = [index for micro in share.micro for index in micro.indices]
    where = {"master": 1, "generation": 1, "rank": rank, "world": WORLD, "pod": f"pod-{rank}", "pid": 7}
    return {**where, "step": step, "time": float(step), "samples": samples}


def test_each_sample_once_is_right():
    assert account.count_samples(lineage()) == LENGTH


def test_a_sample_that_came_twice_is_wrong():
    seen = lineage()
    seen[5][0]["samples"][0] = seen[4][0]["samples"][0]
    with pytest.raises(AssertionError, match="step 5"):
        account.count_samples(seen)


def test_a_sample_that_was_left_out_is_wrong():
    seen = lineage()
    seen[5][0]["samples"].pop()
    with pytest.raises(AssertionError, match="step 5"):
        account.count_samples(seen)


def test_a_step_that_was_left_out_is_wrong():
    seen = lineage()
    del seen[5]
    with pytest.raises(AssertionError):
        account.count_samples(seen)


def test_a_rank_that_goes_on_has_left_out_what_it_did_not_write_down():
    seen = lineage()
    del seen[STEPS][2]
    assert account.count_samples(seen) == LENGTH, "it may have been killed in the last step"
    del seen[5][2]
    with pytest.raises(AssertionError, match="step 5: nothing of ranks"):
        account.count_samples(seen)


def test_a_checkpoint_read_while_a_pod_has_the_state_is_wrong_unless_that_pod_is_cut_off():
    steps = [line for lines in lineage().values() for line in lines]
    read = [(10.5, 10)]
    account.assert_read_after_the_loss_of_all(read, [line for line in steps if line["time"] < 10.5], [])
    with pytest.raises(AssertionError, match="step 10 was read"):
        account.assert_read_after_the_loss_of_all(read, steps, [("pod-0", 10.1, 12.0)])
    cut_off = [(f"pod-{rank}", 10.1, 12.0) for rank in range(WORLD)]
    account.assert_read_after_the_loss_of_all(read, steps, cut_off)


def test_a_pause_and_steps_that_are_done_again_are_lost():
    steps = [line for lines in lineage().values() for line in lines]
    assert lost_seconds(steps, ended=STEPS + 1.0) == 0.0
    again = [{**line, "time": line["time"] + 20.0} for line in steps if line["step"] > 10]
    assert lost_seconds([*steps, *again], ended=STEPS + 21.0) == 20.0


def test_a_late_line_of_a_frozen_process_costs_the_others_nothing():
    steps = [line for lines in lineage().values() for line in lines]
    frozen = [{**line, "time": 15.5} for line in steps if line["step"] == 10 and line["rank"] == 1]
    others = [{**line, "generation": 2} for line in steps if line["step"] > 10]
    assert lost_seconds([*steps[:30], *frozen, *others], ended=STEPS + 1.0) == 0.0


def test_a_gap_is_of_the_first_fault_during_it_or_else_of_the_latest_before_it():
    moments = [(10.0, "cut"), (30.0, "join"), (31.0, "leave")]
    found = [(9.9, 12.0, 2.0), (14.0, 15.0, 0.9), (29.9, 33.0, 3.0)]
    assert account.lost_by_kind(found, moments) == {"cut": (1, 2.9), "join": (1, 3.0), "leave": (1, 0.0)}


def test_a_gap_before_any_fault_is_of_none():
    assert account.lost_by_kind([(1.0, 2.0, 0.9)], [(10.0, "cut")]) == {"cut": (1, 0.0), account.NO_FAULT: (0, 0.9)}
