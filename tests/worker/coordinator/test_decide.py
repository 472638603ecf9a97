"""What the coordinator decides, case by case: a state and a time in, a decision out."""

from dataclasses import replace

import pytest

from elastic_worker.coordinator.choose import NEWCOMER_SECONDS, RECONNECT_SECONDS
from elastic_worker.coordinator.decide import ADOPT_SECONDS, CAUSE_SECONDS, backoff, decide
from elastic_worker.coordinator.execute import Executor
from elastic_worker.coordinator.member import Disconnected, Gone, Running
from elastic_worker.coordinator.state import Phase, Rules
from tests.worker.coordinator.states import failure, make_group, make_membership, make_state, member, training

ALIGNED = Rules(align_seconds=60.0)


def names(decision):
    return [pod.uid for pod in decision.group.pods]


def lose(state, uid, *, at):
    state.members[uid].disconnect(at + RECONNECT_SECONDS)


def test_nobody_trains_before_the_operator_has_said_who():
    decision = decide(make_state(member(0), member(1)), 5.0)
    assert decision.act == "stay"
    assert "operator" in decision.sentence


def test_a_group_forms_when_all_that_are_in_the_membership_are_warm():
    decision = decide(make_state(member(1), member(0), membership=make_membership(0, 1)), 5.0)
    assert (decision.act, names(decision), decision.group.number) == ("form", ["u0", "u1"], 1)


def test_further_newcomers_are_waited_for_and_not_for_ever():
    state = make_state(member(0), member(1), member(2, warm=None), membership=make_membership(0, 1, 2))
    waits = decide(state, 5.0)
    assert (waits.act, waits.until) == ("stay", NEWCOMER_SECONDS)
    forms = decide(state, NEWCOMER_SECONDS)
    assert (forms.act, names(forms)) == ("form", ["u0", "u1"])


def test_below_the_minimum_it_waits_however_long_that_is():
    state = waiting(make_group(0, 1, 2), member(0), member(1), membership=make_membership(0, 1, number=2, fewest=3))
    few = decide(state, 1000.0)
    assert (few.act, few.sentence) == ("stay", "2 pods are warm, the smallest allowed group has 3")
    state.membership, state.members["u3"] = make_membership(0, 1, 3, number=3, fewest=3), member(3)
    assert names(decide(state, 1000.0)) == ["u0", "u1", "u3"]


def test_without_its_master_no_group_forms():
    state = make_state(member(1), member(2), membership=make_membership(0, 1, 2))
    assert decide(state, 1000.0).act == "stay"


def test_who_is_waited_for_is_told():
    cold = make_state(member(0, warm=None), member(1), membership=make_membership(0, 1, fewest=1))
    assert "the master is not warm yet" in decide(cold, 5.0).sentence


@pytest.mark.parametrize(
    ("membership", "size"),
    [
        (make_membership(0, 1, 2, fewest=1, sizes=(2, 4)), 2),
        (make_membership(0, 1, 2, fewest=1, step=2), 3),
        (make_membership(0, 1, 2, fewest=2, step=2), 2),
        (make_membership(0, 1, 2, most=2), 2),
    ],
)
def test_only_allowed_sizes_form(membership, size):
    decision = decide(make_state(member(0), member(1), member(2), membership=membership), 50.0)
    assert (decision.act, len(decision.group.pods)) == ("form", size)


def test_the_master_is_first_survivors_keep_their_order_newcomers_follow():
    group = make_group(0, 3, 1)
    state = make_state(member(1), member(2), member(3), member(0), membership=make_membership(0, 1, 2, 3), group=group)
    state.phase_since = 1.0
    assert names(decide(state, 2.0)) == ["u0", "u3", "u1", "u2"]


def test_a_pod_that_is_not_in_the_membership_takes_no_part():
    decision = decide(make_state(member(0), member(1), member(7), membership=make_membership(0, 1)), 5.0)
    assert names(decision) == ["u0", "u1"]


def test_a_warm_newcomer_joins_at_once_where_there_is_no_checkpoint_to_wait_for():
    state = training(0, 1, membership=make_membership(0, 1, 2))
    state.members["u2"] = member(2)
    decision = decide(state, 5.0)
    assert (decision.act, decision.reason) == ("stop", "Join")


