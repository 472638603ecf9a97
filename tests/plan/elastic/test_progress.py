"""What an Elastic job's status says of its group, from what its master reports."""

from dataclasses import replace

import pytest

from elastic_api.status import Change, ConditionType, Metric
from elastic_operator.plan.facts.group_report import Goodput, GroupChange, GroupReport
from tests.plan.elastic.jobs import (
    is_pending,
    make_elastic_job,
    make_elastic_spec,
    make_group,
    make_master,
    make_worker,
)
from tests.plan.jobs import START, at, make_grant, plan, reasons, with_facts

ALL = ["master-0", "worker-0"]


def make_change(**fields):
    return GroupChange(**{"generation": 5, "time": START + 190, "reason": "Join", "before": 1, "after": 2, **fields})


def make_report(*names, **fields):
    """The master runs a group of these pods, of one process each."""
    members = tuple(f"toy-{name}" for name in names)
    known = {"master_uid": "uid-master-0", "read_at": START + 195, "generation": 5, "state": "Running"}
    return GroupReport(**{**known, "members": members, "world_size": len(members), **fields})


def planned(report, *, now=200, pods=None, spec=None, **status):
    pods = make_group(1) if pods is None else pods
    job = with_facts(make_elastic_job(pods, spec=spec, **status), report=report)
    return plan(job, make_grant(keep=[f"{pod.role}-{pod.index}" for pod in pods]), now=now)


def planned_again(status, *, now=205, pods=None, **feedback):
    """The plan of a leader that finds this status."""
    pods = make_group(1) if pods is None else pods
    job = with_facts(make_elastic_job(pods, last=status), **feedback)
    return plan(job, make_grant(keep=[f"{pod.role}-{pod.index}" for pod in pods]), now=now)


def resized(**fields):
    return [Change(time=at(185), from_=1, to=2, reason="ScaledUp", **fields)]


def test_the_training_is_shown_as_reported():
    report = make_report(*ALL, step=70, last_checkpoint_step=60, checkpoint_error="cannot read")
    training = planned(report).status.training
    assert (training.step, training.last_checkpoint_step, training.checkpoint_error) == (70, 60, "cannot read")
    assert training.last_updated_time == at(195)


def test_flags_in_a_script_that_the_command_runs_are_named_as_those_in_the_template_are():
    found = planned(make_report(*ALL, unused_flags=("--nnodes=8", "--rdzv_id=1")))
    told = found.status.condition(ConditionType.FLAGS_NOT_USED)
    assert (told.status, told.reason) == ("True", "SetByOperator")
    assert told.message.startswith(
        "torchrun was called with --nnodes=8 --rdzv_id=1. These flags have no effect; remove them"
    )
    assert "FlagsNotUsed" in [event.reason for event in found.events]


def test_what_scripts_with_the_library_tell_is_shown():
    told = {"epoch": 2, "samples_seen": 4480, "loss": 0.25, "goodput": Goodput(0.87512, {"productive": 60.0})}
    training = planned(make_report(*ALL, **told)).status.training
    assert (training.epoch, training.samples_seen, training.goodput) == (2, 4480, 0.875)
    assert training.metrics == [Metric(name="loss", value="0.25")]


def test_what_scripts_report_as_to_kubeflow_is_shown_and_their_own_loss_counts():
    report = make_report(
        *ALL,
        progress_percentage=42,
        estimated_remaining_seconds=5400,
        metrics=(("loss", "0.3"), ("lr", "1e-4")),
        loss=0.25,
    )
    training = planned(report).status.training
    assert (training.progress_percentage, training.estimated_remaining_seconds, training.eta) == (42, 5400, "1h30m")
    assert training.metrics == [Metric(name="loss", value="0.3"), Metric(name="lr", value="1e-4")]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (120, "2m"), (5400, "1h30m"), (7260, "2h1m"), (200_000, "2d7h")]
)
def test_the_rest_of_the_time_is_written_in_two_units(seconds, text):
    assert planned(make_report(*ALL, estimated_remaining_seconds=seconds)).status.training.eta == text


def test_the_remaining_time_is_shown_once_known_and_then_renewed_as_rarely_as_other_fields():
    known = planned(make_report(*ALL, step=70)).status.training
    second = make_report(*ALL, step=71, read_at=START + 196, estimated_remaining_seconds=90)
    first = planned(second, training=known).status.training
    assert (first.step, first.eta) == (71, "1m30s")
    third = replace(second, step=72, read_at=START + 197, estimated_remaining_seconds=80)
    assert planned(third, training=first).status.training == first


