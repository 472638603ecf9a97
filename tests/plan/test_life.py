"""A job's life, one fact a test: what is observed, and what is then done."""

from dataclasses import replace

import pytest

from elastic_operator.api.status import Change, Limit, Retry
from elastic_operator.plan.model import MainContainer, Route
from tests.plan.jobs import (
    START,
    at,
    ended,
    group,
    make_grant,
    make_job,
    make_pod,
    make_spec,
    make_status,
    plan,
    reasons,
    see,
)

BOTH = make_grant(keep=["master-0", "worker-0"])


def names(items):
    return [item.name for item in items]


def started(workers=1, **status):
    """Status of a job whose pods run since long."""
    return make_status(replicas=workers + 1, target_replicas=workers + 1, running_since=at(5), **status)


# --- start -----------------------------------------------------------------------------------------------------------


def test_a_new_job_gets_its_pods_once_its_whole_minimum_has_room():
    job = make_job((), status=make_status(target_replicas=0, replicas=0, start_time=None))
    planned = plan(job, make_grant(create=["master-0", "worker-0"]))
    assert [(c.role, c.index, c.node, c.incarnation) for c in planned.creates] == [
        ("master", 0, "n1", 1),
        ("worker", 0, "n1", 1),
    ]
    assert planned.commit_first
    assert planned.status.target_replicas == 2
    assert planned.status.start_time == at(200)


def test_a_start_whose_room_is_not_free_yet_creates_nothing():
    job = make_job((), status=make_status(target_replicas=0, replicas=0))
    assert plan(job, make_grant(create=["master-0", "worker-0"], ready=False)).creates == ()


def test_a_start_waits_for_the_name_of_a_pod_that_still_terminates():
    old = replace(make_pod("master-0"), incarnation=0, deleting_since=START)
    job = make_job([old], status=make_status(replicas=0))
    assert plan(job, make_grant(create=["master-0", "worker-0"])).creates == ()


def test_a_start_waits_for_a_master_name_that_belongs_to_somebody_else():
    job = make_job((), status=make_status(replicas=0), foreign_names=frozenset({"toy-master-0"}))
    assert plan(job, make_grant(create=["master-0", "worker-0"])).creates == ()


def test_a_job_without_room_is_queued_and_says_why():
    job = make_job((), status=make_status(replicas=0, target_replicas=0))
    planned = plan(job, make_grant(limit=Limit.INSUFFICIENT_NODES, message="no room"))
    assert reasons(planned)["Ready"] == ("False", "Queued")
    assert reasons(planned)["FullSize"] == ("False", "InsufficientNodes")
    assert planned.status.condition("Ready").message == "no room"


# --- running ---------------------------------------------------------------------------------------------------------


def test_a_complete_group_is_running():
    planned = plan(make_job(status=started()), BOTH)
    assert reasons(planned)["Ready"] == ("True", "Running")
    assert reasons(planned)["FullSize"] == ("True", "AtMaximum")
    assert (planned.deletes, planned.creates, planned.commit_first) == ((), (), False)
    assert planned.status.world_size == 2
    assert planned.route == Route("10.0.0.1", "n1")


def test_settling_again_on_its_own_status_changes_nothing():
    job = make_job(status=started())
    first = plan(job, BOTH)
    second = plan(replace(job, status=first.status), BOTH, now=260)
    assert second.status == first.status
    assert second.events == ()


def test_growth_is_written_down_before_it_is_done():
    planned = plan(make_job(status=started()), make_grant(keep=["master-0", "worker-0"], create=["worker-1"]))
    assert planned.commit_first
    assert [c.index for c in planned.creates] == [1]
    assert (planned.status.target_replicas, planned.status.resizes) == (3, 1)
    assert (planned.status.history[0].from_, planned.status.history[0].to) == (2, 3)


def test_a_new_pod_gets_the_limits_its_group_was_made_with():
    planned = plan(
        make_job(status=started()), make_grant(keep=["master-0", "worker-0"], create=["worker-1"]), frozen=(1, 9)
    )
    assert planned.creates[0].nnodes == (2, 4096)


def test_a_shrink_takes_the_highest_worker_first_and_is_not_a_loss_afterwards():
    job = make_job(group(3), status=started(3))
    grant = make_grant(keep=["master-0", "worker-0"], release=["worker-1", "worker-2"], limit=Limit.AT_MAXIMUM)
    planned = plan(job, grant)
    assert names(planned.deletes) == ["toy-worker-2", "toy-worker-1"]
    assert planned.status.replicas == 2
    left = tuple(p if p.index < 1 else replace(p, deleting_since=START + 200) for p in job.pods)
    later = plan(replace(job, pods=left, status=planned.status), BOTH, now=201)
    assert later.status.restarts == 0
    assert reasons(later)["Ready"] == ("True", "Resizing")


