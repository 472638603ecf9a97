"""What an Elastic job survives, and what it fails of, one fact a test."""

from dataclasses import replace
from math import inf

import pytest

from elastic_api.status import Change, PodStatus, Retry, RetryCause
from elastic_operator.plan.facts.group_report import GroupReport
from elastic_operator.plan.facts.waits import FIRST_FUTILE_SECONDS
from elastic_operator.plan.job.observation import NodeState
from elastic_operator.plan.job.still_training import FRESH_SECONDS
from elastic_operator.plan.job.unplaceable import may_preempt_at
from elastic_worker.contract import EXIT_DO_NOT_RETRY
from tests.plan.elastic.jobs import (
    is_pending,
    make_elastic_job,
    make_elastic_spec,
    make_group,
    make_master,
    make_worker,
)
from tests.plan.jobs import (
    BOTH,
    START,
    at,
    ended,
    make_grant,
    make_spec,
    make_status,
    names,
    plan,
    reasons,
    see,
    with_facts,
)


def kinds(planned):
    return [event.reason for event in planned.events]


def test_a_job_begins_with_its_first_master():
    job = make_elastic_job((), workers=-1, incarnation=0, master_epoch=None, target_replicas=0, replicas=0)
    planned = plan(job, make_grant(create=["master-0", "worker-0"]))
    assert (planned.status.incarnation, planned.status.master_epoch) == (1, 1)
    assert planned.creates.master_epoch == 1


def test_a_lost_worker_is_replaced_and_the_others_stay():
    job = make_elastic_job(make_group(1), workers=2)
    planned = plan(job, make_grant(keep=["master-0", "worker-0"], create=["worker-1"]))
    assert (planned.status.restarts, planned.status.failures, planned.status.incarnation) == (1, 0, 1)
    assert planned.status.master_epoch == 1
    assert (planned.deletes, [create.index for create in planned.slots]) == ((), [1])


def test_a_lost_node_ends_no_incarnation():
    pods = (make_master(), make_worker(0), make_worker(1, node="n2"))
    job = make_elastic_job(pods)
    planned = plan(job, make_grant(keep=["master-0", "worker-0"], create=["worker-2"]), unready={"n2": 0})
    assert [(delete.name, delete.force) for delete in planned.deletes] == [("toy-worker-1", True)]
    assert (planned.status.incarnation, kinds(planned)) == (1, ["NodeLost"])


TOLD = GroupReport("uid-master-0", START + 100, 1, "Running", members=("toy-master-0", "toy-worker-0", "toy-worker-1"))
TRAINS = {"report": replace(TOLD, world_size=3), "last_answer_at": START + 197}
NOT_ANSWERED = {"report": None, "last_answer_at": START + 197}
BETWEEN_GROUPS = {**TRAINS, "report": replace(TOLD, state="Forming", members=(), world_size=0)}


