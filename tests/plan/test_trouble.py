"""What a job survives and what it fails of, one fact a test."""

from dataclasses import replace

import pytest

from elastic_api.status import MAX_AVOIDED, Change, ConditionType, JobStatus, PodStatus, Retry, RetryCause, Training
from elastic_operator.plan.facts.job import MainContainer
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.facts.times import seconds
from elastic_operator.plan.facts.waits import UNSCHEDULABLE_SECONDS
from elastic_operator.plan.job.observe import observe
from elastic_operator.plan.job.unplaceable import may_preempt_at
from elastic_worker.contract import EXIT_DO_NOT_RETRY
from tests.plan.jobs import (
    BOTH,
    START,
    at,
    ended,
    group,
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
    with_facts,
)

QUOTA = "The API server takes no more pods of this job: exceeded quota. Wait."


def test_a_lost_worker_is_replaced_and_counted_as_a_restart_not_a_failure():
    status = plan(make_job(group(2), status=started(2)), make_grant(keep=["master-0", "worker-0", "worker-1"])).status
    job = make_job(group(1), status=status)
    planned = plan(job, make_grant(keep=["master-0", "worker-0"], create=["worker-1"]))
    assert (planned.status.restarts, planned.status.failures) == (1, 0)
    assert [c.index for c in planned.slots] == [1]
    assert planned.status.incarnation == 1
    assert [e.reason for e in planned.events] == ["PodLost"]
    assert "toy-worker-1" in planned.events[0].message


def of_three(phase="Running", **fields):
    """A status that lists a master and two workers, the last one in this phase."""
    seen = [PodStatus(name=pod.name, uid=pod.uid, role=pod.role, phase="Running") for pod in group(1)]
    last = PodStatus(**{"name": "toy-worker-1", "uid": "uid-worker-1", "role": "worker", "phase": phase, **fields})
    return make_status(replicas=3, target_replicas=3, pods=[*seen, last])


GETS_WORKER_1 = make_grant(keep=["master-0", "worker-0"], create=["worker-1"])
EVICTED = ended(make_pod("worker-1"), 137, disrupted="evicted by the kubelet")


def test_the_successor_of_a_deleted_pod_does_not_wait_until_the_loss_is_written():
    planned = plan(make_job(group(1), status=of_three()), GETS_WORKER_1)
    assert ([c.index for c in planned.slots], planned.status.restarts) == ([1], 1)
    assert not planned.write_status_first


@pytest.mark.parametrize(
    ("pods", "status"),
    [
        (group(1), of_three("Pending")),  # it was deleted before it ran, so its successor may be as well
        ((*group(1), EVICTED), of_three()),
        (group(1), of_three(uid=None)),
        (group(1), of_three().model_copy(update={"pods_not_listed": 1})),
        ((*group(1), make_pod("worker-1", deleting_since=START + 99)), of_three("Pending")),
    ],
    ids=["not-started", "evicted", "status-of-an-older-release", "not-all-listed", "status-behind-its-pod"],
)
def test_a_loss_is_written_first_that_the_next_leader_could_not_judge(pods, status):
    planned = plan(make_job(pods, status=status), GETS_WORKER_1)
    assert (planned.status.restarts, planned.write_status_first) == (1, True)


@pytest.mark.parametrize(("uid", "restarts"), [("uid-before", 1), ("uid-worker-1", 0), (None, 0)])
def test_a_successor_with_the_name_of_a_lost_pod_does_not_hide_the_loss(uid, restarts):
    """The leader may end between the successor's creation and the status."""
    seen = see(make_job(group(2), status=of_three(uid=uid)))
    assert (seen.status.restarts, seen.status.replicas) == (restarts, 3)


def test_without_its_master_an_incarnation_is_over():
    pods = (make_pod("worker-0"), make_pod("worker-1"))
    planned = plan(make_job(pods, status=started(2)), make_grant(keep=[], create=["master-0", "worker-2"]))
    assert planned.status.incarnation == 2
    assert sorted(names(planned.deletes)) == ["toy-worker-0", "toy-worker-1"]
    assert planned.creates.incarnation == 2
    assert planned.write_status_first
    assert planned.status.failures == 0


def test_a_pod_the_cluster_ended_is_a_loss():
    pods = (make_pod("master-0"), ended(make_pod("worker-0"), 137, disrupted="evicted by the kubelet"))
    planned = plan(make_job(pods, status=started()), make_grant(keep=["master-0"], create=["worker-1"]))
    assert (planned.status.restarts, planned.status.failures, planned.status.incarnation) == (1, 0, 1)
    assert names(planned.deletes) == ["toy-worker-0"]
    assert "evicted by the kubelet" in planned.events[0].message


def test_a_pod_on_an_unreachable_node_is_force_deleted_in_time_and_the_others_do_not_wait():
    pods = (make_pod("master-0"), make_pod("worker-0", node="n2"))
    job = make_job(pods, status=started())
    early = plan(job, BOTH, now=139, unready={"n2": 100})
    assert early.deletes == ()
    assert early.requeue_at == START + 140
    late = plan(job, make_grant(keep=["master-0"], create=["worker-1"]), now=141, unready={"n2": 100})
    assert [(d.name, d.force) for d in late.deletes] == [("toy-worker-0", True), ("toy-master-0", False)]
    assert [event.reason for event in late.events[:2]] == ["NodeLost", "NewIncarnation"]
    assert (late.status.incarnation, late.status.failures) == (2, 0)


