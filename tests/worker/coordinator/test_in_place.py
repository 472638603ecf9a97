"""What is decided for groups that change in place, case by case; whole courses are test_in_place_histories'."""

from dataclasses import replace

import pytest

from elastic_worker.contract import IN_PLACE, RESTART
from elastic_worker.coordinator.decide import decide
from elastic_worker.coordinator.decision import LOOK_SECONDS, Decision
from elastic_worker.coordinator.execute import Executor
from elastic_worker.coordinator.in_place import AGREE_SECONDS, FORM_SECONDS, MOST_ATTEMPTS, NEWCOMER_SECONDS
from elastic_worker.coordinator.inbox import Inbox
from elastic_worker.coordinator.member import Assigned, Disconnected, Member
from elastic_worker.coordinator.state import Phase, RegroupAttempt, Stage
from elastic_worker.protocol import orders, reports
from elastic_worker.protocol.codec import to_line
from tests.worker.coordinator.states import failure, make_group, make_membership, make_pod, member, training


def in_place(*indices, mode=IN_PLACE, **more):
    """These pods train, and their processes are in generation 1."""
    state = training(*indices, **more)
    for each in state.members.values():
        joined(each, 1, mode=mode)
    return state


def joined(member, number, *, mode=IN_PLACE):
    member.mark_ready(reports.Ready(True, number, holds=True, change_mode=mode), 0.0)


def loses_a_process(member):
    member.mark_ready(reports.Ready(False, change_mode=IN_PLACE), 9.0)


def waits(member, *, since):
    member.mark_ready(reports.Ready(True, change_mode=IN_PLACE), since)


def add(state, index, *, ready=None, **more):
    state.members[f"u{index}"] = newcomer = member(index, **more)
    if ready is not None:
        waits(newcomer, since=ready)
    return newcomer


def attempt(state, *indices, stage=Stage.FORMING, broken=False, **more):
    group = make_group(*indices, number=2)
    state.attempt = RegroupAttempt(group, 1, broken=broken, since=10.0, stage=stage, **more)
    return state.attempt


def names(decision):
    return [pod.uid for pod in decision.attempt.group.pods]


def test_a_newcomers_processes_start_while_the_others_train():
    state = in_place(0, 1, membership=make_membership(0, 1, 2))
    newcomer = add(state, 2)
    decision = decide(state, 5.0)
    assert (decision.act, [pod.uid for pod in decision.pods]) == ("candidates", ["u2"])
    newcomer.start_missing()
    assert decide(state, 5.0).act == "stay"


def test_a_ready_newcomer_joins_after_a_short_wait_for_others_that_get_ready():
    state = in_place(0, 1, membership=make_membership(0, 1, 2, 3))
    add(state, 2, ready=5.0)
    add(state, 3).start_missing()
    waits = decide(state, 6.0)
    assert (waits.act, waits.until) == ("stay", 5.0 + NEWCOMER_SECONDS)
    joins = decide(state, 5.0 + NEWCOMER_SECONDS)
    assert (joins.act, joins.reason, names(joins)) == ("prepare", "Join", ["u0", "u1", "u2"])
    assert not joins.attempt.broken


def test_who_is_told_to_go_is_left_out_beside_the_running_group():
    state = in_place(0, 1, 2)
    state.members["u2"].start_leaving(40.0)
    decision = decide(state, 10.0)
    assert (decision.act, decision.reason, names(decision)) == ("prepare", "Leave", ["u0", "u1"])


def test_a_lost_pod_breaks_the_group_and_nobody_waits_for_newcomers():
    state = in_place(0, 1, 2, membership=make_membership(0, 1, 2, 3))
    state.members["u2"].mark_gone()
    add(state, 3).start_missing()
    decision = decide(state, 10.0)
    assert (decision.act, decision.reason, names(decision)) == ("prepare", "Loss", ["u0", "u1"])
    assert decision.attempt.broken


def test_an_even_split_waits_for_the_operator_with_the_state_in_memory():
    state = in_place(0, 1, membership=make_membership(0, 1, fewest=1))
    state.members["u1"].disconnect(1.0)
    parked = decide(state, 10.0)
    assert (parked.act, parked.reason, parked.attempt) == ("wait_broken", "Loss", None)
    assert "not more than half" in parked.sentence
    state.parked = parked.sentence
    assert "kept in memory" in decide(state, 11.0).sentence
    state.membership = make_membership(0, fewest=1, number=2)
    assert names(decide(state, 12.0)) == ["u0"]


