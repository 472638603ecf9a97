"""A job that is quarantined keeps what it has, gives what others are entitled to, and gets nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elastic_api.status import ConditionType, JobStatus, PodStatus
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.job import Quarantined, listed_workers
from elastic_operator.plan.job.quarantined import demand_in_quarantine, plan_in_quarantine
from tests.plan.allocate.world import NOW, make_inputs, make_node
from tests.plan.allocate.world import make_job as demand
from tests.plan.jobs import at, make_job, make_pod, make_status, started

ALL = ("master-0", "worker-0", "worker-1")


def replaced(status: JobStatus, **fields: Any) -> JobStatus:
    return status.model_copy(update=fields)


def pods(*names: str, **fields):
    return [make_pod(name, node="n1", **fields) for name in names]


def test_without_pods_it_has_no_demand():
    assert demand_in_quarantine(demand("bad", 1, 4, on="n1 n1 n1"), pods()) is None


def test_without_a_master_it_gets_none_and_others_take_its_workers():
    found = demand_in_quarantine(demand("bad", 1, 4, on="n1 n1 n1"), pods("worker-0", "worker-1"))
    alone = allocate(make_inputs([make_node("n1", 8)], [found]))["bad"]
    assert (len(alone.assignment.keep), alone.assignment.create, alone.assignment.release) == (2, (), ())
    both = allocate(make_inputs([make_node("n1", 2)], [found, demand("good", 1, 1, priority=1)]))
    assert both["bad"].assignment.release == ("uid-worker-1",)
    assert both["good"].assignment.replicas == 1


def test_a_master_that_goes_is_none():
    assert demand_in_quarantine(demand("bad", 1, 4, on="n1"), pods("master-0", deleting_since=NOW)) is None


def test_with_its_pods_it_gets_none_more_though_there_is_room():
    found = demand_in_quarantine(demand("bad", 1, 4, on="n1 n1 n1"), pods(*ALL))
    grant = allocate(make_inputs([make_node("n1", 8)], [found]))["bad"]
    assert (len(grant.assignment.keep), grant.assignment.create, grant.assignment.release) == (3, (), ())


def test_what_others_get_goes_workers_first_and_is_written_down_first():
    job = make_job(tuple(pods(*ALL)), status=started(), quarantine=Quarantined("made up"))
    uids = [pod.uid for pod in job.pods]
    planned = plan_in_quarantine(job, uids, NOW)
    assert [pod.name for pod in planned.deletes] == ["toy-worker-1", "toy-worker-0", "toy-master-0"]
    assert planned.write_status_first
    assert planned.status.history[0].reason == "QuotaReclaimed"
    assert planned.status.condition(ConditionType.READY).reason == "InternalError"


def test_a_plan_from_its_own_status_has_the_same_status():
    """The status is written before the pods are deleted: each DELETE may fail, and is tried again."""
    job = make_job(tuple(pods(*ALL)), status=replaced(started(), target_replicas=3), quarantine=Quarantined("made up"))
    uids = [pod.uid for pod in job.pods if pod.name == "toy-worker-1"]
    first = plan_in_quarantine(job, uids, NOW)
    again = plan_in_quarantine(replace(job, status=first.status), uids, NOW + 1)
    assert first.status.target_replicas == len(ALL) - 1
    assert again.status == first.status
    assert again.deletes == first.deletes


def test_the_size_that_is_written_down_is_that_of_the_pods_that_stay():
    job = make_job(tuple(pods(*ALL)), status=replaced(started(), target_replicas=9), quarantine=Quarantined("made up"))
    gone = plan_in_quarantine(job, [job.pods[-1].uid], NOW).status
    assert (gone.target_replicas, gone.history[0].to) == (2, 2)


def test_a_pod_that_it_gave_up_is_not_listed_as_alive():
    """Otherwise the pod counts as evicted once more when the quarantine is over (203)."""
    listed = [PodStatus(name=p.name, uid=p.uid, role=p.role, node=p.node, phase="Running") for p in pods(*ALL)]
    job = make_job(tuple(pods(*ALL)), status=replaced(started(2), pods=listed), quarantine=Quarantined("made up"))
    status = plan_in_quarantine(job, ["uid-worker-1"], NOW).status
    assert (status.target_replicas, listed_workers(status)) == (2, {"uid-worker-0"})


def test_a_job_that_has_ended_stays_as_it_is():
    job = make_job((), status=make_status(completion_time=at(100)), quarantine=Quarantined("made up"))
    assert plan_in_quarantine(job, (), NOW).status is job.status
