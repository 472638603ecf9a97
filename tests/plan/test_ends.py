"""How a job ends, stops or cannot begin, one fact a test."""

from dataclasses import replace
from math import inf

import pytest

from elastic_api.status import Change, PodStatus, Retry, RetryCause
from elastic_operator.plan.facts.job import MainContainer
from tests.plan.jobs import (
    BOTH,
    START,
    TEMPLATE,
    at,
    ended,
    group,
    make_condition,
    make_grant,
    make_job,
    make_pod,
    make_spec,
    make_status,
    names,
    plan,
    reasons,
    see,
    started,
)

FAILS_AT_ONCE = {"maxFailuresWithoutProgress": 0}
UNSEEN = {"phase": "Pending", "bound": False, "main": MainContainer()}


def succeeded():
    return make_job((ended(make_pod("master-0"), 0), make_pod("worker-0")), status=started())


def test_the_master_decides_success():
    planned = plan(succeeded())
    assert reasons(planned)["Ready"] == ("True", "Succeeded")
    assert reasons(planned)["Succeeded"] == ("True", "Succeeded")
    assert planned.status.completion_time == at(200)
    assert planned.write_status_first
    assert planned.deletes == ()


def test_workers_get_a_minute_after_success():
    done = replace(succeeded(), status=plan(succeeded()).status)
    assert plan(done, now=259).deletes == ()
    assert plan(done, now=259).requeue_at == START + 260
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


def test_a_failed_pod_keeps_its_log_though_its_container_is_reported_before_the_pod():
    exited = make_pod("worker-0", main=MainContainer(exit_code=3, finished_at=START + 150))
    job = make_job((make_pod("master-0"), exited), status=started(), spec=make_spec(recovery=FAILS_AT_ONCE))
    failed = replace(job, status=plan(job, BOTH).status)
    assert names(plan(failed, now=201).deletes) == ["toy-master-0"]
    assert names(plan(failed, now=260).deletes) == ["toy-master-0", "toy-worker-0"]


def test_a_deleted_master_does_not_succeed_by_exiting_zero():
    master = ended(make_pod("master-0"), 0, finished=150, deleting_since=START + 140, grace_seconds=120.0)
    planned = plan(make_job((master, make_pod("worker-0")), status=started()), make_grant())
    assert not planned.status.finished
    assert planned.status.incarnation == 2


def test_a_worker_that_ended_well_is_not_replaced_nor_lost():
    pods = (make_pod("master-0"), ended(make_pod("worker-0"), 0))
    planned = plan(make_job(pods, status=started()), make_grant(keep=["master-0"], create=["worker-1"]))
    assert planned.slots == ()
    assert (planned.status.restarts, planned.status.incarnation) == (0, 1)
    assert reasons(planned)["Ready"][1] in ("Running", "Rendezvousing")


def test_a_master_lost_after_a_worker_ended_well_starts_over():
    planned = plan(make_job((ended(make_pod("worker-0"), 0),), status=started()), make_grant())
    assert planned.status.incarnation == 2


def test_the_deadline_fails_the_job():
    job = make_job(spec=make_spec(activeDeadlineSeconds=100), status=started(active_since=at(0)))
    assert plan(job, BOTH, now=99).requeue_at == START + 100
    late = plan(job, BOTH, now=100)
    assert reasons(late)["Failed"] == ("True", "DeadlineExceeded")


def test_time_without_pods_on_nodes_does_not_count_towards_the_deadline():
    spec = make_spec(activeDeadlineSeconds=100)
    first = plan(make_job(spec=spec, status=make_status(active_seconds=0)), BOTH, now=10).status
    assert (first.active_since, first.active_seconds) == (at(10), 0)
    away = plan(make_job((), spec=spec, status=first), make_grant(), now=50).status
    assert (away.active_since, away.active_seconds) == (None, 40)
    assert not plan(make_job((), spec=spec, status=away), make_grant(), now=5000).status.finished
    again = make_job(spec=spec, status=plan(make_job(spec=spec, status=away), BOTH, now=5000).status)
    assert plan(again, BOTH, now=5059).requeue_at == START + 5060
    assert reasons(plan(again, BOTH, now=5060))["Failed"] == ("True", "DeadlineExceeded")


