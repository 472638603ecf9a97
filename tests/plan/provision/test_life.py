"""A job that asks for nodes, from its status and pods to what is done for it: delay, time limit, back-off, end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_api.status import ConditionType, Retry, RetryCause, SizeReason
from elastic_operator.plan.facts.decisions import Slot
from elastic_operator.plan.facts.demand import Member
from elastic_operator.plan.facts.job import MainContainer, Provisioning
from elastic_operator.plan.facts.job_shape import job_shape
from elastic_operator.plan.facts.pod_shape import shape_of
from elastic_operator.plan.facts.requirements import Load
from elastic_operator.plan.facts.team import Flavor
from elastic_operator.plan.facts.times import seconds
from elastic_operator.plan.job.demand import demand_of, with_members
from elastic_operator.settings import Settings
from tests.plan.jobs import (
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

RULE = Provisioning(delay_seconds=30, timeout_seconds=900)
PENDING = {
    "node": None,
    "bound": False,
    "phase": "Pending",
    "ready": False,
    "main": MainContainer(),
    "pod_ip": None,
    "unschedulable": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    "unschedulable_since": START + 100,
}
ASKS = make_grant(keep=["master-0", "worker-0"], limit=SizeReason.WAITING_FOR_NODES, message="The job asks for nodes.")
ASKS_FIRST = make_grant(
    create=["master-0", "worker-0"], limit=SizeReason.WAITING_FOR_NODES, message="The job asks for nodes."
)
WAITS = make_grant(limit=SizeReason.INSUFFICIENT_NODES, message="There is no room.")


def waiting_job(pods=None, *, provisioning=RULE, **fields):
    """A job whose pods wait for a node."""
    return make_job(group(1, **PENDING) if pods is None else pods, provisioning=provisioning, **fields)


def demand(job, *, now=200.0, **known):
    shape = replace(shape_of(TEMPLATE, gpu_resources=["nvidia.com/gpu"], volumes={}), **known)
    return demand_of(see(job, now=now), job_shape(shape, shape, flavors=[Flavor()]))


def asks_from(job):
    """Seconds after START."""
    request = demand(job).node_request
    return None if request is None else request.begins_at - START


# -- when to ask -------------------------------------------------------------------------------------------------------


def test_a_new_job_asks_some_time_after_it_was_created():
    assert asks_from(waiting_job([], status=make_status(target_replicas=0, replicas=0))) == 30


def test_the_delay_is_counted_from_when_it_began_to_wait():
    conditions = [
        make_condition(ConditionType.ADMITTED, "False", 100),
        make_condition(ConditionType.READY, "False", 20),
        make_condition(ConditionType.SUSPENDED, "False", 50),
    ]
    assert asks_from(waiting_job([], status=make_status(target_replicas=0, conditions=conditions))) == 130


def test_a_job_that_lost_pods_asks_some_time_after_it_was_not_ready_any_more():
    conditions = [make_condition(ConditionType.ADMITTED, "True", 0), make_condition(ConditionType.READY, "False", 150)]
    assert asks_from(waiting_job([make_pod("master-0")], status=started(1, conditions=conditions))) == 180


def test_a_job_that_is_ready_does_not_ask():
    conditions = [make_condition(ConditionType.READY, "True", 0)]
    assert asks_from(waiting_job([make_pod("master-0")], status=started(1, conditions=conditions))) is None


def test_without_autoscaled_pools_no_job_asks():
    assert asks_from(make_job([], status=make_status(target_replicas=0))) is None


def test_a_job_that_is_finishing_does_not_ask():
    pods = (make_pod("master-0"), ended(make_pod("worker-0"), 0))
    assert asks_from(waiting_job(pods, status=started(1))) is None


def test_after_nodes_were_asked_for_in_vain_they_are_not_before_the_back_off_is_over():
    failed = Retry(reason="No node was added", not_before=at(500), cause=RetryCause.NODES_NOT_PROVISIONED)
    status = make_status(target_replicas=0, replicas=0, failed_size=failed)
    job = waiting_job([], status=status)
    assert asks_from(job) == 500
    assert (demand(job).wants_pods, demand(job).failed) == (True, None)


# -- who waits ---------------------------------------------------------------------------------------------------------


def test_pods_without_a_node_are_no_members_while_the_minimum_is_not_there():
    found = demand(waiting_job((make_pod("master-0"), make_pod("worker-0", **PENDING))))
    assert [m.uid for m in found.members] == ["uid-master-0"]
    assert [m.uid for m in found.provisioning_pods] == ["uid-worker-0"]
    assert found.node_request.ends_at == START + 1000
    assert found.used_indices == {0}


def test_pods_of_a_job_that_has_its_minimum_are_members_with_or_without_a_node():
    found = demand(waiting_job((*group(1), make_pod("worker-1", **PENDING))), now=120)
    assert (len(found.members), found.provisioning_pods) == (3, ())


def test_without_autoscaled_pools_they_are_members():
    assert len(demand(waiting_job(provisioning=None), now=120).members) == 2


def test_pods_that_the_planner_cannot_judge_wait_once_the_scheduler_has_judged_them():
    new = {**PENDING, "unschedulable": "", "unschedulable_since": None}
    job = waiting_job((make_pod("master-0", **new), make_pod("worker-0", **PENDING)), spec=make_spec(minReplicas=3))
    found = demand(job, now=120, pinnable=False)
    assert ([m.uid for m in found.members], [m.uid for m in found.provisioning_pods]) == (
        ["uid-master-0"],
        ["uid-worker-0"],
    )
    assert len(demand(job, now=120).provisioning_pods) == 2


def test_pods_that_are_being_created_wait_too():
    job = waiting_job([make_pod("master-0")], status=make_status(replicas=1))
    new = Member.at("being-created", Slot("worker", 3, None, True), Load({"nvidia.com/gpu": 1}, 1))
    found = with_members(demand(job), [new])
    assert ([m.uid for m in found.members], found.provisioning_pods) == (["uid-master-0"], (new,))
    assert found.used_indices == {3}


def test_what_the_planner_cannot_judge_is_not_tried_again_before_the_back_off_is_over():
    failed = Retry(reason="No node was added", not_before=at(500), cause=RetryCause.NODES_NOT_PROVISIONED)
    job = waiting_job([], status=make_status(target_replicas=0, replicas=0, failed_size=failed))
    assert (demand(job, pinnable=False).failed.size, demand(job).failed) == (1, None)


# -- how it goes on ----------------------------------------------------------------------------------------------------


def test_asking_is_told_with_an_event_and_in_the_history():
    job = waiting_job([], status=make_status(target_replicas=0, replicas=0))
    planned = plan(job, ASKS_FIRST)
    assert [(create.role, create.index) for create in planned.slots] == [("master", 0), ("worker", 0)]
    assert [(event.reason, event.message) for event in planned.events] == [
        ("WaitingForNodes", "The job asks for nodes.")
    ]
    assert planned.status.history[0].reason == "WaitingForNodes"
    assert planned.status.turn_started is None


def test_a_job_whose_pods_wait_is_queued_and_says_what_it_waits_for():
    planned = plan(waiting_job(), ASKS)
    assert reasons(planned)["Ready"] == ("False", "Queued")
    assert reasons(planned)["FullSize"] == ("False", "WaitingForNodes")
    assert planned.status.condition(ConditionType.READY).message == "The job asks for nodes."


def test_a_group_that_runs_in_part_says_so():
    planned = plan(waiting_job((make_pod("master-0"), make_pod("worker-0", **PENDING))), ASKS)
    assert reasons(planned)["Ready"] == ("False", "Rendezvousing")


def test_pods_that_wait_for_nodes_are_given_longer_than_others():
    planned = plan(waiting_job(), ASKS, now=999)
    assert (planned.deletes, planned.status.failed_size) == ((), None)
    assert planned.requeue_at == START + 1000


def test_when_no_node_came_in_time_the_pods_are_taken_back_and_it_is_tried_again_later():
    planned = plan(waiting_job(), WAITS, now=1000)
    assert sorted(names(planned.deletes)) == ["toy-master-0", "toy-worker-0"]
    assert (planned.write_status_first, planned.status.target_replicas, planned.status.restarts) == (True, 0, 0)
    failed = planned.status.failed_size
    assert failed.cause is RetryCause.NODES_NOT_PROVISIONED
    assert (failed.waits_for, failed.size, failed.attempt) == ("Nodes", None, 1)
    assert 1030 <= seconds(failed.not_before) - START <= 1046
    assert planned.events[0].reason == "ScaleUpBlocked"
    assert "No node was added within 900 s for toy-master-0: 0/1 nodes are available" in planned.events[0].message


def test_each_time_in_vain_doubles_the_time_to_the_next():
    failed = Retry(reason="No node was added", not_before=at(50), attempt=3, cause=RetryCause.NODES_NOT_PROVISIONED)
    planned = plan(waiting_job(status=make_status(failed_size=failed)), WAITS, now=1000)
    assert planned.status.failed_size.attempt == 4
    assert 1240 <= seconds(planned.status.failed_size.not_before) - START <= 1365


def test_what_is_bound_of_a_minimum_that_is_not_complete_in_time_goes_too():
    seen = see(waiting_job((make_pod("master-0"), make_pod("worker-0", **PENDING))), now=1000)
    assert sorted(pod.name for pod in seen.to_delete) == ["toy-master-0", "toy-worker-0"]
    assert (seen.members, seen.status.incarnation) == ((), 2)


def test_a_pod_for_growth_that_finds_no_node_is_not_waited_for_so_long():
    job = waiting_job((*group(1), make_pod("worker-1", **PENDING)), status=started(2))
    planned = plan(job, make_grant(keep=["master-0", "worker-0"]), now=160)
    assert names(planned.deletes) == ["toy-worker-1"]
    failed = planned.status.failed_size
    assert (failed.size, failed.cause, failed.waits_for) == (3, RetryCause.UNSCHEDULABLE, None)


def test_a_pod_that_has_a_node_chosen_for_it_is_not_waited_for_so_long():
    pinned = {**PENDING, "node": "n1"}
    planned = plan(waiting_job(group(1, **pinned), spec=make_spec(minReplicas=3)), WAITS, now=160)
    assert planned.status.failed_size.cause is RetryCause.UNSCHEDULABLE


@pytest.mark.parametrize("wait_for_nodes", [True, False])
def test_while_nodes_are_not_asked_for_what_becomes_free_is_used(wait_for_nodes):
    size, cause = (None, RetryCause.NODES_NOT_PROVISIONED) if wait_for_nodes else (1, RetryCause.FAILED_CREATE)
    failed = Retry(reason="x", not_before=at(500), size=size, cause=cause)
    job = waiting_job([], status=make_status(target_replicas=0, replicas=0, failed_size=failed))
    seen = see(job, now=200)
    assert (seen.wants_pods, seen.no_pods_before > 0) == (wait_for_nodes, not wait_for_nodes)
    if wait_for_nodes:
        assert len(plan(job, make_grant(create=["master-0", "worker-0"])).slots) == 2


def test_a_successor_finds_the_time_limit_in_the_pods_and_the_back_off_in_the_status():
    """All that is decided from is the job's object and its pods: equal ones lead to equal demands."""
    job = waiting_job()
    again = replace(job, status=type(job.status).model_validate(job.status.model_dump(mode="json", by_alias=True)))
    assert demand(job) == demand(again)
    spec = make_spec(minReplicas=2)
    assert (
        plan(replace(job, spec=spec), WAITS, now=1000).status == plan(replace(again, spec=spec), WAITS, now=1000).status
    )


def test_the_settings_say_whether_and_how_long_nodes_are_asked_for():
    asked = Settings.model_validate({"provisioning": "PendingPods", "provisioningDelaySeconds": 5})
    assert (Settings().node_provisioning, asked.node_provisioning) == (None, Provisioning(5, 900))