def test_the_change_is_complete_when_the_last_leaver_is_gone():
    history = [Change(time=at(190), from_=4, to=2, reason="ScaledDown")]
    planned = plan(make_job(status=started(history=history)), BOTH, now=205)
    assert planned.status.last_resize_time == at(205)


def test_a_size_below_what_a_command_was_made_with_starts_a_new_incarnation():
    job = make_job(group(1, nnodes=(2, 4)), spec=make_spec(minReplicas=1), status=started())
    planned = plan(job, make_grant(keep=["master-0"], release=["worker-0"]))
    assert planned.status.incarnation == 2
    assert sorted(names(planned.deletes)) == ["toy-master-0", "toy-worker-0"]


def test_a_size_above_what_a_command_was_made_with_starts_a_new_incarnation():
    job = make_job(group(1, nnodes=(2, 2)), status=started())
    planned = plan(job, make_grant(keep=["master-0", "worker-0"], create=["worker-1"]))
    assert planned.status.incarnation == 2
    assert planned.creates == ()


# --- losses ----------------------------------------------------------------------------------------------------------


def test_a_lost_worker_is_replaced_and_counted_as_a_restart_not_a_failure():
    status = plan(make_job(group(2), status=started(2)), make_grant(keep=["master-0", "worker-0", "worker-1"])).status
    job = make_job(group(1), status=status)
    planned = plan(job, make_grant(keep=["master-0", "worker-0"], create=["worker-1"]))
    assert (planned.status.restarts, planned.status.failures) == (1, 0)
    assert [c.index for c in planned.creates] == [1]
    assert planned.status.incarnation == 1
    assert [e.reason for e in planned.events] == ["PodLost"]
    assert "toy-worker-1" in planned.events[0].message


def test_without_its_master_an_incarnation_is_over():
    pods = (make_pod("worker-0"), make_pod("worker-1"))
    planned = plan(make_job(pods, status=started(2)), make_grant(keep=[], create=["master-0", "worker-2"]))
    assert planned.status.incarnation == 2
    assert sorted(names(planned.deletes)) == ["toy-worker-0", "toy-worker-1"]
    assert {c.incarnation for c in planned.creates} == {2}
    assert planned.commit_first
    assert planned.status.failures == 0


def test_a_pod_the_cluster_ended_is_a_loss():
    pods = (make_pod("master-0"), ended(make_pod("worker-0"), 137, disrupted="evicted by the kubelet"))
    planned = plan(make_job(pods, status=started()), make_grant(keep=["master-0"], create=["worker-1"]))
    assert (planned.status.restarts, planned.status.failures, planned.status.incarnation) == (1, 0, 1)
    assert names(planned.deletes) == ["toy-worker-0"]
    assert "evicted by the kubelet" in planned.events[0].message


def test_a_pod_on_an_unreachable_node_is_given_up_by_force_after_its_time():
    pods = (make_pod("master-0"), make_pod("worker-0", node="n2"))
    job = make_job(pods, status=started())
    early = plan(job, BOTH, now=139, unready={"n2": 100})
    assert early.deletes == ()
    assert early.wake_at == START + 140
    late = plan(job, make_grant(keep=["master-0"], create=["worker-1"]), now=141, unready={"n2": 100})
    assert [(d.name, d.force) for d in late.deletes] == [("toy-worker-0", True)]
    assert late.events[0].reason == "NodeLost"


def test_a_pod_already_terminating_on_a_lost_node_is_forced_too():
    pods = (*group(1), make_pod("worker-1", node="n2", deleting_since=START))
    planned = plan(make_job(pods, status=started()), BOTH, unready={"n2": 100})
    assert [(d.name, d.force) for d in planned.deletes] == [("toy-worker-1", True)]


# --- failures --------------------------------------------------------------------------------------------------------


def failed_job(**status):
    pods = (make_pod("master-0"), ended(make_pod("worker-0"), 1, message="ValueError: no"))
    return make_job(pods, status=started(**status))


def test_an_agent_that_gives_up_ends_the_incarnation_and_counts_as_a_failure():
    planned = plan(failed_job(), make_grant())
    assert (planned.status.incarnation, planned.status.failures, planned.status.restarts) == (2, 1, 1)
    assert planned.status.retry.attempt == 1
    assert sorted(names(planned.deletes)) == ["toy-master-0", "toy-worker-0"]
    assert "ValueError: no" in planned.status.retry.reason