@pytest.mark.parametrize("suspend", [False, True])
def test_a_terminating_pod_on_an_unready_node_does_not_count_towards_the_deadline(suspend):
    spec = make_spec(activeDeadlineSeconds=100, suspend=suspend)
    gone = make_pod("worker-0", node="n2", deleting_since=START + 20)
    status = make_status(active_seconds=0, active_since=at(0), target_replicas=0, replicas=0)
    stays = plan(make_job((gone,), spec=spec, status=status), make_grant(), now=30).status
    assert (stays.active_since, stays.active_seconds) == (at(0), 0), "its node is Ready, and it may well train"
    away = plan(make_job((gone,), spec=spec, status=status), make_grant(), now=30, unready={"n2": 25}).status
    assert (away.active_since, away.active_seconds, away.gpus) == (None, 30, 1)
    later = make_job((gone,), spec=spec, status=away)
    assert not plan(later, make_grant(), now=5000, unready={"n2": 4990}).status.finished


def of_old(*changes, **status):
    """The status of a release that kept no account: changes of size as (time, before, after), oldest first."""
    history = [Change(time=at(time), from_=before, to=after, reason="x") for time, before, after in reversed(changes)]
    return make_status(history=history, **status)


DEADLINE = make_spec(activeDeadlineSeconds=100)
ADMITTED = {"conditions": [make_condition("Admitted", "False", 50)], "target_replicas": 0, "replicas": 0}


@pytest.mark.parametrize(
    ("status", "pods", "account"),
    [
        (of_old((0, 0, 2)), group(), (0, at(0))),
        (of_old((0, 0, 2), (30, 2, 0), (70, 0, 2), (80, 2, 3)), group(), (30, at(70))),
        (of_old((0, 0, 2), (30, 2, 3), (40, 3, 0), **ADMITTED), (), (40, None)),
        (of_old((0, 0, 2), **ADMITTED), (), (50, None)),
        (of_old((20, 3, 2), (30, 2, 0), (70, 0, 2)), group(), (30, at(70))),
        (of_old((0, 0, 2), (30, 2, 0)), group(), (30, at(30))),
        (make_status(start_time=None, target_replicas=0, replicas=0), (), (0, None)),
    ],
    ids=["runs", "runs again", "is queued", "did not start", "a longer history", "lost its pods", "has not started"],
)
def test_a_job_of_before_the_account_was_kept_goes_on_with_its_deadline(status, pods, account):
    planned = plan(make_job(pods, spec=DEADLINE, status=status), BOTH if pods else make_grant(), now=90)
    assert not planned.status.finished
    assert (planned.status.active_seconds, planned.status.active_since) == account


def test_a_queued_job_whose_deadline_is_over_fails_before_it_preempts():
    job = make_job((), spec=DEADLINE, status=make_status(active_seconds=100, target_replicas=0, replicas=0))
    assert reasons(plan(job, make_grant()))["Failed"] == ("True", "DeadlineExceeded")


@pytest.mark.parametrize("policy", ["None", "Running"])
def test_after_the_deadline_no_pod_runs_on_whatever_clean_pod_policy_says(policy):
    spec = make_spec(activeDeadlineSeconds=100, cleanPodPolicy=policy)
    pods = (make_pod("master-0"), ended(make_pod("worker-0"), 0), make_pod("worker-1"))
    job = make_job(pods, spec=spec, status=started(2, active_since=at(0)))
    over = plan(replace(job, status=plan(job, BOTH, now=100).status), now=101)
    assert sorted(pod.name for pod in over.deletes) == ["toy-master-0", "toy-worker-1"]


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
    assert (planned.creates.incarnation, len(planned.slots)) == (2, 2)


def test_an_unreadable_spec_leaves_running_pods_alone_and_says_what_is_wrong():
    job = replace(make_job(status=started()), spec=None, invalid="spec.template: must be ...")
    planned = plan(job)
    assert planned.deletes == ()
    assert reasons(planned)["Ready"] == ("False", "InvalidSpec")
    assert reasons(planned)["Stalled"] == ("True", "InvalidSpec")


def test_what_the_api_server_refuses_is_an_invalid_spec():
    job = make_job((), status=make_status(replicas=0), pods_rejected_until_edit="unknown field spec.containrs")
    planned = plan(job)
    assert reasons(planned)["Ready"] == ("False", "InvalidSpec")
    assert "containrs" in planned.status.condition("Ready").message


