"""Pods of jobs for which nothing new is made: their claim gets nothing, and they are evicted for entitled teams."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_api.job import CleanPodPolicy
from elastic_api.status import ConditionType
from elastic_operator.plan.facts.decisions import Grant
from elastic_operator.plan.facts.demand import PreemptionBar
from elastic_operator.plan.facts.job_shape import job_shape
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.plan.facts.team import Flavor
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.job.demand import demand_of
from elastic_operator.plan.job.reconcile import reconcile
from elastic_operator.plan.job.remaining_pods import (
    LOWEST_PRIORITY,
    demand_of_pods,
    flavor_in_use,
    frozen_demand,
    unwanted_pods,
)
from tests.plan.jobs import (
    START,
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
    reasons,
    see,
    started,
    with_facts,
)
from tests.plan.jobs import plan as planned

SHAPE = PodShape(requests={"nvidia.com/gpu": 1}, gpus=1)
FLAVORS = (Flavor("h100", node_selector={"gpu": "h100"}), Flavor("a100", node_selector={"gpu": "a100"}))


def unread(pods=None, **fields):
    """A job of which no spec is known."""
    return replace(make_job(pods, status=started(3), **fields), spec=None, invalid="spec.x: must be absent")


def settled(job, grant: Grant | None = None, *, now=200.0):
    return reconcile(see(job, now=now), grant, now=START + now)


FINISHED = make_status(completion_time=at(100), conditions=[make_condition(ConditionType.SUCCEEDED, "True", 100)])


@pytest.mark.parametrize(
    ("job", "keeps"),
    [
        (unread(group(2)), 3),
        (replace(unread(group(2)), deleted=True), 3),
        (replace(unread((make_pod("master-0"), make_pod(deleting_since=START))), deleted=True), 1),
        (make_job(group(2), spec=make_spec(cleanPodPolicy="None"), status=FINISHED), 3),
        (make_job(group(2), spec=make_spec(cleanPodPolicy="Running"), status=FINISHED), 0),
        (make_job(group(2), spec=make_spec(cleanPodPolicy="All"), status=FINISHED), 0),
        (make_job(group(2), status=started(2)), 0),
        (make_job(group(2), spec=make_spec(suspend=True), status=started(2)), 0),
    ],
    ids=["unread", "deleted", "one is going", "kept at the end", "to be gone", "all", "runs", "suspended"],
)
def test_pods_hold_what_they_have_where_nobody_else_says_what_becomes_of_them(job, keeps):
    assert len(unwanted_pods(see(job))) == keeps


def test_what_a_job_that_is_over_holds_goes_before_anybody_else_s_and_pod_by_pod():
    for job in (replace(unread(group(2)), deleted=True), make_job(group(2), status=FINISHED)):
        claim = demand_of_pods(job, job.pods, "h100")
        assert (claim.priority, claim.sizes, claim.bar.why, claim.shape.flavor) == (
            LOWEST_PRIORITY,
            (),
            PreemptionBar.GETS_NO_PODS,
            "h100",
        )
        assert [member.uid for member in claim.members] == ["uid-master-0", "uid-worker-0", "uid-worker-1"]


def test_an_unreadable_job_that_may_run_keeps_its_priority_and_the_size_of_its_pods():
    job = with_facts(unread(group(3)), priority=7)
    claim = demand_of_pods(job, job.pods, "h100")
    assert (claim.priority, claim.sizes, claim.bar.why) == (7, (2, 3, 4), PreemptionBar.GETS_NO_PODS)


@pytest.mark.parametrize(
    ("labels", "flavor"),
    [({"n1": {"gpu": "a100"}}, "a100"), ({"n1": {"gpu": "l4"}}, None), ({}, None)],
    ids=["known", "of no flavor", "gone"],
)
def test_gpus_are_of_the_kind_of_their_node(labels, flavor):
    assert flavor_in_use(group(), labels, FLAVORS) == flavor


def test_pods_without_gpus_hold_nothing_that_is_shared():
    assert flavor_in_use(group(requests={"cpu": 1}, gpus=0), {"n1": {"gpu": "a100"}}, FLAVORS) is None


def test_a_job_without_a_spec_shrinks_as_others_do_and_makes_no_pods():
    pods = (*group(2), make_pod("worker-2", incarnation=0))
    grant = make_grant(keep=["master-0", "worker-0"], release=["worker-1"], create=["worker-3"])
    done = settled(unread(pods), grant)
    assert names(done.deletes) == ["toy-worker-2", "toy-worker-1"]
    assert (done.slots, done.write_status_first, done.route.address) == ((), True, "10.0.0.1")
    assert (done.status.target_replicas, done.status.replicas) == (3, 2)
    assert reasons(done)["Ready"] == ("False", "InvalidSpec")


def test_a_job_without_a_spec_that_gives_everything_starts_another_incarnation():
    done = settled(unread(group(1)), make_grant(release=["master-0", "worker-0"]))
    assert names(done.deletes) == ["toy-master-0", "toy-worker-0"]
    assert done.status.incarnation == 2


def test_a_job_without_a_spec_ends_when_its_master_does():
    pods = (ended(make_pod("master-0"), 0), make_pod("worker-0"))
    assert reasons(settled(unread(pods)))["Succeeded"] == ("True", "Succeeded")


def test_nothing_is_done_for_a_deleted_job_but_its_pods_are_evicted():
    job = replace(unread(group(1)), deleted=True, spec=None, invalid="")
    grant = make_grant(keep=["master-0"], release=["worker-0"])
    assert settled(job).status is job.status
    assert settled(job).deletes == ()
    done = settled(job, grant)
    assert (names(done.deletes), done.slots, done.status) == (["toy-worker-0"], (), job.status)


def test_remaining_pods_of_an_ended_job_are_evicted():
    job = make_job(group(2), spec=make_spec(cleanPodPolicy=CleanPodPolicy.NONE), status=FINISHED)
    assert settled(job).deletes == ()
    assert names(settled(job, make_grant(release=["worker-1", "master-0"])).deletes) == ["toy-worker-1", "toy-master-0"]


@pytest.mark.parametrize("why", ["invalid", "pods_rejected_until_edit"])
class TestAJobWhoseSpecIsNoUse:
    """It cannot be read, and the last that could is known; or pods made from it are refused."""

    def job(self, why, pods):
        return make_job(pods, status=started(len(pods) - 1), **{why: "spec.x: must be absent"})

    def test_has_what_it_has_and_asks_for_no_more(self, why):
        seen = see(self.job(why, group(2)))
        shape = job_shape(SHAPE, SHAPE, flavors=[Flavor()])
        demand = frozen_demand(demand_of(seen, shape))
        assert seen.wants_pods
        assert (demand.sizes, demand.bar.why, demand.wants_pods, len(demand.members)) == (
            (2, 3),
            PreemptionBar.GETS_NO_PODS,
            True,
            3,
        )

    def test_gets_no_pods_though_there_is_room_for_what_it_lost(self, why):
        done = planned(
            self.job(why, group(2)), make_grant(keep=["master-0", "worker-0", "worker-1"], create=["worker-2"])
        )
        assert done.slots == ()
        assert reasons(done)["FullSize"] == ("False", "InvalidSpec")
        ready = done.status.condition(ConditionType.READY)
        assert "it continues with 3 pods and gets no more" in ready.message

    @pytest.mark.parametrize("left", [(make_pod("master-0"),), (make_pod("worker-0"), make_pod("worker-1"))])
    def test_gives_back_what_does_not_make_its_minimum(self, why, left):
        job = replace(self.job(why, left), spec=make_spec(runtime={"mode": "Elastic"}), status=elastic(len(left)))
        done = planned(job, make_grant())
        assert names(done.deletes) == [pod.name for pod in left]
        assert done.status.target_replicas == 0


def elastic(size):
    return make_status(replicas=size, target_replicas=size, running_since=at(5), master_epoch=1)


def test_fields_that_are_ignored_are_a_warning():
    told = "spec.fromTheFuture: this release has no such field"
    warnings = {ConditionType.FIELDS_IGNORED: Reason("NoSuchField", told)}
    done = planned(make_job(status=started(), warnings=warnings), make_grant(keep=["master-0", "worker-0"]))
    assert reasons(done)["FieldsIgnored"] == ("True", "NoSuchField")
    assert reasons(done)["Ready"] == ("True", "Running")
    assert [event.type for event in done.events if event.reason == "FieldsIgnored"] == ["Warning"]
    over = planned(replace(make_job(status=done.status)), make_grant(keep=["master-0", "worker-0"]))
    assert reasons(over)["FieldsIgnored"][0] == "False"