@pytest.mark.parametrize(
    ("known", "node", "is_kept"),
    [
        (TRAINS, 0, True),
        ({**TRAINS, "last_answer_at": START + 195}, 0, False),
        ({**TRAINS, "report": replace(TOLD, members=TOLD.members[:2], world_size=2)}, 0, False),
        (TRAINS, -inf, False),
        (
            {**TRAINS, "pods": (make_master(), make_worker(0), make_worker(1, node="n2", deleting_since=START))},
            0,
            False,
        ),
        ({**TRAINS, "spec": make_spec()}, 0, False),
        ({**TRAINS, "pods": (is_pending(make_master()), make_worker(0), make_worker(1, node="n2"))}, 0, False),
        ({**TRAINS, "status": make_status(replicas=3, master_epoch=2)}, 0, False),
        (BETWEEN_GROUPS, 0, False),
        (BETWEEN_GROUPS, 131, True),
        (NOT_ANSWERED, 0, True),
        ({**NOT_ANSWERED, "last_answer_at": None, "pods_are_asked": True}, 0, True),
        ({**NOT_ANSWERED, "last_answer_at": START + 195}, 0, False),
        ({"report": replace(TOLD, master_uid="another", world_size=3), "last_answer_at": START + 197}, 0, True),
        ({**TRAINS, "last_answer_at": None}, 0, False),
    ],
    ids=[
        "it trains",
        "that was said too long ago",
        "it trains no more",
        "somebody has said that the node is off",
        "its pod there is to go",
        "nobody can be asked in Torchrun mode",
        "no master runs",
        "another master is to come",
        "between two groups for too long",
        "between two groups for a moment",
        "its master is asked and has not answered yet",
        "its master is about to be asked",
        "its master is asked and does not answer",
        "its master is another one, which has not answered yet",
        "its master is not asked",
    ],
)
def test_a_pod_on_a_node_that_is_not_ready_is_kept_while_the_master_says_that_it_trains(known, node, is_kept):
    pods = (make_master(), make_worker(0), make_worker(1, node="n2"))
    job = with_facts(make_elastic_job(pods), **known)
    seen = see(job, unready={"n2": node})
    assert ("toy-worker-1" not in {pod.name for pod in seen.to_delete}) is is_kept
    assert seen.unready_nodes == {"n2": NodeState.TRAINING if is_kept else NodeState.LOST}
    if is_kept and known["last_answer_at"] is not None:
        assert seen.requeue_at == (known["last_answer_at"] + FRESH_SECONDS,)


def test_a_pod_that_its_master_has_given_up_is_named_with_its_node():
    pods = (make_master(), make_worker(0), make_worker(1, node="n2"))
    grant = make_grant(keep=["master-0", "worker-0", "worker-1"])
    why = "process 77 (state D) cannot be ended by SIGKILL"
    told = replace(TOLD, members=TOLD.members[:2], given_up=(("toy-worker-1", why), ("toy-worker-9", why)))
    job = with_facts(make_elastic_job(pods), **{**TRAINS, "report": told})
    planned = plan(job, grant)
    assert planned.deletes == ()
    assert reasons(planned)["PodsGivenUp"] == ("True", "CannotBeEnded")
    [event] = [event for event in planned.events if event.reason == "PodsGivenUp"]
    assert f"toy-worker-1 on node n2: {why}" in event.message
    assert "toy-worker-9" not in event.message
    again = with_facts(replace(job, status=planned.status), report=TOLD)
    assert reasons(plan(again, grant))["PodsGivenUp"] == ("False", "Over")


def test_a_job_reports_once_that_its_pods_train_on_an_unready_node_and_the_end_of_that():
    pods = (make_master(), make_worker(0), make_worker(1, node="n2"))
    grant = make_grant(keep=["master-0", "worker-0", "worker-1"])
    job = with_facts(make_elastic_job(pods), **TRAINS)
    planned = plan(job, grant, unready={"n2": 0})
    assert (planned.deletes, planned.status.restarts) == ((), 0)
    assert [event.reason for event in planned.events if event.type == "Warning"] == ["NodesUnreachable"]
    assert reasons(planned)["NodesUnreachable"] == ("True", "StillTraining")
    assert "n2. The job's pods there still train" in planned.status.condition("Ready").message
    again = plan(replace(job, status=planned.status), grant, unready={"n2": 0})
    assert "NodesUnreachable" not in kinds(again)
    assert reasons(plan(replace(job, status=planned.status), grant))["NodesUnreachable"] == ("False", "Over")


def test_a_worker_whose_launcher_fails_is_a_loss_and_goes():
    pods = (make_master(), ended(make_worker(0), 1), make_worker(1))
    planned = plan(make_elastic_job(pods), make_grant(keep=["master-0", "worker-1"], create=["worker-2"]))
    assert (planned.status.restarts, planned.status.failures, planned.status.incarnation) == (1, 0, 1)
    assert names(planned.deletes) == ["toy-worker-0"]
    assert "exit code 1" in planned.events[0].message
    assert kinds(planned) == ["PodLost"]