def test_a_pod_already_terminating_on_a_lost_node_is_forced_too():
    pods = (*group(1), make_pod("worker-1", node="n2", deleting_since=START, grace_seconds=30.0))
    planned = plan(make_job(pods, status=started()), BOTH, unready={"n2": 100})
    assert [(d.name, d.force) for d in planned.deletes] == [("toy-worker-1", True)]


def test_a_pod_that_was_forced_and_stays_for_a_finalizer_is_not_forced_again():
    pods = (*group(1), make_pod("worker-1", node="n2", deleting_since=START, grace_seconds=0.0))
    assert plan(make_job(pods, status=started()), BOTH, unready={"n2": 100}).deletes == ()


def failed_job(**status):
    pods = (make_pod("master-0"), ended(make_pod("worker-0"), 1, message="ValueError: no"))
    return make_job(pods, status=started(**status))


def test_an_agent_that_gives_up_ends_the_incarnation_and_counts_as_a_failure():
    planned = plan(failed_job(), make_grant())
    assert (planned.status.incarnation, planned.status.failures, planned.status.restarts) == (2, 1, 1)
    assert (planned.status.retry.attempt, planned.status.retry.cause) == (1, RetryCause.POD_FAILED)
    assert sorted(names(planned.deletes)) == ["toy-master-0", "toy-worker-0"]
    assert "ValueError: no" in planned.status.retry.reason


@pytest.mark.parametrize(("attempt", "wait"), [(1, 2), (3, 8), (9, 60)])
def test_the_wait_doubles_up_to_a_minute(attempt, wait):
    job = failed_job(retry=Retry(reason="", not_before=at(0), attempt=attempt), failures=0)
    retry = plan(job, make_grant()).status.retry
    assert 200 + wait <= retry.not_before.timestamp() - START <= 200 + wait + 1


def test_a_failure_waits_no_longer_because_a_larger_size_could_not_be_had_before():
    larger = Retry(reason="", not_before=at(0), attempt=9, size=5, cause=RetryCause.UNSCHEDULABLE)
    retry = plan(failed_job(failed_size=larger), make_grant()).status.retry
    assert (retry.attempt, retry.not_before) == (1, at(201))


LARGER = Retry(reason="no room.", not_before=at(1500), attempt=3, size=4, cause=RetryCause.UNSCHEDULABLE)


def fails(status):
    return failed_job(**status)


def loses_for_the_third_time(status):
    lost = [Change(time=at(time), from_=2, to=1, reason="PodLost") for time in (170, 110)]
    pods = [PodStatus(name="toy-master-0", role="master", phase="Running")]
    gone = PodStatus(name="toy-worker-0", role="worker", phase="Pending")
    return make_job([make_pod("master-0")], status=started(history=lost, pods=[*pods, gone], **status))


@pytest.mark.parametrize("goes_wrong", [fails, loses_for_the_third_time])
def test_a_failure_or_loss_does_not_bring_the_next_try_of_a_failed_size_forward(goes_wrong):
    status = plan(goes_wrong({"failed_size": LARGER}), make_grant(keep=["master-0"])).status
    assert (status.retry.attempt, status.failed_size) == (status.retry.attempt, LARGER)
    assert seconds(status.retry.not_before) < START + 210


def test_a_size_that_fails_again_waits_longer_although_the_job_failed_in_between():
    status = plan(fails({"failed_size": LARGER}), make_grant()).status
    pods, since = group(2, incarnation=2), START + 1600
    waits = replace(make_pod("worker-2", incarnation=2), node=None, unschedulable="no", unschedulable_since=since)
    seen = see(make_job((*pods, waits), status=status.model_copy(update={"replicas": 4})), now=1700)
    assert (seen.status.failed_size.size, seen.status.failed_size.attempt) == (4, 4)


def test_without_the_field_for_a_failed_size_the_older_field_has_the_longest_wait():
    job = make_job(status=started(failed_size=LARGER), pruned_status_fields=frozenset({"failedSize"}))
    assert plan(job, BOTH).status.retry == LARGER
    stored = plan(job, BOTH).status.model_dump(mode="json", by_alias=True, exclude_none=True)
    del stored["failedSize"]
    assert JobStatus.model_validate(stored).failed_size == LARGER


def test_nothing_is_created_before_the_wait_is_over():
    status = make_status(incarnation=2, replicas=0, retry=Retry(reason="boom", not_before=at(210)))
    job = make_job((), status=status)
    grant = make_grant(create=["master-0", "worker-0"])
    assert plan(job, grant, now=209).slots == ()
    assert plan(job, grant, now=209).requeue_at == START + 210
    assert reasons(plan(job, grant, now=209))["Ready"] == ("False", "Restarting")
    assert len(plan(job, grant, now=210).slots) == 2