def test_the_training_is_not_written_again_and_again():
    known = planned(make_report(*ALL, step=70)).status.training
    assert planned(make_report(*ALL, step=71, read_at=START + 214), training=known).status.training == known
    assert planned(make_report(*ALL, step=99, read_at=START + 215), training=known).status.training.step == 99


def test_the_processes_and_ranks_are_those_of_the_group():
    report = make_report("master-0", "worker-1", "worker-0", world_size=6)
    pods = (*make_group(1), make_worker(1))
    status = planned(report, pods=pods, spec=make_elastic_spec(nprocPerNode=2)).status
    assert status.world_size == 6
    assert {pod.name: pod.rank for pod in status.pods} == {"toy-master-0": 0, "toy-worker-1": 2, "toy-worker-0": 4}


def test_more_processes_than_the_pods_can_have_are_not_believed():
    assert planned(make_report(*ALL, world_size=10**9)).status.world_size == 2


def test_the_job_is_resizing_until_all_its_pods_train():
    part = planned(make_report("master-0"), history=resized())
    assert reasons(part)["Ready"] == ("True", "Resizing")
    whole = planned(make_report(*ALL), history=resized())
    assert reasons(whole)["Ready"] == ("True", "Running")
    assert (part.status.last_resize_time, whole.status.last_resize_time) == (None, at(200))


NOT_MET = make_report(state="Waiting", reason="waits for toy-worker-0", generation=0)


@pytest.mark.parametrize(
    ("report", "ready", "world_size", "ranks"),
    [
        (NOT_MET, "Rendezvousing", 0, [None, None]),
        (make_report("master-0"), "Resizing", 1, [0, None]),
        (make_report(*reversed(ALL)), "Running", 2, [1, 0]),
    ],
    ids=["no group", "a part of the pods", "all pods"],
)
@pytest.mark.parametrize("now", [30, 205], ids=["a young master", "an old master"])
def test_what_the_status_tells_of_the_group_stays_until_a_new_leader_has_asked_the_master(
    report, ready, world_size, ranks, now
):
    known = planned(report, now=now - 1, history=resized()).status
    kept = planned_again(known, now=now, report_pending=True).status
    assert kept == known
    assert (kept.condition("Ready").reason, kept.world_size, [pod.rank for pod in kept.pods]) == (
        ready,
        world_size,
        ranks,
    )


def test_a_master_that_a_new_leader_cannot_reach_is_judged_by_its_pods_as_any_other():
    known = planned(NOT_MET, history=resized()).status
    found = planned_again(known, now=205)
    assert reasons(found)["Ready"] == ("True", "Running")
    assert (found.status.world_size, found.status.last_resize_time) == (2, at(205))


@pytest.mark.parametrize(
    ("report", "ready"),
    [(NOT_MET, "Rendezvousing"), (make_report(*ALL), "Resizing"), (make_report(*ALL, "worker-1"), "Resizing")],
    ids=["no group", "a part of the pods", "all pods"],
)
def test_a_pod_that_stops_under_a_new_leader_is_told_of_before_the_master_has_answered(report, ready):
    pods = (*make_group(1), make_worker(1))
    known = planned(report, pods=pods).status
    found = planned_again(known, pods=(*pods[:2], is_pending(pods[2])), report_pending=True)
    assert reasons(found)["Ready"][1] == ready
    assert found.status.condition("Ready").message.startswith("2 of 3 pods run.")


def test_a_pod_that_is_lost_without_a_leader_makes_no_group_whole_before_the_master_has_answered():
    report = make_report(*ALL, "worker-1")
    known = planned(report, pods=(*make_group(1), make_worker(1)), history=resized()).status
    assert (known.condition("Ready").reason, known.last_resize_time) == ("Running", at(200))
    found = planned_again(known, report_pending=True)
    assert (reasons(found)["Ready"], found.status.last_resize_time) == (("True", "Resizing"), at(200))
    assert found.status == planned_again(known, report=report).status


def test_a_pod_that_was_replaced_has_no_rank_before_the_master_has_answered():
    known = planned(make_report(*ALL)).status
    master, worker = known.pods
    before = known.model_copy(update={"pods": [master, worker.model_copy(update={"uid": "another"})]})
    assert [pod.rank for pod in planned_again(before, report_pending=True).status.pods] == [0, None]


def test_without_a_running_master_no_report_is_awaited():
    known = planned(make_report(*ALL)).status
    pods = (make_master(deleting_since=START + 204), make_worker(0))
    found = planned_again(known, pods=pods, report_pending=True).status
    assert found == planned_again(known, pods=pods).status
    assert [pod.rank for pod in found.pods] == [None, None]