def test_workers_that_fail_again_and_again_are_waited_with():
    history = [Change(time=at(t), from_=3, to=2, reason="PodLost") for t in (190, 180)]
    pods = (make_master(), ended(make_worker(0), 1), make_worker(1))
    planned = plan(
        make_elastic_job(pods, history=history), make_grant(keep=["master-0", "worker-1"], create=["worker-2"])
    )
    assert planned.status.retry.attempt == 2
    again = make_elastic_job(pods, last=planned.status)
    assert plan(again, make_grant(keep=["master-0", "worker-1"], create=["worker-2"]), now=201).slots == ()


def without_master(now=200, **status):
    """The plan of a job of three that has just lost its master."""
    pods = (make_worker(0), make_worker(1))
    grant = make_grant(keep=["worker-0", "worker-1"], create=["master-0"])
    return plan(make_elastic_job(pods, **{"replicas": 3, "target_replicas": 3, **status}), grant, now=now)


def test_without_its_master_the_others_stay_and_wait_for_the_next():
    planned = without_master()
    assert (planned.status.incarnation, planned.status.master_epoch) == (1, 2)
    assert planned.write_status_first, "the number is written before the pod is made"
    assert planned.deletes == ()
    assert ([*planned.creates.roles], planned.creates.master_epoch, planned.creates.incarnation) == (["master"], 2, 1)
    assert kinds(planned) == ["PodLost", "MasterReplaced"]
    assert planned.status.failures == 0


def test_a_new_master_does_not_wait_for_what_happened_to_workers():
    """But for one that is lost again and again."""
    workers = [Change(time=at(t), from_=3, to=2, reason="PodLost") for t in (190, 180, 170)]
    assert [create.role for create in without_master(history=workers).slots] == ["master"]
    masters = [Change(time=at(t), from_=3, to=2, reason="MasterLost") for t in (190, 180)]
    gone = PodStatus(name="toy-master-0", role="master", phase="Pending")
    assert without_master(history=masters, pods=[gone]).status.retry.attempt == 2


@pytest.mark.parametrize(
    ("retry", "due"),
    [
        pytest.param({"size": 4, "reason": "No room.", "cause": "Unschedulable"}, 1500, id="a larger size is not"),
        pytest.param({"size": 4, "reason": "toy-worker-2 has not started."}, 1500, id="whatever it failed of"),
        pytest.param({"size": 2, "reason": "No room.", "cause": "Unschedulable"}, 200, id="without it, it cannot run"),
        pytest.param({"waits_for": "Nodes", "reason": "No node was added."}, 200, id="nor without nodes"),
        pytest.param({"reason": "3 losses in two minutes. Lost toy-worker-0."}, 200, id="workers were lost"),
    ],
)
def test_a_waiting_size_is_due_with_a_new_master_if_needed_and_is_never_forgotten(retry, due):
    waits = Retry(not_before=at(1500), attempt=3, **retry)
    planned = without_master(retry=waits)
    assert [create.role for create in planned.slots] == ["master"]
    found = planned.status.retry or planned.status.failed_size
    assert found == waits.model_copy(update={"not_before": at(due)})


SHUT = {"uid-master-0": "node n2 accepts no more pods"}


def shut_out_master(*workers, **status):
    """The job as it is seen when the node closes that its first master is planned for."""
    master = is_pending(make_master(), bound=False, node="n2")
    pods = [PodStatus(name="toy-master-0", role="master", phase="Pending")]
    pods += [PodStatus(name=f"toy-worker-{index}", role="worker", phase="Running") for index in range(2)]
    job = make_elastic_job((master, *workers), workers=2, pods=pods, running_since=None, **status)
    return see(with_facts(job, misplaced=SHUT)).status


def test_a_master_that_never_ran_is_not_lost_when_its_node_closes_and_the_next_one_comes():
    status = shut_out_master(make_worker(0), make_worker(1))
    assert (status.master_epoch, status.restarts, status.history) == (2, 0, [])
    assert status.master_lost_time == at(200)