@pytest.mark.parametrize(("attempt", "wait"), [(1, 2), (3, 8), (9, 60)])
def test_the_wait_doubles_up_to_a_minute(attempt, wait):
    job = failed_job(retry=Retry(reason="", not_before=at(0), attempt=attempt), failures=0)
    retry = plan(job, make_grant()).status.retry
    assert 200 + wait <= retry.not_before.timestamp() - START <= 200 + wait + 1


def test_nothing_is_created_before_the_wait_is_over():
    status = make_status(incarnation=2, replicas=0, retry=Retry(reason="boom", not_before=at(210)))
    job = make_job((), status=status)
    grant = make_grant(create=["master-0", "worker-0"])
    assert plan(job, grant, now=209).creates == ()
    assert plan(job, grant, now=209).wake_at == START + 210
    assert reasons(plan(job, grant, now=209))["Ready"] == ("False", "Restarting")
    assert len(plan(job, grant, now=210).creates) == 2


def test_soon_after_a_change_of_size_it_is_not_a_failure():
    history = [Change(time=at(50), from_=3, to=2, reason="ScaledDown")]
    planned = plan(failed_job(history=history), make_grant())
    assert (planned.status.failures, planned.status.incarnation) == (0, 2)


def test_the_start_itself_is_no_excuse():
    history = [Change(time=at(50), from_=0, to=2, reason="Started")]
    assert plan(failed_job(history=history), make_grant()).status.failures == 1


def test_a_worker_that_joined_late_is_an_excuse():
    pods = (make_pod("master-0"), ended(make_pod("worker-0"), 1), make_pod("worker-1", created=START + 60))
    pods = (*pods[:2], replace(pods[2], main=MainContainer(running_since=START + 70)))
    assert plan(make_job(pods, status=started(2)), make_grant()).status.failures == 0


def test_after_the_last_allowed_failure_the_job_is_failed_with_its_reason():
    planned = plan(failed_job(failures=2), make_grant())
    assert reasons(planned)["Failed"] == ("True", "RestartLimitReached")
    assert reasons(planned)["Ready"] == ("False", "Failed")
    assert reasons(planned)["Stalled"] == ("True", "Failed")
    message = planned.status.condition("Failed").message
    assert "toy-worker-0" in message
    assert "exit code 1" in message
    assert "ValueError: no" in message


@pytest.mark.parametrize("limit", [0, 1])
def test_zero_and_one_allowed_failures_fail_at_the_first(limit):
    spec = make_spec(recovery={"maxFailuresWithoutProgress": limit})
    pods = (make_pod("master-0"), ended(make_pod("worker-0"), 1))
    assert plan(make_job(pods, spec=spec, status=started()), make_grant()).status.finished


def test_ten_minutes_of_running_forget_failures():
    status = started(failures=2, retry=Retry(reason="old", not_before=at(1), attempt=2))
    planned = plan(make_job(status=status), BOTH, now=606)
    assert (planned.status.failures, planned.status.retry) == (0, None)
    assert plan(make_job(status=status), BOTH, now=604).status.failures == 2


def test_the_exit_of_a_pod_that_was_told_to_go_says_nothing():
    leaver = ended(make_pod("worker-1"), 1, finished=150, deleting_since=START + 140, grace_seconds=120.0)
    planned = plan(make_job((*group(1), leaver), status=started()), BOTH)
    assert planned.status.incarnation == 1


def test_the_last_step_of_a_deletion_which_moves_its_time_says_nothing_either():
    leaver = ended(make_pod("worker-1"), 143, finished=150, deleting_since=START + 151, grace_seconds=0.0)
    planned = plan(make_job((*group(1), leaver), status=started()), BOTH)
    assert planned.status.incarnation == 1


def test_a_pod_that_failed_before_it_was_told_to_go_has_failed():
    leaver = ended(make_pod("worker-1"), 1, finished=150, deleting_since=START + 160, grace_seconds=120.0)
    planned = plan(make_job((*group(1), leaver), status=started()), BOTH)
    assert planned.status.incarnation == 2


# --- ends ------------------------------------------------------------------------------------------------------------


def succeeded():
    return make_job((ended(make_pod("master-0"), 0), make_pod("worker-0")), status=started())