def test_while_its_pods_run_again_the_job_says_how_the_start_before_failed():
    status = started(failures=1, retry=Retry(reason="toy-master-0 failed with exit code 1: boom.", not_before=at(1)))
    ready = next(c for c in plan(make_job(status=status), BOTH, now=60).status.conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == ("True", "Running")
    assert (
        "The job has failed once without progress, and ends at 3. The last failure was: toy-master-0 failed with exit"
        " code 1: boom." in ready.message
    )


def test_a_size_that_could_not_be_had_is_no_failure_of_the_start_before():
    larger = Retry(reason="no room.", not_before=at(1), size=3, cause=RetryCause.UNSCHEDULABLE)
    status = plan(make_job(status=started(failures=1, failed_size=larger)), BOTH, now=60).status
    assert "no room" not in status.condition("Ready").message


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


def test_a_job_may_be_started_over_so_often_in_its_whole_life():
    spec = make_spec(recovery={"maxRestarts": 7})
    assert not plan(replace(failed_job(total_failures=6), spec=spec), make_grant()).status.finished
    last = plan(replace(failed_job(total_failures=7), spec=spec), make_grant())
    assert reasons(last)["Failed"] == ("True", "RestartLimitReached")
    assert (
        "The job has failed 8 times in all, and recovery.maxRestarts is 7." in last.status.condition("Failed").message
    )


def test_what_is_no_failure_does_not_count_in_all():
    history = [Change(time=at(50), from_=3, to=2, reason="ScaledDown")]
    job = replace(failed_job(history=history, total_failures=1), spec=make_spec(recovery={"maxRestarts": 1}))
    planned = plan(job, make_grant())
    assert (planned.status.total_failures, planned.status.finished) == (1, False)


@pytest.mark.parametrize(
    ("main", "over"),
    [
        ({"exit_code": 42}, True),
        ({"exit_code": 1, "script_exit_code": 42}, True),
        ({"exit_code": 1, "script_exit_code": -9}, True),
        ({"exit_code": 1}, False),
        ({"exit_code": 42, "script_exit_code": 2}, False),
        ({"exit_code": 42, "is_consequence": True}, False),
        ({"exit_code": 1, "script_exit_code": 1}, True),
    ],
    ids=[
        "its own",
        "in torchrun's summary",
        "of a signal",
        "torchrun's own without a summary, as where the log could not be read",
        "another in the summary",
        "a consequence",
        "torchrun's own, which the summary names",
    ],
)
def test_a_final_exit_code_ends_the_job_at_its_first_failure(main, over):
    job = failed_job()
    pods = (job.pods[0], replace(job.pods[1], main=replace(job.pods[1].main, **main)))
    spec = make_spec(recovery={"finalExitCodes": [1, 42, 137]})
    planned = plan(replace(job, pods=pods, spec=spec), make_grant())
    assert (reasons(planned)["Failed"] == ("True", "FinalExitCode")) is over
    assert planned.status.finished is over


def test_a_final_exit_code_right_after_a_pod_was_lost_is_tried_again():
    history = [Change(time=at(50), from_=3, to=2, reason="PodLost")]
    spec = make_spec(recovery={"finalExitCodes": [1]})
    planned = plan(replace(failed_job(history=history), spec=spec), make_grant())
    assert (planned.status.finished, planned.status.failures, planned.status.incarnation) == (False, 0, 2)


AT_STEP = {"step_at_failure": 100}
AT_CHECKPOINT = {"checkpoint_at_failure": 100, "step_at_failure": 150}


def reached(*, told=100.0, **fields):
    """What the master told at that time."""
    return Training(last_updated_time=at(told), **fields)


@pytest.mark.parametrize(
    ("training", "before", "failures"),
    [
        (reached(step=100), AT_STEP, 2),
        (reached(step=101), AT_STEP, 1),
        (reached(step=99), AT_STEP, 2),
        (reached(step=900, last_checkpoint_step=100), AT_CHECKPOINT, 2),
        (reached(step=900, last_checkpoint_step=200), AT_CHECKPOINT, 1),
        (reached(step=900), AT_CHECKPOINT, 2),
        (reached(step=900, last_checkpoint_step=200), AT_STEP, 2),
        (reached(goodput=0.5), AT_STEP, 2),
        (reached(step=900), {}, 2),
    ],
    ids=[
        "the same step",
        "a later step",
        "steps begin anew",
        "the same checkpoint",
        "a later checkpoint",
        "no checkpoint yet",
        "checkpoints instead of steps",
        "not known",
        "not known before",
    ],
)
def test_a_failure_after_progress_is_the_first_in_a_row(training, before, failures):
    job = failed_job(failures=1, training=training, **before)
    assert plan(job, make_grant()).status.failures == failures


@pytest.mark.parametrize(
    ("training", "before", "forgets"),
    [
        (reached(step=101), AT_STEP, "at once"),
        (reached(step=50), AT_STEP, "after ten minutes"),
        (reached(step=900, last_checkpoint_step=50), AT_STEP, "after ten minutes"),
        (reached(step=10, last_checkpoint_step=50), AT_CHECKPOINT, "after ten minutes"),
        (reached(step=100), AT_STEP, "never"),
        (reached(step=900), AT_CHECKPOINT, "never"),
        (reached(step=100, told=4), AT_STEP, "after ten minutes"),
    ],
    ids=[
        "a later step",
        "steps begin anew in each run",
        "checkpoints instead of steps",
        "checkpoints begin anew",
        "the same step",
        "no checkpoint yet",
        "nothing told since it runs",
    ],
)
def test_progress_resets_failures_at_once_and_ten_minutes_of_running_if_it_is_unknown(training, before, forgets):
    status = started(failures=2, training=training, **before)
    early, late = (plan(make_job(status=status), BOTH, now=now).status for now in (604, 605))
    kept = {"at once": (0, 0), "after ten minutes": (2, 0), "never": (2, 2)}
    assert (early.failures, late.failures) == kept[forgets]
    marks = (late.checkpoint_at_failure, late.step_at_failure)
    assert (marks == (None, None)) is (forgets != "never")


def test_a_script_that_counts_steps_from_0_may_fail_as_often_as_it_trains_in_between():
    status, now = started(training=reached(step=5000)), 200
    for steps in (5000, 3000, 4000, 2000):
        status = status.model_copy(update={"training": reached(step=steps, told=now), "running_since": at(now)})
        status = plan(make_job(status=status), BOTH, now=now + 700).status
        now += 800
        pods = (make_pod("master-0"), ended(make_pod("worker-0"), 1, finished=now))
        status = plan(make_job(pods, status=status), make_grant(), now=now).status
        assert (status.failures, status.finished) == (1, False)
        status = status.model_copy(update={"incarnation": 1, "replicas": 2, "retry": None})


def test_soon_failing_runs_count_as_consecutive_though_each_counts_steps_from_0():
    job = failed_job(failures=1, training=reached(step=40), step_at_failure=50)
    status = plan(job, make_grant()).status
    assert (status.failures, status.step_at_failure) == (2, 50)
    again = failed_job(failures=2, training=reached(step=45), step_at_failure=status.step_at_failure)
    assert plan(again, make_grant()).status.finished


def test_progress_before_a_suspension_does_not_count_for_the_next_script():
    job = make_job(spec=make_spec(suspend=True), status=started(failures=1, **AT_CHECKPOINT))
    status = plan(job).status
    assert (status.failures, status.checkpoint_at_failure, status.step_at_failure) == (1, None, None)


def test_a_pod_that_says_that_no_other_fares_better_fails_the_job_at_once_with_its_words():
    last = ended(make_pod("worker-0"), EXIT_DO_NOT_RETRY, message="torchrun: it has torch 2.3.1")
    planned = plan(make_job((make_pod("master-0"), last), status=started()), make_grant())
    assert reasons(planned)["Failed"] == ("True", "RestartLimitReached")
    assert planned.status.condition("Failed").message == "torchrun: it has torch 2.3.1."


def warning(kind, code, message):
    """The warnings of a job that has this one."""
    return {ConditionType(kind): Reason(code, message)}


def test_a_job_that_asks_for_what_is_not_counted_says_so_once_and_runs():
    job = make_job(
        group(1),
        status=started(),
        warnings=warning("DevicesNotCounted", "DynamicResourceAllocation", "Its pods have resourceClaims."),
    )
    planned = plan(job, BOTH)
    assert [(event.reason, event.type) for event in planned.events] == [("DevicesNotCounted", "Warning")]
    assert reasons(planned)["DevicesNotCounted"] == ("True", "DynamicResourceAllocation")
    assert planned.status.condition("DevicesNotCounted").message == "Its pods have resourceClaims."
    assert (planned.deletes, reasons(planned)["Ready"]) == ((), ("True", "Running"))
    again = plan(replace(job, status=planned.status), BOTH)
    assert again.events == ()
    counted = plan(with_facts(replace(job, status=planned.status), warnings={}), BOTH)
    assert reasons(counted)["DevicesNotCounted"] == ("False", "Over")


def test_a_job_whose_priority_class_is_passed_over_says_why_once_and_runs_on():
    job = make_job(
        group(1), status=started(), warnings=warning("PriorityIgnored", "NoSuchPriorityClass", "There is no 'gone'")
    )
    planned = plan(job, BOTH)
    assert reasons(planned)["PriorityIgnored"] == ("True", "NoSuchPriorityClass")
    assert [(event.reason, event.message) for event in planned.events] == [("PriorityIgnored", "There is no 'gone'.")]
    assert (planned.deletes, reasons(planned)["Ready"]) == ((), ("True", "Running"))
    odd = warning("PriorityIgnored", "PriorityClassNotAllowed", "not that one")
    forbidden = with_facts(replace(job, status=planned.status), warnings=odd)
    planned = plan(forbidden, BOTH)
    assert reasons(planned)["PriorityIgnored"] == ("True", "PriorityClassNotAllowed")
    assert (planned.events, planned.deletes) == ((), ())
    mended = plan(with_facts(replace(job, status=planned.status), warnings={}), BOTH)
    assert reasons(mended)["PriorityIgnored"] == ("False", "Over")


def test_a_job_whose_template_names_a_class_that_preempts_says_so_and_runs_on():
    job = make_job(group(1), status=started(), warnings=warning("PodPriorityIgnored", "PodsNeverPreempt", "'urgent'"))
    planned = plan(job, BOTH)
    assert reasons(planned)["PodPriorityIgnored"] == ("True", "PodsNeverPreempt")
    assert (planned.deletes, reasons(planned)["Ready"]) == ((), ("True", "Running"))


def test_a_job_with_flags_that_it_does_not_follow_says_so_and_runs_on():
    job = make_job(
        group(1),
        status=started(),
        warnings=warning("FlagsNotUsed", "SetByOperator", "args[1]: '--rdzv_id=1': is not used"),
    )
    planned = plan(job, BOTH)
    assert reasons(planned)["FlagsNotUsed"] == ("True", "SetByOperator")
    assert [(event.reason, event.type) for event in planned.events] == [("FlagsNotUsed", "Warning")]
    assert (planned.deletes, reasons(planned)["Ready"]) == ((), ("True", "Running"))


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


def test_what_is_tried_again_later_is_forgotten_ten_minutes_after_its_time_has_come():
    old = Retry(reason="old", not_before=at(3000), attempt=2, size=3, cause=RetryCause.FAILED_CREATE)
    status = started(failures=2, failed_size=old)
    waits = plan(make_job(status=status), BOTH, now=3599)
    assert (waits.status.failures, waits.status.failed_size) == (0, old)
    assert waits.requeue_at == START + 3600
    assert plan(make_job(status=status), BOTH, now=3600).status.failed_size is None


def test_a_job_that_lost_its_master_restarts_at_once_though_a_larger_size_waits():
    failed = Retry(reason="no room.", not_before=at(1500), attempt=3, size=4, cause=RetryCause.UNSCHEDULABLE)
    lost = make_job((make_pod("worker-0"), make_pod("worker-1")), status=started(2, failed_size=failed))
    status = plan(lost, make_grant(create=["master-0", "worker-2", "worker-3"])).status
    assert (status.incarnation, status.failed_size) == (2, failed)
    obs = see(make_job((), status=status), now=260)
    assert (obs.no_pods_before, obs.is_in_backoff) == (0.0, False)
    again = plan(make_job((), status=status), make_grant(create=["master-0", "worker-2", "worker-3"]), now=260)
    assert [create.role for create in again.slots] == ["master", "worker", "worker"]


def test_a_job_whose_master_cannot_be_placed_waits_as_a_whole():
    since = START + 200 - UNSCHEDULABLE_SECONDS
    waiting = {"phase": "Pending", "main": MainContainer(), "unschedulable": "no cpu", "unschedulable_since": since}
    master = make_pod("master-0", **waiting)
    job = make_job((master, make_pod("worker-0"), make_pod("worker-1")), status=started(2))
    status = plan(job, make_grant(keep=["master-0", "worker-0", "worker-1"])).status
    assert (status.target_replicas, status.failed_size.size, status.failed_size.cause) == (
        0,
        1,
        RetryCause.UNSCHEDULABLE,
    )
    obs = see(make_job((), status=status), now=210)
    assert (obs.no_pods_before, obs.is_in_backoff) == (seconds(status.failed_size.not_before), True)


def loses_a_worker(status, _now):
    """One that has not run yet, each time."""
    gone = PodStatus(name="toy-worker-0", role="worker", phase="Pending")
    return make_job([make_pod("master-0")], status=status.model_copy(update={"pods": [*listed("master-0"), gone]}))


def is_refused_more(status, _now):
    return make_job(status=status, pods_rejected=QUOTA)


def cannot_be_placed(status, now):
    since = START + now - UNSCHEDULABLE_SECONDS
    waiting = {"phase": "Pending", "main": MainContainer(), "unschedulable": "no cpu", "unschedulable_since": since}
    return make_job([*group(1), make_pod("worker-1", **waiting)], status=status)


@pytest.mark.parametrize("age", [10, 3600], ids=["a young job", "a job of an hour"])
@pytest.mark.parametrize(
    ("again", "waits"),
    [(loses_a_worker, [0, 0, 2, 4, 8]), (is_refused_more, [10, 20, 40, 80]), (cannot_be_placed, [30, 60, 120, 240])],
)
def test_repeated_failures_wait_longer_each_time_however_long_the_job_has_run(again, waits, age):
    status, now, found = started(), age, []
    for _ in waits:
        status = see(again(status, now), now=now).status
        waiting = status.retry or status.failed_size
        found.append(seconds(waiting.not_before) - START - now if waiting else 0)
        now += found[-1] + 11
        status = status.model_copy(update={"replicas": 2})
    assert all(least <= wait <= 1.5 * least for least, wait in zip(waits, found, strict=True)), found


@pytest.mark.parametrize("finished", [100, 1900], ids=["right", "half an hour ahead"])
def test_an_agent_that_gives_up_right_after_a_loss_is_no_failure_whatever_its_clock(finished):
    lost = Change(time=at(95), from_=3, to=2, reason="PodLost", message="")
    job = make_job((make_pod("master-0"), ended(make_pod("worker-0"), 1, finished=finished)), status=started())
    job = replace(job, status=job.status.model_copy(update={"history": [lost]}))
    assert plan(job, make_grant(), now=101).status.failures == 0


def test_a_job_runs_since_no_later_than_now_though_a_node_s_clock_is_ahead():
    ahead = MainContainer(running_since=START + 1900)
    job = make_job((make_pod("master-0"), make_pod("worker-0", main=ahead)), status=make_status())
    assert plan(job, BOTH, now=60).status.running_since == at(60)


TOLD_TO_GO = {"deleting_since": START + 140, "grace_seconds": 120.0}
LEAVERS = {
    "afterwards": (ended(make_pod("worker-1"), 1, finished=150, **TOLD_TO_GO), 1),
    "at a time not to be believed": (make_pod("worker-1", main=MainContainer(exit_code=143), **TOLD_TO_GO), 1),
    "before the last step, which moves the time": (
        ended(make_pod("worker-1"), 143, finished=150, deleting_since=START + 151, grace_seconds=0.0),
        1,
    ),
    "before": (ended(make_pod("worker-1"), 1, finished=150, **TOLD_TO_GO | {"deleting_since": START + 160}), 2),
}


@pytest.mark.parametrize("when", LEAVERS)
def test_the_exit_of_a_pod_that_was_told_to_go_is_a_failure_only_if_it_came_before(when):
    leaver, incarnation = LEAVERS[when]
    assert plan(make_job((*group(1), leaver), status=started()), BOTH).status.incarnation == incarnation


def test_the_pod_that_failed_first_is_named_and_not_one_that_only_lost_its_peer():
    lost = ended(make_pod("master-0"), 1, finished=99, message="Connection closed by peer")
    lost = replace(lost, main=replace(lost.main, is_consequence=True))
    pods = (lost, ended(make_pod("worker-0"), 1, finished=100, message="ValueError: no"))
    planned = plan(make_job(pods, status=started()), make_grant())
    assert "ValueError: no" in planned.status.retry.reason


def test_growth_refused_by_the_api_server_is_retried_and_the_job_continues():
    job = make_job(status=make_status(target_replicas=4), spec=make_spec(), pods_rejected=QUOTA)
    seen = observe(job, START + 100)
    failed = seen.status.failed_size
    assert (failed.size, failed.attempt, failed.cause) == (3, 1, RetryCause.FAILED_CREATE)
    assert START + 110 <= seconds(failed.not_before) < START + 115
    assert [e.reason for e in seen.events] == ["ScaleUpBlocked"]
    assert seen.events[0].message.endswith(
        f" The operator retries in {seconds(failed.not_before) - START - 100:.0f} s."
    )
    assert len(seen.members) == 2
    assert seen.to_delete == ()


def test_a_wait_that_begins_within_a_second_is_not_cut_short():
    """The first wait after repeated losses, of 2 s, was 1 s for a loss late in a second."""
    refused = see(make_job(status=make_status(target_replicas=4), pods_rejected=QUOTA), now=100).status.failed_size
    later = see(make_job(status=make_status(target_replicas=4), pods_rejected=QUOTA), now=100.9).status.failed_size
    assert seconds(later.not_before) == seconds(refused.not_before) + 1
    assert see(loses_for_the_third_time({}), now=200.9).status.retry.not_before == at(203)


def test_what_does_not_make_the_minimum_goes_when_the_api_server_takes_no_more():
    job = make_job([make_pod("master-0")], status=make_status(replicas=1), pods_rejected=QUOTA)
    seen = observe(job, START + 100)
    assert [pod.name for pod in seen.to_delete] == ["toy-master-0"]
    assert (seen.status.incarnation, seen.status.target_replicas) == (2, 0)
    assert seen.is_in_backoff
    assert not seen.wants_pods


CLOSED = {"uid-worker-2": "node n2 accepts no more pods (cordoned)"}


def waiting(name, node):
    """The pod, pinned to that node and not bound to it."""
    return make_pod(name, node=node, bound=False, phase="Pending", ready=False, main=MainContainer())


def test_a_pod_whose_planned_node_closes_is_deleted_and_a_pod_lost_meanwhile_counts():
    before = [*group(2), waiting("worker-2", "n2")]
    status = plan(make_job(before, status=started(2)), make_grant(keep=["master-0", "worker-0", "worker-1"])).status
    status = status.model_copy(update={"replicas": 4, "target_replicas": 4})
    seen = see(make_job(before, status=status, misplaced=CLOSED))
    assert [pod.name for pod in seen.to_delete] == ["toy-worker-2"]
    assert (seen.status.replicas, seen.status.restarts, seen.status.retry) == (3, 0, None)
    assert seen.write_status_first
    lost = see(make_job([*group(1), waiting("worker-2", "n2")], status=status, misplaced=CLOSED))
    assert lost.status.restarts == 1


def test_the_event_of_a_loss_names_lost_pods_and_not_those_whose_node_closed_meanwhile():
    waits = PodStatus(name="toy-worker-2", role="worker", phase="Pending")
    known = listed("master-0", "worker-0", "worker-1")
    status = make_status(replicas=4, target_replicas=4, pods=[*known, waits])
    lost = see(make_job([*group(1), waiting("worker-2", "n2")], status=status, misplaced=CLOSED)).status
    assert (lost.history[0].message, lost.history[0].excused) == (
        "The job lost toy-worker-1. This does not count as a failure.",
        True,
    )


def test_a_torchrun_job_restarts_if_the_node_of_its_unstarted_master_closes():
    pods = [waiting("master-0", "n2"), make_pod("worker-0")]
    seen = see(make_job(pods, status=make_status(), misplaced={"uid-master-0": "node n2 accepts no more pods"}))
    assert sorted(pod.name for pod in seen.to_delete) == ["toy-master-0", "toy-worker-0"]
    assert (seen.status.incarnation, seen.status.restarts, seen.status.failures) == (2, 0, 0)


def test_pods_on_their_way_out_are_waited_for_before_anything_is_given_up():
    leaving = make_pod("worker-0", deleting_since=START + 99)
    job = make_job([make_pod("master-0"), leaving], status=make_status(replicas=1), pods_rejected=QUOTA)
    assert observe(job, START + 100).to_delete == ()


@pytest.mark.parametrize("pods", [group(1), [make_pod("master-0")]], ids=["growth", "minimum"])
def test_a_refusal_counts_once_though_the_operator_does_not_know_that_its_status_was_written(pods):
    """The status was written, and its answer was lost. The refusal is remembered."""
    job = make_job(pods, status=make_status(replicas=len(pods)), pods_rejected=QUOTA)
    written = see(job).status
    again = see(replace(job, status=written))
    assert (again.status, again.events) == (written, ())
    assert len(again.to_delete) == (0 if len(pods) > 1 else 1)


def test_a_refusal_of_a_smaller_size_counts_during_the_wait_for_a_larger_one():
    waits = Retry(reason="x", not_before=at(150), attempt=1, size=3, cause=RetryCause.FAILED_CREATE)
    status = make_status(replicas=1, failed_size=waits)
    spec = make_spec(minReplicas=1)
    failed = see(make_job([make_pod("master-0")], spec=spec, status=status, pods_rejected=QUOTA)).status.failed_size
    assert (failed.size, failed.attempt) == (2, 2)


def test_the_wait_for_a_refusal_to_pass_doubles_up_to_five_minutes():
    waits = []
    for attempt in (1, 3, 9, 40):
        failed = Retry(reason="x", not_before=at(0), attempt=attempt, cause=RetryCause.FAILED_CREATE)
        seen = observe(make_job(status=make_status(failed_size=failed), pods_rejected=QUOTA), START + 100)
        waits.append(seconds(seen.status.failed_size.not_before) - START - 100)
    assert all(least <= wait < 1.5 * least for least, wait in zip((20, 80, 300, 300), waits, strict=True))


@pytest.mark.parametrize(
    ("cause", "before", "attempt"),
    [(RetryCause.FAILED_CREATE, 8, 1), (RetryCause.UNSCHEDULABLE, 1, 2), (RetryCause.UNSCHEDULABLE, 2, 3)],
)
def test_a_job_preempts_no_pods_after_three_tries_that_the_scheduler_did_not_place(
    cause: RetryCause, before: int, attempt: int
) -> None:
    pods = (make_pod("master-0"), make_pod("worker-0", node=None, unschedulable="no", unschedulable_since=START))
    failed = Retry(reason="no", not_before=at(0), attempt=before, size=2, cause=cause)
    found = observe(make_job(pods, status=make_status(failed_size=failed)), START + 100).status.failed_size
    assert (found.attempt, may_preempt_at(found) > 0) == (attempt, attempt == 3)


def test_two_jobs_that_stand_in_each_other_s_way_do_not_wait_equally_long():
    waits = set()
    for uid in ("5c0b2a", "77e1f0"):
        job = make_job([make_pod("master-0")], status=make_status(replicas=1), pods_rejected=QUOTA, uid=uid)
        waits.add(observe(job, START).status.failed_size.not_before)
    assert len(waits) == 2


def test_a_job_of_which_only_some_pods_are_refused_for_good_gives_the_others_back():
    job = make_job(
        [make_pod("master-0")], status=make_status(replicas=1), pods_rejected_until_edit="spec.worker.template...: odd."
    )
    seen = observe(job, START + 100)
    assert [pod.name for pod in seen.to_delete] == ["toy-master-0"]
    assert (seen.status.incarnation, seen.status.target_replicas) == (2, 0)
    whole = observe(make_job(pods_rejected_until_edit="spec.worker.template...: odd."), START + 100)
    assert (whole.to_delete, whole.status.incarnation) == ((), 1)


def test_a_start_that_waits_for_the_name_of_the_master_before_says_so():
    old = make_pod("master-0", incarnation=0, deleting_since=START + 99)
    planned = plan(make_job([old], status=make_status(replicas=0)), make_grant(create=["master-0", "worker-0"]))
    assert "toy-master-0 is still being deleted" in planned.status.condition("Ready").message


def listed(*names: str) -> list[PodStatus]:
    return [PodStatus(name=f"toy-{name}", role=name.split("-")[0], phase="Running") for name in names]


def growing(*pods):
    status = make_status(replicas=2, target_replicas=5, pods=listed("master-0", "worker-0"))
    return make_job(pods, status=status)


def test_a_worker_lost_while_others_are_made_is_counted():
    seen = see(growing(make_pod("master-0"), *(make_pod(f"worker-{i}", phase="Pending") for i in (1, 2, 3))))
    assert seen.status.restarts == 1
    assert [event.reason for event in seen.events] == ["PodLost"]


def test_a_master_lost_while_workers_are_made_ends_the_incarnation():
    seen = see(growing(*(make_pod(f"worker-{i}") for i in (0, 1, 2, 3))))
    assert seen.status.incarnation == 2


def test_pods_that_were_just_made_are_no_loss():
    seen = see(growing(*group(4)))
    assert (seen.status.restarts, seen.status.incarnation) == (0, 1)


REFUSED = {"phase": "Failed", "refused": True, "disrupted": "UnexpectedAdmissionError: no devices"}


def refused_again(status, now):
    pods = (make_pod("master-0"), make_pod("worker-0", node="n2", main=MainContainer(), **REFUSED))
    return see(make_job(pods, status=status), now=now)


def test_a_node_whose_kubelet_refuses_pods_is_avoided_longer_each_time():
    status, now, found = started(), 100, []
    for _ in range(3):
        seen = refused_again(status, now)
        [known] = seen.status.avoided_nodes
        found.append((known.name, known.times, round(seconds(known.until) - START - now)))
        assert list(seen.avoided) == ["n2"]
        assert seen.status.retry is None
        status, now = seen.status.model_copy(update={"replicas": 2}), now + found[-1][2] + 1
    assert found == [("n2", 1, 10), ("n2", 2, 20), ("n2", 3, 40)]
    assert see(make_job(status=status), now=now).avoided == {}


def test_refusals_within_moments_count_once_and_one_by_an_avoided_node_is_a_loss():
    status = refused_again(started(), 100).status.model_copy(update={"replicas": 2})
    together = refused_again(status, 105).status
    assert [one.times for one in together.avoided_nodes] == [1]
    assert [change.excused for change in together.history] == [True, True]
    longer = refused_again(refused_again(status, 111).status.model_copy(update={"replicas": 2}), 125).status
    assert longer.history[0].excused is None


def test_pods_that_more_nodes_refuse_than_can_be_avoided_are_not_made_without_end():
    status, now, waits = started(), 100, []
    for number in range(MAX_AVOIDED + 4):
        pods = (make_pod("master-0"), make_pod("worker-0", node=f"n{number}", main=MainContainer(), **REFUSED))
        status = see(make_job(pods, status=status), now=now).status
        waits.append(round(seconds(status.retry.not_before) - START - now) if status.retry else 0)
        now += max(11, waits[-1])
        status = status.model_copy(update={"replicas": 2})
    assert waits == [0] * (MAX_AVOIDED + 2) + [2, 4]
    assert len(status.avoided_nodes) == MAX_AVOIDED


def test_refused_pods_wait_if_the_api_server_does_not_store_avoided_nodes():
    status, now, waits = started(), 100, []
    for _ in range(5):
        pods = (make_pod("master-0"), make_pod("worker-0", node="n2", main=MainContainer(), **REFUSED))
        status = see(make_job(pods, status=status, pruned_status_fields=frozenset({"avoidedNodes"})), now=now).status
        waits.append(round(seconds(status.retry.not_before) - START - now) if status.retry else 0)
        now += max(11, waits[-1])
        status = status.model_copy(update={"replicas": 2, "avoided_nodes": []})
    assert waits == [0, 0, 2, 4, 8]


def loses_of_many(name, *, leaving=None, phase="Running", times=5):
    """The waits of a job of 100 pods that loses that pod over and over; `leaving` are fields of it while it goes."""
    pods, now, waits = group(99), 100, []
    gone = next(pod for pod in pods if pod.name == f"toy-{name}")
    left = tuple(pod for pod in pods if pod is not gone)
    status = plan(make_job(pods, status=started(99)), make_grant(keep=[pod.uid[4:] for pod in pods])).status
    for _ in range(times):
        listed = [pod.model_copy(update={"phase": phase}) if pod.name == gone.name else pod for pod in status.pods]
        status = status.model_copy(update={"replicas": 100, "pods": listed})
        there = (*left, replace(gone, deleting_since=START + now, **leaving)) if leaving is not None else left
        seen = see(make_job(there, status=status), now=now)
        waits.append(round(seconds(seen.status.retry.not_before) - START - now) if seen.status.retry else 0)
        status, now = seen.status, now + max(11, waits[-1])
    return waits


NOT_YET = {"phase": "Pending", "main": MainContainer()}


@pytest.mark.parametrize(
    ("lost", "waits"),
    [
        ({"name": "worker-5", "phase": "Pending"}, [0, 0, 2, 4, 8]),
        ({"name": "worker-5", "phase": "Pending", "leaving": {}}, [0] * 5),
        ({"name": "worker-5"}, [0] * 5),
        ({"name": "worker-90"}, [0, 0, 2, 4, 8]),
        ({"name": "worker-90", "leaving": {}}, [0] * 5),
        ({"name": "worker-90", "leaving": NOT_YET}, [0, 0, 2, 4, 8]),
    ],
    ids=[
        "listed, did not run",
        "listed, ran since",
        "listed, ran",
        "not listed, not seen to go",
        "seen to go",
        "seen, did not run",
    ],
)
def test_pods_that_the_status_does_not_list_are_waited_for_unless_they_are_known_to_have_run(lost, waits):
    assert loses_of_many(**lost) == waits


def test_a_cluster_in_which_all_kubelets_refuse_at_once_is_waited_for():
    status, now, found = started(20), 100, []
    for _ in range(4):
        refused = (make_pod(f"worker-{i}", node=f"n{i}", main=MainContainer(), **REFUSED) for i in range(20))
        status = see(make_job((make_pod("master-0"), *refused), status=status), now=now).status
        found.append(round(seconds(status.retry.not_before) - START - now) if status.retry else 0)
        now += 11
        status = status.model_copy(update={"replicas": 21})
    assert found == [0, 0, 2, 4]


@pytest.mark.parametrize(
    ("phase", "incarnation"),
    [("Terminating", 1), ("Running", 2), (None, 2)],
    ids=["a late master leaves", "a master ran", "none is listed"],
)
def test_workers_without_a_master_start_over_unless_a_late_master_of_an_earlier_incarnation_leaves(phase, incarnation):
    listed = [PodStatus(name="toy-worker-0", role="worker", phase="Running")]
    listed += [PodStatus(name="toy-master-0", role="master", phase=phase)] if phase else []
    status = make_status(replicas=1, target_replicas=2, pods=listed)
    planned = plan(make_job((make_pod("worker-0"),), status=status), make_grant(keep=["worker-0"], create=["master-0"]))
    assert planned.status.incarnation == incarnation


@pytest.mark.parametrize("late", [{}, REFUSED], ids=["it waits", "its kubelet has refused it"])
def test_a_late_master_of_an_earlier_incarnation_costs_no_loss(late):
    pods = (make_pod("master-0", **late), make_pod("worker-0", incarnation=2))
    grant = make_grant(keep=["worker-0"], create=["master-0"])
    first = plan(make_job(pods, status=make_status(incarnation=2, replicas=0)), grant)
    assert (names(first.deletes), first.slots) == (["toy-master-0"], ())
    then = plan(make_job(pods[1:], status=first.status), grant)
    assert (then.status.incarnation, then.status.restarts) == (2, 0)
    assert [slot.role for slot in then.slots] == ["master"]