def test_several_newcomers_join_together():
    state = training(0, 1, membership=make_membership(0, 1, 2, 3))
    state.members["u2"] = member(2, warm=5.0)
    assert decide(state, 6.0).act == "stay"
    state.members["u3"] = member(3, warm=7.0)
    assert decide(state, 7.0).act == "stop"


def test_growth_waits_for_a_checkpoint_without_limit():
    state = training(0, 1, membership=make_membership(0, 1, 2), rules=ALIGNED)
    state.members["u2"] = member(2)
    decision = decide(state, 5.0)
    assert (decision.act, decision.seconds) == ("align", None)
    state.phase, state.change_reason, state.planned_at = Phase.ALIGNING, "Join", 5.0
    assert decide(state, 10_000.0).act == "stay"
    state.aligned = True
    assert decide(state, 10_000.0).act == "stop"


def test_who_leaves_waits_for_a_checkpoint_as_long_as_its_grace_allows():
    state = training(0, 1, 2, membership=make_membership(0, 1, 2), rules=ALIGNED)
    state.members["u2"].start_leaving(25.0)
    decision = decide(state, 5.0)
    assert (decision.act, decision.reason, decision.seconds) == ("align", "Leave", 18.0)
    state.phase, state.change_reason, state.planned_at = Phase.ALIGNING, "Leave", 5.0
    assert decide(state, 22.0).act == "stay"
    assert decide(state, 23.0).act == "stop"


def test_a_leaver_that_changes_its_mind_ends_the_wait():
    """The operator takes its membership back before anything was stopped."""
    state = training(0, 1, 2, membership=make_membership(0, 1, number=2), rules=ALIGNED)
    state.phase, state.change_reason = Phase.ALIGNING, "Leave"
    assert decide(state, 5.0).act == "stay"
    state.membership = make_membership(0, 1, 2, number=3)
    assert decide(state, 5.0).act == "resume"


def test_a_loss_does_not_wait_for_a_checkpoint():
    state = training(0, 1, 2, rules=ALIGNED)
    lose(state, "u2", at=5.0)
    assert decide(state, 5.0).act == "stay"
    decision = decide(state, 5.0 + RECONNECT_SECONDS)
    assert (decision.act, decision.reason) == ("stop", "Loss")


def test_a_broken_line_and_a_failed_process_together_are_a_loss_at_once():
    state = training(0, 1, 2)
    lose(state, "u2", at=5.0)
    state.members["u1"].failure = failure(1, message="Connection closed by peer", is_consequence=True)
    assert decide(state, 5.0).reason == "Loss"


def test_of_several_failures_the_one_that_is_no_consequence_is_told():
    state = training(0, 1, 2)
    state.members["u0"].failure = failure(0, at=4.0, message="Connection closed by peer", is_consequence=True)
    state.members["u2"].failure = failure(2, at=4.1, message="ValueError: boom")
    decision = decide(state, 5.0)
    assert (decision.act, decision.reason) == ("stop", "Failure")
    assert "ValueError" in decision.sentence


def test_a_consequence_waits_for_its_cause_to_be_heard():
    """Killed processes are often found later than those whose connections they broke."""
    state = training(0, 1, 2)
    state.members["u0"].failure = failure(0, at=4.0, message="Connection closed by peer", is_consequence=True)
    early = decide(state, 4.1)
    assert (early.act, early.until) == ("stay", 4.0 + CAUSE_SECONDS)
    late = decide(state, 4.0 + CAUSE_SECONDS)
    assert (late.act, late.reason, late.failure.rank) == ("stop", "Failure", 0)
    state.members["u2"].failure = failure(2, rank=2, at=4.2, message="rank 2 was killed by SIGKILL")
    told = decide(state, 4.2)
    assert (told.act, told.failure.rank) == ("stop", 2)


def waiting(group, *members, membership):
    state = make_state(*members, membership=membership, group=group)
    state.phase_since = 1.0
    return state


def test_after_a_loss_the_others_go_on_without_waiting_for_a_replacement():
    state = waiting(
        make_group(0, 1, 2),
        member(0),
        member(1),
        member(2, presence=Disconnected(1.0)),
        membership=make_membership(0, 1, 2),
    )
    decision = decide(state, 5.0)
    assert (decision.act, names(decision), decision.group.number) == ("form", ["u0", "u1"], 2)