def test_the_master_decides_success():
    planned = plan(succeeded())
    assert reasons(planned)["Ready"] == ("True", "Succeeded")
    assert reasons(planned)["Succeeded"] == ("True", "Succeeded")
    assert planned.status.completion_time == at(200)
    assert planned.commit_first
    assert planned.deletes == ()


def test_workers_get_a_minute_after_success():
    done = replace(succeeded(), status=plan(succeeded()).status)
    assert plan(done, now=259).deletes == ()
    assert plan(done, now=259).wake_at == START + 260
    assert names(plan(done, now=260).deletes) == ["toy-worker-0"]


def test_pods_that_all_ended_by_themselves_do_not_wait_for_the_minute_to_pass():
    done = succeeded()
    pods = tuple(pod if pod.ended else ended(pod, 0) for pod in done.pods)
    done = replace(done, pods=pods, status=plan(done).status, spec=make_spec(cleanPodPolicy="All"))
    assert names(plan(done, now=201).deletes) == ["toy-master-0", "toy-worker-0"]


@pytest.mark.parametrize(
    ("policy", "gone"), [("Running", ["toy-worker-0"]), ("All", ["toy-master-0", "toy-worker-0"]), ("None", [])]
)
def test_clean_pod_policy_chooses_the_pods_that_go(policy, gone):
    done = succeeded()
    done = replace(done, status=plan(done).status, spec=make_spec(cleanPodPolicy=policy))
    assert names(plan(done, now=260).deletes) == gone


def test_a_master_told_to_go_does_not_succeed_by_exiting_zero():
    master = ended(make_pod("master-0"), 0, finished=150, deleting_since=START + 140, grace_seconds=120.0)
    planned = plan(make_job((master, make_pod("worker-0")), status=started()), make_grant())
    assert not planned.status.finished
    assert planned.status.incarnation == 2


def test_a_worker_that_ended_well_is_not_replaced_nor_lost():
    pods = (make_pod("master-0"), ended(make_pod("worker-0"), 0))
    planned = plan(make_job(pods, status=started()), make_grant(keep=["master-0"], create=["worker-1"]))
    assert planned.creates == ()
    assert (planned.status.restarts, planned.status.incarnation) == (0, 1)
    assert reasons(planned)["Ready"][1] in ("Running", "Rendezvousing")


def test_a_master_lost_after_a_worker_ended_well_starts_over():
    planned = plan(make_job((ended(make_pod("worker-0"), 0),), status=started()), make_grant())
    assert planned.status.incarnation == 2


def test_the_deadline_fails_the_job():
    job = make_job(spec=make_spec(activeDeadlineSeconds=100), status=started())
    assert plan(job, BOTH, now=99).wake_at == START + 100
    late = plan(job, BOTH, now=100)
    assert reasons(late)["Failed"] == ("True", "DeadlineExceeded")


def test_a_finished_job_is_deleted_after_its_ttl():
    done = replace(succeeded(), spec=make_spec(ttlSecondsAfterFinished=100))
    done = replace(done, status=plan(done).status)
    assert not plan(done, now=299).delete_job
    assert plan(done, now=300).delete_job


def test_an_ended_job_stays_as_it_ended():
    done = replace(succeeded(), status=plan(succeeded()).status)
    again = plan(done, now=205)
    assert again.events == ()
    assert reasons(again)["Succeeded"] == ("True", "Succeeded")


# --- suspend, invalid, stuck -----------------------------------------------------------------------------------------


def test_suspending_stops_every_pod_and_ends_the_incarnation():
    job = make_job(spec=make_spec(suspend=True), status=started())
    planned = plan(job)
    assert sorted(names(planned.deletes)) == ["toy-master-0", "toy-worker-0"]
    assert (planned.status.incarnation, planned.status.target_replicas) == (2, 0)
    assert reasons(planned)["Ready"] == ("True", "Suspended")
    assert reasons(planned)["FullSize"] == ("False", "Suspended")
    assert planned.status.restarts == 0


def test_a_resumed_job_starts_like_a_new_one():
    stopped = plan(make_job(spec=make_spec(suspend=True), status=started())).status
    planned = plan(make_job((), status=stopped), make_grant(create=["master-0", "worker-0"]))
    assert [c.incarnation for c in planned.creates] == [2, 2]


def test_an_unreadable_spec_leaves_running_pods_alone_and_says_what_is_wrong():
    job = replace(make_job(status=started()), spec=None, invalid="spec.template: must be ...")
    planned = plan(job)
    assert planned.deletes == ()
    assert reasons(planned)["Ready"] == ("False", "InvalidSpec")
    assert reasons(planned)["Stalled"] == ("True", "InvalidSpec")