def test_pods_that_began_to_run_without_a_leader_have_not_met_until_the_master_has_answered():
    pods = make_group(1)
    known = planned(None, pods=(pods[0], is_pending(pods[1])), now=50).status
    found = planned_again(known, pods=pods, now=200, report_pending=True)
    assert reasons(found)["Ready"] == ("False", "Rendezvousing")
    assert found.status.condition("Ready").message == "2 of 2 pods run. The pods have not formed a group yet."


def test_warnings_that_a_master_reported_stay_until_a_new_leader_has_asked_it():
    report = make_report(*ALL, unused_flags=("--nnodes=8",), given_up=(("toy-worker-0", "It hangs in the kernel."),))
    known = planned(report).status
    warnings = {"FlagsNotUsed": "True", "PodsGivenUp": "True"}
    assert {kind: known.condition(kind).status for kind in warnings} == warnings
    kept = planned_again(known, report_pending=True)
    assert (kept.status, kept.events) == (known, ())
    again = planned_again(kept.status, report=report)
    assert (again.status, again.events) == (known, ())
    over = planned_again(kept.status).status
    assert {kind: over.condition(kind).status for kind in warnings} == dict.fromkeys(warnings, "False")
    assert planned_again(over, report_pending=True).status == over


def test_pods_that_run_and_have_not_met_are_told_so_in_the_masters_words():
    waiting = planned(make_report(state="Waiting", reason="waits for toy-worker-0", generation=0))
    assert reasons(waiting)["Ready"] == ("False", "Rendezvousing")
    assert "waits for toy-worker-0." in waiting.status.condition("Ready").message


def test_a_master_that_has_just_started_is_waited_for_to_say_that_the_pods_have_met():
    early = planned(None, now=64)
    assert reasons(early)["Ready"] == ("False", "Rendezvousing")
    assert early.requeue_at == START + 65
    assert reasons(planned(None, now=65))["Ready"] == ("True", "Running")
    assert reasons(planned(make_report(*ALL), now=64))["Ready"] == ("True", "Running")


def test_a_group_too_large_to_be_listed_is_taken_for_whole():
    assert reasons(planned(make_report(world_size=2)))["Ready"] == ("True", "Running")


def test_the_report_of_another_master_is_not_believed():
    status = planned(make_report("master-0", master_uid="older", step=9)).status
    assert (status.training, status.membership_generation) == (None, None)
    assert status.world_size == 2


def test_a_silent_master_leaves_the_status_as_the_pods_show_it():
    status = planned(None).status
    assert (status.training, status.world_size) == (None, 2)
    assert reasons(planned(None))["Ready"] == ("True", "Running")


def test_what_a_change_cost_goes_to_the_change_it_came_of():
    report = make_report(*ALL, changes=(make_change(pause_seconds=0.45, lost_steps=3),))
    older = Change(time=at(20), from_=2, to=1, reason="ScaledDown")
    history = planned(report, history=[*resized(), older]).status.history
    assert [(change.pause_seconds, change.lost_steps) for change in history] == [(0.45, 3), (None, None)]


def test_a_change_is_measured_though_the_next_one_is_decided_already():
    grown = make_change(generation=5, time=START + 187, pause_seconds=0.9, lost_steps=1)
    shrunk = make_change(generation=6, time=START + 190, before=2, after=1, pause_seconds=0.3, lost_steps=0)
    history = [Change(time=at(188), from_=2, to=1, reason="ScaledDown"), *resized()]
    first = planned(make_report(*ALL, changes=(grown,)), history=history, membership_generation=4).status
    assert [change.pause_seconds for change in first.history] == [None, 0.9]
    both = make_report(*ALL, generation=6, changes=(shrunk, grown))
    second = planned(both, history=first.history, membership_generation=first.membership_generation).status
    assert [(change.pause_seconds, change.lost_steps) for change in second.history] == [(0.3, 0), (0.9, 1)]


def test_of_three_changes_alike_none_is_measured_twice():
    """The oldest of them never became a group."""
    older = [
        Change(time=at(184), from_=2, to=1, reason="ScaledDown"),
        Change(time=at(183), from_=1, to=2, reason="ScaledUp"),
    ]
    report = make_report(*ALL, changes=(make_change(pause_seconds=0.4),))
    status = planned(report, history=[*resized(), *older], membership_generation=4).status
    assert [change.pause_seconds for change in status.history] == [0.4, None, None]