def test_a_worker_that_is_lost_while_the_master_is_planned_anew_is_the_only_loss():
    status = shut_out_master(make_worker(0))
    assert (status.master_epoch, status.restarts) == (2, 1)
    assert (status.history[0].reason, status.history[0].message) == (
        "PodLost",
        "The job lost toy-worker-1. This does not count as a failure.",
    )


@pytest.mark.parametrize("field", ["retry", "failed_size"])
def test_a_master_that_is_planned_anew_waits_for_nothing(field):
    cause = RetryCause.POD_LOST if field == "retry" else RetryCause.UNSCHEDULABLE
    waits = Retry(reason="x", not_before=at(1500), cause=cause, size=None if field == "retry" else 2)
    status = shut_out_master(make_worker(0), make_worker(1), **{field: waits})
    assert getattr(status, field).not_before == at(200)


def test_a_failed_master_waits_for_its_own_failure_only():
    waits = Retry(reason="x", not_before=at(1500), cause=RetryCause.UNSCHEDULABLE, size=2)
    job = make_elastic_job((ended(make_master(), 1), make_worker(0)), failed_size=waits)
    status = see(job).status
    assert (status.retry.not_before, status.failed_size.not_before) == (at(201), at(200))


@pytest.mark.parametrize("size", [1, 4])
def test_a_job_that_lost_its_master_does_not_preempt_again_after_it_did_so_in_vain(size):
    waits = Retry(reason="No room.", cause=RetryCause.UNSCHEDULABLE, not_before=at(100), attempt=3, size=size)
    assert may_preempt_at(without_master(failed_size=waits).status.failed_size) == START + 100 + FIRST_FUTILE_SECONDS


def test_while_the_others_wait_the_job_says_so_and_is_not_ready():
    ready = without_master().status.condition("Ready")
    assert (ready.status, ready.reason) == ("False", "Rendezvousing")
    assert "until a new master runs" in ready.message


def test_a_lost_master_is_counted_once():
    first = without_master().status
    second = without_master(now=205, last=first).status
    assert (second.master_epoch, second.restarts) == (first.master_epoch, first.restarts)


def test_a_new_master_lost_before_it_runs_uses_its_number_and_the_wait_continues():
    first = without_master().status
    second = is_pending(make_master(master_epoch=2))
    grant = make_grant(keep=["worker-0", "worker-1", "master-0"])
    pods = (second, make_worker(0), make_worker(1))
    waiting = plan(make_elastic_job(pods, last=first), grant, now=210).status
    assert (waiting.master_epoch, waiting.replicas, waiting.master_lost_time) == (2, 3, at(200))
    third = without_master(now=220, last=waiting)
    assert (third.status.master_epoch, third.status.master_lost_time) == (3, at(200))
    assert third.creates.master_epoch == 3


def test_a_worker_lost_while_there_is_no_master_is_counted_too():
    known = without_master().status
    job = make_elastic_job((make_worker(0),), last=known)
    planned = plan(job, make_grant(keep=["worker-0"], create=["master-0", "worker-2"]), now=205)
    assert (planned.status.master_epoch, planned.status.restarts) == (2, known.restarts + 1)


def test_a_master_that_a_newer_one_follows_goes_whatever_it_says():
    pods = (ended(make_master(master_epoch=1), 0), make_worker(0), make_worker(1))
    job = make_elastic_job(pods, master_epoch=2, master_lost_time=at(190), replicas=2, target_replicas=3)
    planned = plan(job, make_grant(keep=["worker-0", "worker-1"]))
    assert names(planned.deletes) == ["toy-master-0"]
    assert planned.status.completion_time is None
    assert planned.status.master_epoch == 2


