"""What the master of an Elastic job is told, and when."""

import json
from dataclasses import replace
from uuid import UUID

import pytest

from elastic_api.job import MAX_REPLICAS
from elastic_operator.plan.job.membership import MAX_NAMED_MEMBERS, changed_membership
from elastic_worker.coordinator.membership import parse
from tests.plan.elastic.jobs import (
    make_elastic_job,
    make_elastic_spec,
    make_group,
    make_master,
    make_membership,
    make_worker,
)
from tests.plan.jobs import BOTH, START, ended, group, make_grant, make_job, make_spec, plan, see, started


def told(planned):
    return json.loads(planned.membership.text)


def test_what_the_master_knows_already_is_not_told_again():
    assert plan(make_elastic_job(make_group(1)), BOTH).membership is None


def test_pods_that_came_are_told_under_a_higher_number_to_that_master():
    pods = (*make_group(1, membership=make_membership("master-0", "worker-0", number=7)), make_worker(1))
    planned = plan(make_elastic_job(pods), make_grant(keep=["master-0", "worker-0", "worker-1"]))
    assert (planned.membership.name, planned.membership.uid) == ("toy-master-0", "uid-master-0")
    assert told(planned) == json.loads(make_membership("master-0", "worker-0", "worker-1", number=8))


def test_a_pod_that_is_to_go_is_no_member_from_the_same_plan_on():
    planned = plan(make_elastic_job(make_group(2)), make_grant(keep=["master-0", "worker-0"], release=["worker-1"]))
    assert [delete.name for delete in planned.deletes] == ["toy-worker-1"]
    assert told(planned) == json.loads(make_membership("master-0", "worker-0", number=2))


def test_a_pod_that_another_one_replaces_under_its_name_is_another_member():
    pods = (*make_group(1)[:1], make_worker(0, uid="new"))
    planned = plan(make_elastic_job(pods), make_grant(keep=["master-0"]))
    assert {"name": "toy-worker-0", "uid": "new"} in told(planned)["members"]


@pytest.mark.parametrize("count", [MAX_NAMED_MEMBERS, MAX_REPLICAS])
def test_what_the_largest_job_is_told_fits_into_annotations(count):
    """Beside those of the user; all of a pod's annotations may have 256 KiB."""
    spec = make_elastic_spec(allowedReplicas=list(range(2, 2 + 64)), maxReplicas=MAX_REPLICAS)
    pods = [replace(make_worker(index), uid=str(UUID(int=index)), name=f"{index:063}") for index in range(count - 1)]
    text = changed_membership(see(make_elastic_job((make_master(), *pods), spec=spec), now=0.0), 0.0).text
    content = json.loads(text)
    assert len(text) <= 200 * 1024
    assert parse(content).members == {"uid-master-0", *(pod.uid for pod in pods)}
    assert ("name" in content["members"][0]) is (count <= MAX_NAMED_MEMBERS)


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [({"allowedReplicas": [4, 2]}, {"sizes": [2, 4]}), ({"replicaStep": 2}, {"step": 2}), ({}, {})],
)
def test_the_sizes_are_those_of_the_spec(sizes, shown):
    job = make_elastic_job(
        (make_master(), make_worker(0)), spec=make_elastic_spec(minReplicas=2, maxReplicas=4, **sizes)
    )
    content = told(plan(job, BOTH))
    assert {key: content[key] for key in content.keys() - {"wish", "members"}} == {"min": 2, "max": 4, **shown}


def test_an_edit_of_the_sizes_is_told():
    job = make_elastic_job(make_group(1), spec=make_elastic_spec(maxReplicas=9))
    content = told(plan(job, BOTH))
    assert (content["wish"], content["max"]) == (2, 9)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"wish": "x"}', '{"wish": -3}', "[" * 100_000])
def test_what_somebody_else_wrote_is_replaced_under_a_number_higher_than_any(text):
    pods = (make_master(membership=text), make_worker(0))
    assert told(plan(make_elastic_job(pods), BOTH))["wish"] == START + 200


def test_a_new_master_is_made_with_those_who_wait_and_those_who_come_with_it():
    job = make_elastic_job((make_worker(0),), replicas=2, target_replicas=3)
    planned = plan(job, make_grant(keep=["worker-0"], create=["master-0", "worker-1"]))
    assert "master" in planned.creates.roles
    assert json.loads(planned.creates.membership) == {
        "wish": 1,
        "members": [
            {"name": "toy-worker-0", "uid": "uid-worker-0"},
            {"name": "toy-master-0", "uid": ""},
            {"name": "toy-worker-1", "uid": ""},
        ],
        "min": 2,
        "max": 4,
    }
    assert planned.membership is None


def test_nobody_is_told_anything_while_the_job_ends():
    pods = (make_master(), ended(make_worker(0), 0), make_worker(1))
    assert plan(make_elastic_job(pods), make_grant(keep=["master-0", "worker-1"])).membership is None


def test_in_torchrun_mode_there_is_no_such_thing():
    planned = plan(
        make_job(group(1), spec=make_spec(), status=started()), make_grant(keep=["master-0"], create=["worker-1"])
    )
    assert planned.membership is None
    assert (planned.creates.master_epoch, planned.creates.membership) == (0, "")
    assert (planned.status.master_epoch, planned.status.master_lost_time) == (None, None)