def test_more_pods_than_may_take_part_wait_and_step_in():
    state = in_place(0, 1, 2, membership=make_membership(0, 1, 2, 3, most=3))
    add(state, 3, ready=5.0)
    assert decide(state, 10.0).act == "stay"
    state.members["u1"].disconnect(1.0)
    assert names(decide(state, 11.0)) == ["u0", "u2", "u3"]


def test_a_pod_that_has_lost_a_process_is_left_out_until_it_is_ready_again():
    state = in_place(0, 1, 2)
    cut = state.members["u1"]
    loses_a_process(cut)
    told = decide(state, 10.0)
    assert (told.act, [pod.uid for pod in told.pods]) == ("candidates", ["u1"])
    cut.start_missing()
    assert names(decide(state, 10.0)) == ["u0", "u2"]


def test_without_the_masters_processes_all_wait_with_the_state_in_memory():
    state = in_place(0, 1)
    master = state.members["u0"]
    loses_a_process(master)
    master.start_missing()
    parked = decide(state, 10.0)
    assert (parked.act, parked.reason) == ("wait_broken", "MasterLost")
    state.parked = parked.sentence
    assert "kept in memory" in decide(state, 11.0).sentence
    waits(master, since=12.0)
    back = decide(state, 12.0)
    assert (back.act, names(back), back.attempt.broken) == ("prepare", ["u0", "u1"], True)


@pytest.mark.parametrize("leaving", [(1,), (0, 1)])
def test_below_the_minimum_all_stop_after_the_same_step(leaving):
    state = in_place(0, 1)
    for index in leaving:
        state.members[f"u{index}"].start_leaving(40.0)
    decision = decide(state, 10.0)
    assert (decision.act, decision.reason, names(decision)) == ("prepare_wait", "Leave", [])


@pytest.mark.parametrize("leaving", [(1,), (0, 1)])
def test_all_who_are_told_to_go_right_after_a_change_go_over_first(leaving):
    """The boundaries that they still pass in the group before are not those of this one."""
    state = in_place(0, 1)
    for index in leaving:
        state.members[f"u{index}"].start_leaving(40.0)
    state.members["u1"].processes = Assigned(1)
    assert "goes over to generation 1" in decide(state, 10.0).sentence
    joined(state.members["u1"], 1)
    assert decide(state, 10.0).act == "prepare_wait"


def test_the_moment_is_asked_for_proposed_and_bound():
    state = in_place(0, 1, membership=make_membership(0, 1, 2))
    add(state, 2, ready=5.0)
    under_way = attempt(state, 0, 1, 2)
    assert decide(state, 11.0).act == "stay"
    under_way.formed = {"u0", "u1", "u2"}
    assert decide(state, 11.0).act == "ask"
    under_way.stage, under_way.boundaries = Stage.ASKING, {"u0": 7}
    assert decide(state, 11.0).act == "stay"
    under_way.boundaries["u1"] = 8
    assert decide(state, 11.0).act == "propose"
    under_way.stage, under_way.agreed = Stage.PROPOSED, {"u0": True}
    assert decide(state, 11.0).act == "stay"
    assert decide(replace(state, attempt=replace(under_way, agreed={"u0": True, "u1": False})), 11.0).act == "ask"
    under_way.agreed["u1"] = True
    assert decide(state, 11.0).act == "bind"


def test_a_broken_group_has_nothing_to_agree_on():
    state = in_place(0, 1, 2)
    state.members["u2"].mark_gone()
    attempt(state, 0, 1, broken=True, formed={"u0", "u1"})
    assert decide(state, 11.0).act == "bind"


def test_a_change_under_way_is_given_up_when_who_takes_part_changes():
    state = in_place(0, 1, membership=make_membership(0, 1, 2))
    add(state, 2, ready=5.0)
    attempt(state, 0, 1, 2)
    state.members["u2"].start_leaving(40.0)
    assert decide(state, 11.0).act == "cancel"