def test_a_running_master_ends_the_wait():
    job = make_elastic_job((make_master(master_epoch=2), make_worker()), master_epoch=2, master_lost_time=at(190))
    planned = plan(job, BOTH)
    assert planned.status.master_lost_time is None
    assert reasons(planned)["Ready"][0] == "True"


@pytest.mark.parametrize("there", [(), (is_pending(make_master(master_epoch=2)),)])
def test_where_no_master_runs_for_too_long_the_job_starts_over(there):
    spec = make_elastic_spec(recovery={"masterLossTimeoutSeconds": 50})
    pods = (*there, make_worker(0), make_worker(1))
    status = {"master_epoch": 2, "master_lost_time": at(100), "replicas": len(pods), "target_replicas": 3}
    job = make_elastic_job(pods, spec=spec, **status)
    grant = make_grant(keep=[f"{pod.role}-{pod.index}" for pod in pods])
    assert plan(job, grant, now=149).requeue_at <= START + 150
    assert plan(job, grant, now=149).status.incarnation == 1
    late = plan(job, grant, now=150)
    assert (late.status.incarnation, late.status.master_epoch, late.status.master_lost_time) == (2, 3, None)
    assert {delete.name for delete in late.deletes} == {pod.name for pod in pods}
    assert late.write_status_first


def test_a_job_of_which_no_pod_is_left_starts_over():
    planned = plan(make_elastic_job((), workers=1), make_grant(create=["master-0", "worker-0"]))
    assert (planned.status.incarnation, planned.status.master_epoch) == (2, 2)
    assert planned.creates.master_epoch == 2


def failed_master(phase="Failed", **status):
    """A job whose master's main container has failed; in the phase Running, a sidecar goes on."""
    master = replace(ended(make_master(), 1, message="RuntimeError: coordinator"), phase=phase)
    return make_elastic_job((master, make_worker(0), make_worker(1)), **status)


WARM = [make_worker(index) for index in range(2)]
WITHOUT_MASTER = {"workers": 2, "master_lost_time": at(100), "master_epoch": 2, "replicas": 2}
WAITS_FOR_A_NODE = is_pending(make_worker(2), node=None, bound=False, unschedulable="0/2", unschedulable_since=START)


@pytest.mark.parametrize(
    ("pods", "facts", "size"),
    [
        pytest.param(WARM, {"pods_rejected": "exceeded quota"}, 4, id="the next master is refused"),
        pytest.param([*WARM, WAITS_FOR_A_NODE], {}, 4, id="a worker more finds no node"),
    ],
)
def test_the_others_wait_for_the_next_master_whatever_else_the_job_cannot_have(pods, facts, size):
    seen = see(with_facts(make_elastic_job(pods, target_replicas=4, **WITHOUT_MASTER), **facts))
    assert {pod.name for pod in seen.members} == {"toy-worker-0", "toy-worker-1"}
    assert (seen.status.incarnation, seen.status.target_replicas) == (1, 4)
    assert seen.status.failed_size.size == size


def test_fewer_than_the_minimum_with_the_next_master_do_not_wait():
    job = make_elastic_job(
        WARM, spec=make_elastic_spec(minReplicas=4, maxReplicas=4), target_replicas=4, **WITHOUT_MASTER
    )
    seen = see(with_facts(job, pods_rejected="exceeded quota"))
    assert (seen.status.incarnation, seen.status.target_replicas) == (2, 0)


BOTH_PHASES = pytest.mark.parametrize("phase", ["Failed", "Running"])


@BOTH_PHASES
def test_a_master_that_fails_is_a_failure_and_the_workers_stay(phase):
    planned = plan(failed_master(phase), make_grant(keep=["worker-0", "worker-1"], create=["master-0"]))
    assert (planned.status.failures, planned.status.incarnation, planned.status.master_epoch) == (1, 1, 2)
    assert planned.status.replicas == 2
    assert names(planned.deletes) == ["toy-master-0"]
    assert planned.write_status_first
    assert kinds(planned) == ["MasterReplaced"]
    assert planned.slots == (), "after a while only"
    assert START + 200 < planned.requeue_at <= START + 203