def test_what_is_known_of_a_change_stays():
    report = make_report(*ALL, changes=(make_change(pause_seconds=9.0),))
    assert planned(report, history=resized(pause_seconds=0.5)).status.history[0].pause_seconds == 0.5


def test_a_change_to_another_size_or_long_before_is_not_the_one():
    for wrong in ({"after": 3}, {"time": START + 100}, {"before": 2}, {"before": 3}):
        report = make_report(*ALL, changes=(make_change(pause_seconds=0.45, **wrong),))
        assert planned(report, history=resized()).status.history[0].pause_seconds is None


def test_of_two_growths_alike_each_has_its_own_cost():
    """The group's generations tell them apart: the first had led to the fifth, which the status knows already."""
    first = make_change(generation=5, time=START + 150, pause_seconds=0.9)
    between = make_change(generation=6, time=START + 170, before=2, after=1, pause_seconds=0.3)
    second = make_change(generation=7, time=START + 190, pause_seconds=0.4)
    report = make_report(*ALL, generation=7, changes=(second, between, first))
    assert planned(report, history=resized(), membership_generation=6).status.history[0].pause_seconds == 0.4


def test_a_lost_master_has_its_cost_though_the_group_is_as_large_as_before():
    lost = Change(time=at(185), from_=2, to=1, reason="MasterLost")
    told = make_change(reason="MasterLost", before=2, after=2, pause_seconds=5.5)
    assert planned(make_report(*ALL, changes=(told,)), history=[lost]).status.history[0].pause_seconds == 5.5


def test_a_new_generation_is_told_with_its_pause_once():
    report = make_report(*ALL, changes=(make_change(pause_seconds=0.45, lost_steps=2),))
    first = planned(report, membership_generation=4)
    (event,) = first.events
    assert event.reason == "GenerationFormed"
    formed = "Generation 5 has formed because of Join: 2 pods with 2 processes."
    assert event.message == f"{formed} No step ran for 0.45 s. 2 steps are repeated."
    assert first.status.membership_generation == 5
    assert planned(report, membership_generation=5).events == ()


def test_the_pause_is_waited_for_but_not_for_ever():
    report = make_report(*ALL, changes=(make_change(),))
    early = planned(report, now=200, membership_generation=4)
    assert (early.events, early.status.membership_generation, early.requeue_at) == ((), 4, START + 225)
    late = planned(report, now=225, membership_generation=4)
    assert [event.reason for event in late.events] == ["GenerationFormed"]
    assert "no step" not in late.events[0].message


def test_the_first_generation_has_no_pause_to_wait_for():
    report = make_report(*ALL, generation=1, changes=(make_change(generation=1, before=0, reason="Start"),))
    assert [event.reason for event in planned(report).events] == ["GenerationFormed"]


def test_in_torchrun_mode_a_report_means_nothing():
    pods = (make_master(master_epoch=None), make_worker(0))
    job = with_facts(make_elastic_job(pods, master_epoch=None), report=make_report("master-0", step=3))
    job = replace(job, spec=job.spec.model_copy(update={"runtime": type(job.spec.runtime)()}))
    assert plan(job, make_grant(keep=ALL)).status.training is None


def test_of_a_master_that_is_silent_it_is_said_since_when():
    status = planned(make_report("master-0", "worker-0", silent_since=START + 100)).status
    ready = status.condition("Ready")
    assert ready.reason == "Running"
    assert ready.message == (
        "2 pods run with world size 2. The master has not answered since 2027-01-15T08:01:40Z. The operator does not"
        " know whether it trains. Look at the master's log and node."
    )


FAILED = (make_change(generation=6, reason="Failure"), make_change(generation=5, reason="Failure"))


@pytest.mark.parametrize(
    ("total", "generation", "over"),
    [(1, 4, True), (0, 4, False), (2, 5, True), (1, 5, False), (9, 6, False)],
    ids=["two more", "two more, and may", "one more", "one more, and may", "none more, though fewer are allowed now"],
)
def test_too_many_failures_reported_by_masters_end_the_job(total, generation, over):
    spec = make_elastic_spec(recovery={"maxRestarts": 2})
    report = make_report(*ALL, generation=6, changes=FAILED)
    status = planned(report, spec=spec, total_failures=total, membership_generation=generation).status
    assert (reasons_of(status).get("Failed") == "RestartLimitReached", status.finished) == (over, over)
    if over:
        assert status.total_failures == total + 6 - generation


def reasons_of(status):
    return {condition.type: condition.reason for condition in status.conditions if condition.status == "True"}