@pytest.mark.parametrize(
    ("stage", "limit"), [(Stage.FORMING, FORM_SECONDS), (Stage.ASKING, FORM_SECONDS + AGREE_SECONDS)]
)
def test_a_slow_change_is_tried_again_then_without_newcomers_then_from_the_start(stage, limit):
    state = in_place(0, 1, membership=make_membership(0, 1, 2))
    add(state, 2, ready=5.0)
    under_way = attempt(state, 0, 1, 2, stage=stage)
    assert decide(state, 10.0 + limit - 0.1).act == "stay"
    assert decide(state, 10.0 + limit).act == "retry"
    state.tried, state.failed_attempts = under_way.group.pods, MOST_ATTEMPTS - 1
    assert decide(state, 10.0 + limit).act == "refuse"
    state.tried = under_way.group.pods[:2]
    assert decide(state, 10.0 + limit).act == "retry", "it was another group that failed before"
    state = in_place(0, 1, 2, membership=make_membership(0, 1))
    state.tried, state.failed_attempts = attempt(state, 0, 1, stage=stage).group.pods, MOST_ATTEMPTS - 1
    assert decide(state, 10.0 + limit).act == "stop"


def test_a_change_waits_until_all_are_in_the_present_group():
    state = in_place(0, 1, membership=make_membership(0, 1, 2))
    add(state, 2, ready=5.0)
    state.members["u1"].processes = Assigned(1)
    assert decide(state, 10.0).act == "stay"


def test_a_job_whose_processes_have_finished_is_done_though_a_pod_gets_ready_to_join():
    state = in_place(0, 1, membership=make_membership(0, 1, 2))
    add(state, 2).start_missing()
    state.members["u0"].mark_finished(1)
    assert decide(state, 10.0).act == "stay"
    state.members["u1"].mark_finished(1)
    assert decide(state, 10.0).act == "done"


def test_a_group_that_loses_a_pod_when_others_have_finished_starts_again():
    """Those that have finished cannot go on with the others."""
    state = in_place(0, 1, 2)
    state.members["u0"].mark_finished(1)
    state.members["u2"].disconnect(5.0)
    waits = decide(state, 4.0)
    assert (waits.act, waits.until) == ("stay", 5.0)
    stops = decide(state, 5.0)
    assert (stops.act, stops.reason) == ("stop", "Loss")


def test_a_group_one_of_whose_processes_fails_when_others_have_finished_starts_again():
    state = in_place(0, 1, 2)
    state.members["u0"].mark_finished(1)
    state.members["u2"].failure = failure(2)
    stops = decide(state, 5.0)
    assert (stops.act, stops.reason) == ("stop", "Failure")


@pytest.mark.parametrize("make", [in_place, training])
@pytest.mark.parametrize("go", [Member.mark_gone, lambda member: member.disconnect(4.0)])
def test_a_pod_that_goes_after_it_has_finished_is_not_missed(make, go):
    state = make(0, 1)
    finished, other = state.members["u1"], state.members["u0"]
    finished.mark_finished(1)
    go(finished)
    waits = decide(state, 5.0)
    assert (waits.act, waits.until) == ("stay", 5.0 + LOOK_SECONDS)
    other.mark_finished(1)
    assert decide(state, 5.0).act == "done"


def test_a_failure_is_counted_and_too_many_fail_the_job():
    state = in_place(0, 1, 2)
    state.members["u1"].failure = failure(1)
    assert decide(state, 10.0).act == "count_failure"
    state.members["u1"].failure = None
    state.failures, state.failure = 3, failure(1)
    over = decide(state, 10.0)
    assert over.act == "fail"
    assert "failure 3 in a row" in over.failure.message


def test_when_all_are_stuck_the_least_far_is_named_and_all_start_again():
    state = in_place(0, 1)
    state.members["u0"].stuck = reports.StuckRank(1, rank=0, boundary=12, seconds=70.0)
    assert decide(state, 10.0).act == "stay"
    state.members["u1"].stuck = reports.StuckRank(1, rank=1, boundary=11, seconds=71.0)
    decision = decide(state, 10.0)
    assert (decision.act, decision.failure.rank, decision.failure.is_stall) == ("stop", 1, True)