@BOTH_PHASES
def test_a_failed_master_is_counted_once_though_its_pod_is_still_there(phase):
    first = plan(failed_master(phase), make_grant(keep=["worker-0", "worker-1"])).status
    second = plan(failed_master(phase, last=first), make_grant(keep=["worker-0", "worker-1"]), now=201)
    assert (second.status.failures, second.status.master_epoch, second.status.restarts) == (1, 2, first.restarts)
    assert second.status.history == first.history
    assert names(second.deletes) == ["toy-master-0"]


def test_the_last_allowed_failure_of_a_master_fails_the_job():
    planned = plan(failed_master(failures=2), make_grant())
    assert reasons(planned)["Failed"] == ("True", "RestartLimitReached")
    assert "RuntimeError: coordinator" in planned.status.condition("Failed").message


@pytest.mark.parametrize("role", ["master", "worker"])
def test_a_launcher_that_says_that_no_pod_fares_better_fails_the_job_with_its_words(role):
    pods = [make_master(), make_worker(0)]
    at_fault = 0 if role == "master" else 1
    pods[at_fault] = ended(pods[at_fault], EXIT_DO_NOT_RETRY, message="rank 3 failed 3 times: ValueError")
    planned = plan(make_elastic_job(pods), make_grant())
    assert reasons(planned)["Failed"] == ("True", "RestartLimitReached")
    assert planned.status.condition("Failed").message == "rank 3 failed 3 times: ValueError."
    assert planned.status.completion_time is not None


def test_a_pod_that_was_told_to_go_says_nothing_by_that_code():
    leaver = ended(make_worker(0), EXIT_DO_NOT_RETRY, finished=150, deleting_since=START + 140, grace_seconds=120.0)
    planned = plan(
        make_elastic_job((*make_group(1)[:1], leaver, make_worker(1))), make_grant(keep=["master-0", "worker-1"])
    )
    assert planned.status.completion_time is None


def test_sizes_change_freely_also_where_the_user_has_a_command():
    job = make_elastic_job(make_group(1), spec=make_elastic_spec(maxReplicas=9))
    planned = plan(job, make_grant(keep=["master-0", "worker-0"], create=[f"worker-{i}" for i in range(1, 8)]))
    assert (planned.status.incarnation, len(planned.slots)) == (1, 7)


def no_place(now, *, workers=2, since=100, **fields):
    """The plan of a job of at least two that has no place for a new master, lost at `since`."""
    pods = tuple(make_worker(i) for i in range(workers))
    status = {"master_epoch": 2, "master_lost_time": at(since), "replicas": workers, "target_replicas": workers}
    job = make_elastic_job(pods, **status)
    job = replace(job, **fields)
    return plan(job, make_grant(keep=[f"worker-{i}" for i in range(workers)]), now=now)


def test_a_master_without_a_place_gets_the_highest_worker_s_after_half_a_minute():
    early = no_place(129)
    assert (early.deletes, early.requeue_at) == ((), START + 130)
    late = no_place(130)
    assert names(late.deletes) == ["toy-worker-1"]
    assert "is deleted to make room for a new master" in late.deletes[0].reason
    assert "is deleted to make room for a new master" in late.status.history[0].message
    assert (late.status.replicas, late.status.target_replicas, late.status.incarnation) == (1, 1, 1)
    assert late.write_status_first