def test_trouble_with_writes_is_told():
    job = make_job((), status=make_status(replicas=0), write_error="exceeded quota: pods=0")
    planned = plan(job, make_grant(create=["master-0", "worker-0"]))
    assert planned.status.condition("Ready").message == "exceeded quota: pods=0."


def test_a_start_the_scheduler_cannot_place_is_taken_back_and_tried_later():
    waiting = {"phase": "Pending", "bound": False, "main": MainContainer(), "unschedulable": "no node"}
    pods = group(1, unschedulable_since=START + 100, **waiting)
    planned = plan(make_job(pods, status=make_status()), BOTH, now=160)
    assert sorted(names(planned.deletes)) == ["toy-master-0", "toy-worker-0"]
    assert planned.status.failed_size.size == 1
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
    assert (planned.status.failed_size.size, planned.status.incarnation) == (3, 1)
    assert "no cpu" in planned.status.failed_size.reason


def test_pods_wait_for_their_scheduling_gates_as_long_as_it_takes_and_name_them():
    pods = group(1, gates=("kueue.x-k8s.io/topology", "example.com/quota"), **UNSEEN)
    planned = plan(make_job(pods, status=make_status()), BOTH, now=86_400)
    assert (planned.deletes, planned.status.retry) == ((), None)
    who, gates = "toy-master-0, toy-worker-0", "kueue.x-k8s.io/topology, example.com/quota"
    told = planned.status.condition("Ready").message
    assert f"kube-scheduler does not look at {who} before these scheduling gates are removed: {gates}." in told
    assert "No scheduler has tried" not in told


def test_pods_wait_while_the_scheduler_itself_fails_and_name_its_error():
    pods = group(1, scheduler_error="running Bind plugin: timeout", **UNSEEN)
    planned = plan(make_job(pods, status=make_status()), BOTH, now=86_400)
    assert (planned.deletes, planned.status.retry) == ((), None)
    told = planned.status.condition("Ready").message
    who = "toy-master-0, toy-worker-0"
    assert told == f"0 of 2 pods run. The scheduler failed, and tries {who} again: running Bind plugin: timeout."


def test_a_gated_newcomer_of_a_running_job_is_not_taken_back():
    late = make_pod("worker-1", gates=("example.com/quota",), **UNSEEN)
    planned = plan(
        make_job((*group(1), late), status=started(2)), make_grant(keep=["master-0", "worker-0", "worker-1"])
    )
    assert planned.deletes == ()
    assert "example.com/quota" in planned.status.condition("Ready").message


def test_an_image_that_cannot_be_pulled_is_told():
    main = MainContainer(waiting_reason="ImagePullBackOff", waiting_message="no such image")
    pods = (make_pod("master-0", phase="Pending", main=main), make_pod("worker-0", main=main))
    planned = plan(make_job(pods, status=make_status()), BOTH)
    assert reasons(planned)["Ready"] == ("False", "Starting")
    assert "ImagePullBackOff: no such image" in planned.status.condition("Ready").message


def test_pods_that_wait_for_the_same_are_named_together():
    main = MainContainer(waiting_reason="ImagePullBackOff", waiting_message="no such image")
    pods = group(63, phase="Pending", main=main)
    planned = plan(make_job(pods, status=make_status(target_replicas=64)), make_grant(keep=[pod.name for pod in pods]))
    named = "toy-master-0, toy-worker-0, toy-worker-1, toy-worker-2, toy-worker-3 and 59 more"
    expected = f"0 of 64 pods run. {named} cannot start: ImagePullBackOff: no such image."
    assert planned.status.condition("Ready").message == expected


def test_of_many_reasons_to_wait_the_first_are_told():
    pods = tuple(
        replace(pod, main=MainContainer(waiting_reason="CrashLoopBackOff", waiting_message=f"pod={pod.name}"))
        for pod in group(9, phase="Pending")
    )
    planned = plan(make_job(pods, status=make_status(target_replicas=10)), make_grant(keep=[pod.name for pod in pods]))
    told = planned.status.condition("Ready").message
    assert told.count("CrashLoopBackOff") == 5
    assert told.endswith("toy-worker-3 cannot start: CrashLoopBackOff: pod=toy-worker-3. 5 more pods wait.")