def test_who_hangs_when_the_others_have_finished_has_stalled():
    state = in_place(0, 1)
    state.members["u0"].mark_finished(1)
    assert decide(state, 10.0).act == "stay"
    state.members["u1"].idle_seconds = state.rules.stall_seconds
    decision = decide(state, 10.0)
    assert (decision.act, decision.failure.is_stall) == ("stop", True)


def test_where_nobody_has_the_state_any_more_all_start_from_the_checkpoint():
    state = in_place(0, 1)
    for each in state.members.values():
        loses_a_process(each)
        each.failure = failure(0)
    assert decide(state, 10.0).act == "stop"


def test_groups_that_start_again_write_a_checkpoint_at_the_agreed_step_first():
    state = in_place(0, 1, 2, mode=RESTART)
    state.members["u2"].start_leaving(40.0)
    parks = decide(state, 10.0)
    assert (parks.act, parks.reason, parks.attempt.restarts) == ("prepare_wait", "Leave", True)
    asked = state.attempt = replace(parks.attempt, stage=Stage.ASKING, boundaries={"u0": 7, "u1": 6, "u2": 7})
    assert decide(state, 10.0).act == "propose"
    assert max(asked.boundaries.values()) + asked.margin == 8, "no step more than the one under way"
    state.attempt = saving = replace(parks.attempt, stage=Stage.SAVING, since=10.0)
    assert decide(state, 11.0).act == "stay"
    saving.saved.update(dict.fromkeys(["u0", "u1", "u2"], True))
    stop = decide(state, 11.0)
    assert (stop.act, stop.reason, stop.seconds) == ("stop", "Leave", 0.0)
    saving.saved.pop("u1")
    late = decide(state, 39.0)
    assert late.act == "stop"
    assert "was not written" in late.sentence


def test_a_pod_that_left_long_ago_cuts_no_checkpoint_short():
    state = in_place(0, 1, mode=RESTART)
    state.members["u3"] = member(3, presence=Disconnected(5.0, leaving_until=4.0))
    state.members["u1"].start_leaving(40.0)
    parks = decide(state, 10.0)
    state.attempt = replace(parks.attempt, stage=Stage.SAVING, since=10.0)
    assert (decide(state, 11.0).act, decide(state, 11.0).until) == ("stay", 38.0)


# -- what a pod says, and what is decided then -------------------------------------------------------------------------


class Played:
    """A coordinator whose pods say something, one after the other, after which all is done that is decided."""

    def __init__(self, state):
        self.state, self.now, self.told = state, 10.0, []
        executor = Executor(state, lambda uids, message: self.told.append((set(uids), message)))
        self.executor, self.inbox = executor, Inbox(state, executor, None)

    def say(self, index, *said):
        self.inbox.receive(self.state.members[f"u{index}"], to_line(*said), self.now)
        return self.act()

    def act(self):
        """What is decided in the end."""
        while (decision := decide(self.state, self.now)).act != "stay":
            self.executor.do(decision, self.now)
        return decision

    def restart(self, number):
        """All processes stop, and start as that generation."""
        stop = Decision("stop", "one has failed", reason="Failure", failure=failure(0))
        self.executor.do(stop, self.now)
        for uid in sorted(self.told[-1][0]):
            self.say(uid[1:], reports.Stopped(number - 1), reports.Runs(0))
        for uid in sorted(self.state.group.uids):
            self.say(uid[1:], reports.Started(number), reports.Runs(number))
            self.say(uid[1:], reports.Ready(True, number, holds=True, change_mode=IN_PLACE))


def test_a_newcomer_that_was_left_out_takes_part_like_any_other_once_all_have_started_again():
    state = in_place(0, 1, membership=make_membership(0, 1, 2))
    add(state, 2, ready=5.0).refuse()
    job = Played(state)
    assert job.act().sentence == "2 pods train"
    job.restart(2)
    assert job.act().sentence == "3 pods train"


def test_a_newcomer_whose_process_could_not_be_ended_starts_it_when_it_has_ended():
    state = in_place(0, 1, membership=make_membership(0, 1, 2))
    add(state, 2)
    job = Played(state)
    job.act()
    job.say(2, reports.Unkillable("process 7 cannot be ended by SIGKILL"))
    job.told.clear()
    job.say(2, reports.Unkillable(""))
    assert job.told == [({"u2"}, orders.Candidates())]