def test_a_worker_released_for_a_master_is_in_the_status_before_it_is_deleted():
    """No reservation explains that worker to a later leader (203)."""
    master = is_pending(make_master(master_epoch=2), node=None, bound=False, unschedulable="0/3 nodes are available.")
    pods = (master, *(make_worker(i) for i in range(4)))
    listed = [PodStatus(name=p.name, uid=p.uid, role=p.role, index=p.index, node=p.node, phase="Running") for p in pods]
    job = make_elastic_job(pods, master_epoch=2, master_lost_time=at(100), pods=listed)
    grant = make_grant(keep=["master-0", "worker-0", "worker-1", "worker-2"], release=["worker-3"])
    grant = replace(grant, preemptors={"n": "owners/notebook"}, reclaimed=True, only_for_foreign_pods=True)
    early, late = plan(job, grant, now=129), plan(job, grant, now=130)
    assert (names(early.deletes), early.write_status_first) == (["toy-worker-3"], False)
    assert (names(late.deletes), late.write_status_first) == (["toy-worker-3", "toy-worker-2"], True)


def test_no_pod_is_released_where_the_rest_would_be_below_the_minimum():
    assert no_place(180, workers=1).deletes == ()


def test_no_pod_is_released_while_the_name_of_the_master_is_taken():
    old = make_master(master_epoch=1, deleting_since=START + 99)
    assert no_place(180, pods=(old, make_worker(0), make_worker(1))).deletes == ()
    assert no_place(180, foreign_names=frozenset({"toy-master-0"})).deletes == ()


def test_one_goes_at_a_time():
    pods = tuple(make_worker(i) for i in range(3))
    history = [Change(time=at(131), from_=4, to=3, reason="ScaledDown")]
    job = make_elastic_job(
        pods, master_epoch=2, master_lost_time=at(100), replicas=3, target_replicas=3, history=history
    )
    grant = make_grant(keep=["worker-0", "worker-1", "worker-2"])
    assert plan(job, grant, now=160).deletes == ()
    assert names(plan(job, grant, now=161).deletes) == ["toy-worker-2"]


def test_a_master_without_a_node_is_awaited_for_as_long_as_the_others_wait():
    master = is_pending(
        make_master(master_epoch=2), node=None, bound=False, unschedulable="no room", unschedulable_since=START + 100
    )
    pods = (master, make_worker(0), make_worker(1))
    status = {"master_epoch": 2, "master_lost_time": at(100), "replicas": 3, "target_replicas": 3}
    planned = plan(make_elastic_job(pods, **status), make_grant(keep=["master-0", "worker-0", "worker-1"]), now=170)
    assert names(planned.deletes) == ["toy-worker-1"]
    assert planned.status.incarnation == 1


@pytest.mark.parametrize("age", [100, 3600], ids=["a young job", "a job of an hour"])
def test_a_master_that_fails_counts_and_is_waited_for_however_long_the_job_has_run(age):
    pods = (ended(make_master(), 1, finished=age), make_worker(0), make_worker(1))
    status = plan(make_elastic_job(pods), make_grant(keep=["worker-0", "worker-1"]), now=age).status
    assert (status.failures, status.retry.attempt, status.running_since) == (1, 1, None)


def test_ten_quiet_minutes_are_not_counted_while_there_is_no_master():
    planned = without_master(failures=1, retry=Retry(reason="x", not_before=at(0)))
    assert planned.status.running_since is None


def test_pods_are_named_when_lost_as_the_last_status_listed_them():
    names = ("master-0", "worker-0", "worker-1")
    listed = [PodStatus(name=f"toy-{name}", role=name.partition("-")[0], phase="Running") for name in names]
    assert "toy-master-0" in without_master(pods=listed).events[0].message


def test_a_late_master_of_an_earlier_incarnation_costs_no_loss():
    pods = (make_master(), make_worker(0, incarnation=2), make_worker(1, incarnation=2))
    status = {"incarnation": 2, "replicas": 0, "master_epoch": 2}
    grant = make_grant(keep=["worker-0", "worker-1"], create=["master-0"])
    first = plan(make_elastic_job(pods, **status), grant)
    assert (names(first.deletes), first.slots) == (["toy-master-0"], ())
    then = plan(make_elastic_job(pods[1:], last=first.status), grant)
    assert (then.status.incarnation, then.status.master_epoch, then.status.restarts) == (2, 2, 0)
    assert [slot.role for slot in then.slots] == ["master"]