def test_what_the_api_server_refuses_is_an_invalid_spec():
    job = make_job((), status=make_status(replicas=0), refused="unknown field spec.containrs")
    planned = plan(job)
    assert reasons(planned)["Ready"] == ("False", "InvalidSpec")
    assert "containrs" in planned.status.condition("Ready").message


def test_trouble_with_writes_is_told():
    job = make_job((), status=make_status(replicas=0), trouble="exceeded quota: pods=0")
    planned = plan(job, make_grant(create=["master-0", "worker-0"]))
    assert planned.status.condition("Ready").message == "exceeded quota: pods=0"


def test_a_start_the_scheduler_cannot_place_is_taken_back_and_tried_later():
    waiting = {"phase": "Pending", "bound": False, "main": MainContainer(), "unschedulable": "no node"}
    pods = group(1, unschedulable_since=START + 100, **waiting)
    planned = plan(make_job(pods, status=make_status()), BOTH, now=160)
    assert sorted(names(planned.deletes)) == ["toy-master-0", "toy-worker-0"]
    assert planned.status.retry.size == 1
    assert planned.status.target_replicas == 0
    assert reasons(planned)["Ready"] == ("False", "Queued")
    assert reasons(planned)["FullSize"] == ("False", "ScaleUpFailed")
    assert plan(make_job(pods, status=make_status()), BOTH, now=159).deletes == ()


def test_growth_the_scheduler_cannot_place_is_taken_back_and_the_rest_goes_on():
    stuck = make_pod(
        "worker-1", phase="Pending", main=MainContainer(), unschedulable="no cpu", unschedulable_since=START
    )
    job = make_job((*group(1), stuck), status=started(2))
    planned = plan(job, BOTH)
    assert names(planned.deletes) == ["toy-worker-1"]
    assert (planned.status.retry.size, planned.status.incarnation) == (3, 1)
    assert "no cpu" in planned.status.retry.reason


def test_an_image_that_cannot_be_pulled_is_told():
    main = MainContainer(waiting_reason="ImagePullBackOff", waiting_message="no such image")
    pods = (make_pod("master-0", phase="Pending", main=main), make_pod("worker-0", main=main))
    planned = plan(make_job(pods, status=make_status()), BOTH)
    assert reasons(planned)["Ready"] == ("False", "Starting")
    assert "ImagePullBackOff: no such image" in planned.status.condition("Ready").message


def test_below_its_minimum_a_job_says_that_training_stands():
    planned = plan(make_job((make_pod("master-0"),), status=started(0)), make_grant(keep=["master-0"]))
    assert reasons(planned)["Ready"] == ("False", "Rendezvousing")
    assert "minimum of 2" in planned.status.condition("Ready").message


def test_giving_everything_back_ends_the_incarnation():
    planned = plan(make_job(status=started()), make_grant(release=["master-0", "worker-0"], message="others first"))
    assert (planned.status.incarnation, planned.status.target_replicas) == (2, 0)
    assert len(planned.deletes) == 2


def test_members_are_told_apart_from_what_is_on_its_way_out():
    pods = (*group(1), make_pod("worker-1", deleting_since=START), make_pod("worker-2", incarnation=0))
    seen = see(make_job(pods, status=started()))
    assert names(seen.live) == ["toy-master-0", "toy-worker-0"]
    assert [p.name for p, _ in seen.gone] == ["toy-worker-2"]


def test_pods_of_an_older_template_are_replaced():
    job = make_job(group(1, template="old"), status=started(), fingerprints={"master": "new", "worker": "new"})
    planned = plan(job, make_grant(create=["master-0", "worker-0"]))
    assert planned.status.incarnation == 2
    assert sorted(names(planned.deletes)) == ["toy-master-0", "toy-worker-0"]
    assert planned.creates == ()


def test_pods_that_note_no_template_stay():
    job = make_job(status=started(), fingerprints={"master": "new", "worker": "new"})
    assert plan(job, BOTH).deletes == ()


def test_pods_lost_as_fast_as_they_are_made_are_not_made_without_end():
    lost = [Change(time=at(190 - i), from_=2, to=1, reason="PodLost") for i in range(3)]
    job = make_job((make_pod("master-0"),), status=started(history=lost))
    grant = make_grant(keep=["master-0"], create=["worker-0"])
    planned = plan(job, grant)
    assert planned.creates == ()
    assert planned.wake_at == START + 204
    assert len(plan(replace(job, status=planned.status), grant, now=204).creates) == 1