def test_an_even_split_pauses_until_the_operator_speaks():
    lost = [member(2, presence=Disconnected(1.0)), member(3, presence=Disconnected(1.0))]
    state = waiting(make_group(0, 1, 2, 3), member(0), member(1), *lost, membership=make_membership(0, 1, 2, 3))
    assert decide(state, 50.0).act == "stay"
    state.membership = make_membership(0, 1, number=2)
    assert decide(state, 50.0).act == "form"


def test_the_smaller_part_goes_on_where_no_other_master_can_follow_but_not_below_the_minimum():
    lost = [member(index, presence=Disconnected(1.0)) for index in (1, 2, 3)]
    membership = make_membership(0, 1, 2, 3, fewest=1, has_successor=False)
    state = waiting(make_group(0, 1, 2, 3), member(0), *lost, membership=membership)
    assert names(decide(state, 5.0)) == ["u0"]
    state.membership = replace(membership, fewest=2)
    assert decide(state, 50.0).act == "stay"


def test_pods_that_said_goodbye_are_no_other_half():
    left = [member(2, presence=Gone()), member(3, presence=Gone())]
    state = waiting(make_group(0, 1, 2, 3), member(0), member(1), *left, membership=make_membership(0, 1, 2, 3))
    assert decide(state, 5.0).act == "form"


def test_a_new_master_waits_for_those_who_were_there_before():
    membership = make_membership(9, 1, 2, number=1)
    state = make_state(member(9), member(1), membership=membership, group=make_group(0, 1, 2), own_uid="u9", epoch=2)
    assert decide(state, 5.0).act == "stay"
    assert names(decide(state, NEWCOMER_SECONDS)) == ["u9", "u1"]
    state.members["u2"] = member(2)
    assert names(decide(state, 5.0)) == ["u9", "u1", "u2"]


def test_a_group_that_trains_already_is_adopted():
    state = make_state(
        member(0, processes=Running(1)),
        member(1, processes=Running(1)),
        membership=make_membership(0, 1),
        group=make_group(0, 1),
    )
    assert decide(state, 0.5).act == "adopt"


def test_an_adopted_group_is_waited_for_and_then_given_up():
    state = make_state(member(0, processes=Running(1)), membership=make_membership(0, 1), group=make_group(0, 1))
    assert decide(state, 0.5).act == "stay"
    assert decide(state, ADOPT_SECONDS).act == "adopt"
    state.phase = Phase.RUNNING
    assert (decide(state, ADOPT_SECONDS).act, decide(state, ADOPT_SECONDS).reason) == ("stop", "Loss")


def test_who_trains_under_a_master_that_is_no_more_is_stopped_at_once():
    state = make_state(
        member(9),
        member(1, processes=Running(1)),
        membership=make_membership(9, 1),
        group=make_group(0, 1),
        own_uid="u9",
        epoch=2,
    )
    assert decide(state, 0.5).act == "adopt"
    state.phase = Phase.RUNNING
    assert decide(state, 0.5).reason == "MasterLost"


def test_the_job_is_done_when_all_have_finished_and_not_before():
    state = training(0, 1)
    state.members["u0"].mark_finished(1)
    assert decide(state, 5.0).act == "stay"
    state.members["u1"].mark_finished(1)
    assert decide(state, 5.0).act == "done"


def test_while_one_has_finished_nobody_joins():
    state = training(0, 1, membership=make_membership(0, 1, 2))
    state.members["u2"] = member(2)
    state.members["u0"].mark_finished(1)
    assert decide(state, 50.0).act == "stay"


def test_too_many_failures_end_the_job_with_the_last_one():
    state = waiting(make_group(0, 1), member(0), member(1), membership=make_membership(0, 1))
    state.failures, state.failure = 3, failure(1, message="rank 1 failed with exit code 1: boom")
    decision = decide(state, 5.0)
    assert decision.act == "fail"
    assert "boom (failure 3 in a row)" in decision.failure.message