# -- without the master (125) ------------------------------------------------------------------------------------------


def without_master(*indices, **more):
    """These workers train alone, their master is not here."""
    state = in_place(*indices, group=make_group(*indices), **more)
    for each in state.members.values():
        each.understands_parts, each.store_port = True, 0
    return state


def lost_master(*workers):
    """A new master's coordinator has adopted what is left of a group; its own processes are not warm yet."""
    state = without_master(*workers, membership=make_membership(0, *workers), epoch=2, own_uid="u9")
    state.group = make_group(0, *workers)
    state.members["u9"] = replace(member(9, warm=None), pod=replace(make_pod(0), uid="u9"))
    return state


def test_survivors_of_a_master_continue_with_their_own_store_before_the_next_master_is_warm():
    state = lost_master(1, 2)
    told = decide(state, 5.0)
    assert (told.act, [pod.uid for pod in told.pods]) == ("host", ["u1"])
    state.members["u1"].hosts = True
    assert decide(state, 5.0).act == "stay"
    state.members["u1"].store_port = 4001
    decision = decide(state, 5.0)
    assert (decision.act, decision.reason, names(decision)) == ("prepare", "MasterLost", ["u1", "u2"])
    assert decision.attempt.broken


def tried(state, attempts):
    state.tried, state.failed_attempts = state.group.pods[1:], attempts


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda state: state.members.pop("u2"), id="one has not come back yet"),
        pytest.param(lambda state: loses_a_process(state.members["u2"]), id="one has lost a process"),
        pytest.param(
            lambda state: setattr(state.members["u1"], "understands_parts", False), id="one is of a release before"
        ),
        pytest.param(lambda state: setattr(state.members["u9"], "warm_at", 4.0), id="the master is warm"),
        pytest.param(
            lambda state: setattr(state, "membership", make_membership(0, 1, 2, fewest=3)), id="they are too few"
        ),
        pytest.param(lambda state: tried(state, MOST_ATTEMPTS - 1), id="it was tried in vain"),
    ],
)
def test_they_wait_for_its_processes_with_the_state_in_memory_where(change):
    state = lost_master(1, 2)
    state.members["u1"].store_port = 4001
    change(state)
    assert decide(state, 5.0).act in ("wait_broken", "candidates")


def test_a_master_that_is_told_to_go_leaves_the_others_training():
    state = in_place(0, 1, 2)
    for each in state.members.values():
        each.understands_parts = True
    state.members["u0"].start_leaving(40.0)
    decision = decide(state, 10.0)
    assert (decision.act, decision.reason, names(decision)) == ("prepare", "Leave", ["u1", "u2"])
    assert not decision.attempt.broken


def test_the_masters_processes_join_as_soon_as_they_are_ready_and_have_the_first_rank():
    state = without_master(1, 2, membership=make_membership(0, 1, 2))
    master = add(state, 0, warm=None)
    assert decide(state, 10.0).act == "stay"
    master.warm_at = 10.0
    assert decide(state, 10.0).act == "candidates"
    master.start_missing()
    assert decide(state, 10.0).act == "stay"
    waits(master, since=11.0)
    decision = decide(state, 11.0)
    assert (decision.act, decision.reason, names(decision)) == ("prepare", "Join", ["u0", "u1", "u2"])


def test_a_group_that_forms_without_the_master_is_not_given_up_as_the_master_gets_warm():
    state = lost_master(1, 2)
    attempt(state, 1, 2, broken=True, formed={"u1", "u2"})
    state.members["u9"].warm_at = 9.0
    state.members["u9"].start_missing()
    assert decide(state, 10.0).act == "bind"


def test_a_new_coordinator_waits_for_all_of_a_group_that_trains_without_a_master():
    state = without_master(1, 2, epoch=2)
    state.phase, state.phase_since, state.own_uid = Phase.WAITING, 0.0, "u9"
    gone = state.members.pop("u2")
    assert decide(state, 1.0).act == "stay"
    state.members["u2"] = gone
    assert decide(state, 1.0).act == "adopt"
