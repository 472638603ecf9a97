"""A job that is set aside keeps what it has, gives what others are entitled to, and gets nothing."""

from __future__ import annotations

from elastic_api.status import ConditionType
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.job.set_aside import demand_aside, plan_aside
from tests.plan.allocate.world import NOW, make_node, make_snapshot
from tests.plan.allocate.world import make_job as demand
from tests.plan.jobs import at, make_job, make_pod, make_status, started

ALL = ("master-0", "worker-0", "worker-1")


def pods(*names: str, **fields):
    return [make_pod(name, node="n1", **fields) for name in names]


def test_without_pods_it_has_no_demand():
    assert demand_aside(demand("bad", 1, 4, on="n1 n1 n1"), pods()) is None


def test_without_a_master_it_gets_none_and_others_take_its_workers():
    found = demand_aside(demand("bad", 1, 4, on="n1 n1 n1"), pods("worker-0", "worker-1"))
    alone = allocate(make_snapshot([make_node("n1", 8)], [found]))["bad"]
    assert (len(alone.assignment.keep), alone.assignment.create, alone.assignment.release) == (2, (), ())
    both = allocate(make_snapshot([make_node("n1", 2)], [found, demand("good", 1, 1, priority=1)]))
    assert both["bad"].assignment.release == ("uid-worker-1",)
    assert both["good"].assignment.replicas == 1


def test_a_master_that_goes_is_none():
    assert demand_aside(demand("bad", 1, 4, on="n1"), pods("master-0", deleting_since=NOW)) is None


def test_with_its_pods_it_gets_none_more_though_there_is_room():
    found = demand_aside(demand("bad", 1, 4, on="n1 n1 n1"), pods(*ALL))
    grant = allocate(make_snapshot([make_node("n1", 8)], [found]))["bad"]
    assert (len(grant.assignment.keep), grant.assignment.create, grant.assignment.release) == (3, (), ())


def test_what_others_get_goes_workers_first_and_is_written_down_first():
    job = make_job(tuple(pods(*ALL)), status=started(), fault="made up")
    uids = [pod.uid for pod in job.pods]
    planned = plan_aside(job, uids, NOW)
    assert [pod.name for pod in planned.deletes] == ["toy-worker-1", "toy-worker-0", "toy-master-0"]
    assert planned.commit_first
    assert planned.status.history[0].reason == "QuotaReclaimed"
    assert planned.status.condition(ConditionType.READY).reason == "InternalError"


def test_a_job_that_has_ended_stays_as_it_is():
    job = make_job((), status=make_status(completion_time=at(100)), fault="made up")
    assert plan_aside(job, (), NOW).status is job.status