def test_pods_that_no_scheduler_looks_at_are_told_after_their_time():
    pods = group(1, created=START + 100, **UNSEEN)
    planned = plan(make_job(pods, status=make_status()), BOTH, now=129)
    assert planned.status.condition("Ready").message == "0 of 2 pods run."
    assert planned.requeue_at == START + 130
    told = plan(make_job(pods, status=make_status()), BOTH, now=130).status.condition("Ready").message
    who = "toy-master-0, toy-worker-0"
    assert told == f"0 of 2 pods run. No scheduler has tried {who} within 30 s. Check that kube-scheduler runs."


def test_a_scheduler_that_does_not_run_is_named():
    template = {"spec": {**TEMPLATE["spec"], "schedulerName": "kai"}}
    job = make_job(group(1, created=START, **UNSEEN), spec=make_spec(template=template), status=make_status())
    told = plan(job, BOTH).status.condition("Ready").message
    assert told.endswith("Check that a scheduler called kai (schedulerName) runs.")


def test_a_running_job_whose_newcomer_no_scheduler_looks_at_says_which():
    late = make_pod("worker-1", created=START + 100, **UNSEEN)
    job = make_job((*group(1), late), status=started(2))
    planned = plan(job, make_grant(keep=["master-0", "worker-0", "worker-1"]))
    assert reasons(planned)["Ready"] == ("True", "Degraded")
    assert "No scheduler has tried toy-worker-1 within" in planned.status.condition("Ready").message


def test_below_its_minimum_a_job_says_that_training_stands():
    planned = plan(make_job((make_pod("master-0"),), status=started(0)), make_grant(keep=["master-0"]))
    assert reasons(planned)["Ready"] == ("False", "Rendezvousing")
    assert "minimum of 2" in planned.status.condition("Ready").message


def test_giving_everything_back_ends_the_incarnation():
    planned = plan(
        make_job(status=started()), make_grant(release=["master-0", "worker-0"], message="Others are first.")
    )
    assert (planned.status.incarnation, planned.status.target_replicas) == (2, 0)
    assert len(planned.deletes) == 2


def test_members_are_told_apart_from_leaving_pods():
    pods = (*group(1), make_pod("worker-1", deleting_since=START), make_pod("worker-2", incarnation=0))
    seen = see(make_job(pods, status=started()))
    assert names(seen.members) == ["toy-master-0", "toy-worker-0"]
    assert [p.name for p in seen.to_delete] == ["toy-worker-2"]


def test_pods_of_an_older_template_are_replaced():
    job = make_job(group(1, template="old"), status=started(), fingerprints={"master": "new", "worker": "new"})
    planned = plan(job, make_grant(create=["master-0", "worker-0"]))
    assert planned.status.incarnation == 2
    assert sorted(names(planned.deletes)) == ["toy-master-0", "toy-worker-0"]
    assert planned.slots == ()


def test_pods_that_note_no_template_stay():
    job = make_job(status=started(), fingerprints={"master": "new", "worker": "new"})
    assert plan(job, BOTH).deletes == ()


def test_pods_lost_as_fast_as_they_are_made_are_not_made_without_end():
    lost = [Change(time=at(185 - 15 * i), from_=2, to=1, reason="PodLost") for i in range(3)]
    gone = PodStatus(name="toy-worker-0", role="worker", phase="Pending")
    job = make_job((make_pod("master-0"),), status=started(history=lost, pods=[gone]))
    grant = make_grant(keep=["master-0"], create=["worker-0"])
    planned = plan(job, grant)
    assert planned.slots == ()
    assert planned.requeue_at == START + 204
    assert len(plan(replace(job, status=planned.status), grant, now=204).slots) == 1


def starting(since=0.0, reason="ImagePullBackOff", *, on_its_way=False, progress=None, **fields):
    """A pod whose container has not started on its node; an init container of it began or ended at `progress`."""
    waiting_since = None if progress is None else START + progress
    main = MainContainer(
        waiting_reason=reason,
        waiting_message="no",
        waiting_container="pytorch",
        waiting_since=waiting_since,
        is_on_its_way=on_its_way,
    )
    return {"phase": "Pending", "main": main, "bound_since": START + since, "ready": False, **fields}