@pytest.mark.parametrize(
    ("fields", "act"),
    [
        ({"exit_code": 42}, "fail"),
        ({"exit_code": -9}, "fail"),
        ({"exit_code": 1}, "form"),
        ({"exit_code": -9, "rank": -1}, "form"),
        ({"exit_code": -9, "is_stall": True}, "form"),
    ],
    ids=["its own code", "a signal", "another code", "a lost pod", "a stall"],
)
def test_a_final_exit_code_ends_the_job_at_the_first_failure(fields, act):
    board = waiting(make_group(0, 1), member(0), member(1), membership=make_membership(0, 1))
    board.rules = replace(board.rules, final_exit_codes=frozenset({42, 137}))
    board.failures, board.failure = 1, replace(failure(1, message="rank 1 failed"), **fields)
    assert decide(board, 10.0).act == act


def test_a_failure_is_tried_again_after_its_time():
    state = waiting(make_group(0, 1), member(0), member(1), membership=make_membership(0, 1))
    state.failures, state.failure, state.restart_at = 2, failure(1), 8.0
    assert decide(state, 5.0).until == 8.0
    assert decide(state, 8.0).act == "form"


def test_waits_double_up_to_a_minute():
    assert [backoff(n) for n in (1, 2, 3, 4, 20)] == [0.0, 1.0, 2.0, 4.0, 60.0]


def test_a_group_in_which_nobody_does_anything_has_stalled():
    state = training(0, 1, rules=Rules(stall_seconds=100.0))
    state.members["u0"].idle_seconds = 500.0
    assert decide(state, 5.0).act == "stay"
    state.members["u1"].idle_seconds = 100.0
    assert decide(state, 5.0).reason == "Failure"


def test_who_hangs_when_the_others_have_finished_has_stalled():
    state = training(0, 1, rules=Rules(stall_seconds=100.0))
    state.members["u0"].mark_finished(1)
    state.members["u1"].idle_seconds = 99.0
    stay = decide(state, 5.0)
    assert (stay.act, stay.until) == ("stay", 15.0)
    state.members["u1"].idle_seconds = 100.0
    stop = decide(state, 5.0)
    assert (stop.act, stop.failure.is_stall) == ("stop", True)
    assert "worker-0 has not ended though others have finished" in stop.sentence


def test_stopping_lasts_until_every_member_has_stopped():
    state = training(0, 1)
    state.phase = Phase.STOPPING
    assert decide(state, 5.0).act == "stay"
    state.members["u0"].mark_stopped("")
    lose(state, "u1", at=5.0)
    assert decide(state, 5.0).act == "stopped"


def test_who_does_not_say_that_it_has_stopped_is_given_up_in_the_end_and_the_others_go_on():
    state = training(0, 1, 2)
    state.phase, state.phase_since, state.change_reason = Phase.STOPPING, 5.0, "Failure"
    for index in (0, 1):
        state.members[f"u{index}"].mark_stopped("")
    waits = decide(state, 6.0)
    assert decide(state, waits.until - 0.1).act == "stay"
    gives_up = decide(state, waits.until)
    assert (gives_up.act, [pod.uid for pod in gives_up.pods]) == ("give_up", ["u2"])
    executor = Executor(state, lambda _uid, _message: None)
    executor.do(gives_up, waits.until)
    assert decide(state, waits.until).act == "stopped"
    executor.do(decide(state, waits.until), waits.until)
    formed = decide(state, waits.until + 20.0)
    assert [pod.uid for pod in formed.group.pods] == ["u0", "u1"]
    [named] = executor.status("")["givenUp"]
    assert named["pod"] == "toy-worker-1"
    executor.do(formed, waits.until + 20.0)
    executor.stopped(state.members["u2"], None)
    assert decide(state, waits.until + 40.0).reason == "Join", "it has stopped after all"


def test_a_master_that_leaves_stops_all_and_nobody_goes_on():
    state = training(0, 1, 2)
    master = state.members["u0"]
    master.start_leaving(50.0)
    assert (decide(state, 5.0).act, decide(state, 5.0).reason) == ("stop", "Leave")
    master.mark_stopped("")
    after = waiting(make_group(0, 1, 2), master, member(1), member(2), membership=state.membership)
    assert decide(after, 5.0).act == "stay"
    assert "new one" in decide(after, 5.0).sentence