@pytest.mark.parametrize(("reason", "after"), [("ImagePullBackOff", 300), ("ContainerCreating", 3600), ("", 3600)])
def test_pods_that_do_not_start_are_deleted_after_a_time_that_begins_with_their_node(reason, after):
    job = make_job(group(1, **starting(50, reason)), status=make_status(), start_seconds=300)
    early = plan(job, BOTH, now=49 + after)
    assert (early.deletes, early.requeue_at) == ((), START + 50 + after)
    late = plan(job, BOTH, now=50 + after)
    assert sorted(names(late.deletes)) == ["toy-master-0", "toy-worker-0"]
    assert reasons(late)["PodsNotStarted"] == ("True", reason or "ContainerCreating")
    assert reasons(late)["Ready"] == ("False", "Queued")
    assert (late.status.failed_size.size, late.status.restarts, late.status.failures) == (1, 0, 0)
    assert late.status.failed_size.cause is RetryCause.PODS_NOT_STARTED


def test_a_pod_has_unlimited_time_for_its_init_containers_and_its_image_pull():
    pods = group(1, **starting(reason="PodInitializing", on_its_way=True))
    planned = plan(make_job(pods, status=make_status(), start_seconds=300), BOTH, now=100_000)
    assert (planned.deletes, planned.requeue_at) == ((), inf)


def test_the_time_begins_anew_when_an_init_container_has_ended():
    pods = group(1, **starting(50, "ErrImagePull", progress=1500))
    job = make_job(pods, status=make_status(), start_seconds=300)
    assert (plan(job, BOTH, now=1799).deletes, plan(job, BOTH, now=1799).requeue_at) == ((), START + 1800)
    assert len(plan(job, BOTH, now=1800).deletes) == 2


@pytest.mark.parametrize("suspend", [False, True], ids=["edited", "suspended"])
def test_a_job_that_could_not_start_is_tried_again_at_once_when_somebody_has_edited_it(suspend):
    waits = Retry(reason="no such image", not_before=at(3000), attempt=7, size=1)
    status = make_status(target_replicas=0, replicas=0, failed_size=waits)
    job = make_job((), spec=make_spec(suspend=suspend), status=status, generation=2)
    planned = plan(job, make_grant(create=["master-0", "worker-0"]))
    assert planned.status.failed_size is None
    assert len(planned.slots) == (0 if suspend else 2)
    assert plan(replace(job, generation=1), make_grant()).status.failed_size == waits


def test_a_repeatedly_edited_job_waits_after_some_edits_until_it_has_run_for_ten_minutes():
    waits = Retry(reason="no such image", not_before=at(3000), attempt=1, size=1)
    status, tried = make_status(target_replicas=0, replicas=0, failed_size=waits), []
    for edit in range(2, 9):
        planned = plan(make_job((), spec=make_spec(), status=status, generation=edit), make_grant())
        tried.append(planned.status.failed_size is None)
        status = planned.status.model_copy(update={"failed_size": waits})
    assert tried == [True] * 5 + [False] * 2
    assert "The back-off continues" in planned.events[-1].message
    runs = started(waits_ended_by_edits=5)
    assert plan(make_job(status=runs), BOTH, now=604).status.waits_ended_by_edits == 5
    assert plan(make_job(status=runs), BOTH, now=605).status.waits_ended_by_edits is None


def test_an_edit_of_a_job_that_runs_does_not_try_again_what_could_not_be_had():
    waits = Retry(reason="no such image", not_before=at(3000), attempt=7, size=3)
    assert plan(make_job(status=started(failed_size=waits), generation=2), BOTH).status.failed_size == waits


@pytest.mark.parametrize(
    ("fields", "unready"),
    [({"start_seconds": 0}, {}), ({}, {"n1": 895}), ({"pods": group(1, **starting(phase="Running"))}, {})],
    ids=["switched off", "a node that is not Ready", "its container has run"],
)
def test_such_pods_stay(fields, unready):
    job = make_job(group(1, **starting()), status=make_status(), start_seconds=300)
    assert plan(replace(job, **fields), BOTH, now=900, unready=unready).deletes == ()
