"""Pods that train on without a lost node are left alone in Torchrun mode; those that wait for it are replaced."""

from math import inf

import pytest

from elastic_operator.plan.facts.job import MainContainer, TorchrunGroup
from elastic_operator.plan.facts.node_outage import NodeOutage
from elastic_operator.plan.job.observation import NodeState
from elastic_operator.plan.job.survivors import SURVIVOR_READ_SECONDS
from tests.plan.jobs import START, group, make_grant, make_job, make_pod, make_spec, plan, see, started, with_facts

PODS = (*group(2), make_pod("worker-2", node="n2"))
LEFT = frozenset(pod.uid for pod in PODS[:3])
ALONE = frozenset(pod.uid for pod in PODS)
KEEP = make_grant(keep=["master-0", "worker-0", "worker-1"])
DUE = 140


def job_of(pods=PODS, *, asked=120.0, shown=frozenset(), **fields):
    """A job of which the logs are read since then, and show that these pods are a group."""
    known = None if asked is None else TorchrunGroup(START + asked, shown)
    return make_job(pods, status=started(3), group=known, pods_are_asked=True, **fields)


def after_loss(job, *, now=DUE, unready=100):
    return plan(job, KEEP, now=now, unready={"n2": unready})


def test_pods_that_are_a_group_without_the_lost_node_stay_and_only_the_lost_pod_goes():
    planned = after_loss(job_of(shown=LEFT))
    assert [(one.name, one.force) for one in planned.deletes] == [("toy-worker-2", True)]
    assert (planned.status.incarnation, planned.status.failures, planned.status.restarts) == (1, 0, 1)
    assert [event.reason for event in planned.events] == ["NodeLost", "ScaledDown"]
    told = "A group of 3 pods trains on without that node, and is kept."
    assert told in planned.events[0].message
    assert told in next(change.message for change in planned.status.history if change.reason == "PodLost")


@pytest.mark.parametrize(
    "shown",
    [frozenset(), ALONE, LEFT - {"uid-worker-1"}, (LEFT - {"uid-worker-1"}) | {"uid-worker-2"}],
    ids=["nothing", "the group before", "not all of them", "the lost one instead of another"],
)
def test_all_pods_are_replaced_where_it_is_not_shown_that_just_those_that_are_left_train(shown):
    planned = after_loss(job_of(shown=shown))
    assert (planned.status.incarnation, len(planned.deletes)) == (2, 4)
    assert [event.reason for event in planned.events[:2]] == ["NodeLost", "NewIncarnation"]


def test_by_default_a_stalled_group_waits_only_until_the_node_is_given_up():
    before, begins, due = (
        see(job_of(asked=asked), now=now, unready={"n2": 100}) for asked, now in ((None, 115), (None, 120), (120, DUE))
    )
    assert (before.survivors, min(before.requeue_at)) == (None, START + DUE - SURVIVOR_READ_SECONDS)
    assert begins.survivors.uids == LEFT
    assert due.unready_nodes == {"n2": NodeState.LOST}


@pytest.mark.parametrize("since", [139, None], ids=["for a second", "not yet"])
def test_a_node_is_given_up_later_where_it_is_asked_too_short_a_time(since):
    """A new leader, or a short nodeLossSeconds."""
    seen = see(job_of(asked=since), now=DUE, unready={"n2": 100})
    assert (seen.unready_nodes, seen.survivors.uids) == ({"n2": NodeState.UNDECIDED}, LEFT)
    asked = with_facts(seen.job, group=TorchrunGroup(START + DUE))
    late = see(asked, now=DUE + SURVIVOR_READ_SECONDS, unready={"n2": 100})
    assert late.unready_nodes == {"n2": NodeState.LOST}
    assert see(asked, now=DUE + SURVIVOR_READ_SECONDS - 1, unready={"n2": 100}).requeue_at == (
        START + DUE + SURVIVOR_READ_SECONDS,
    )


def test_nobody_waits_for_an_answer_where_a_node_is_out_of_service():
    for shown, incarnation in ((frozenset(), 2), (LEFT, 1)):
        job = job_of(asked=DUE, shown=shown)
        assert plan(job, KEEP, now=DUE, unready={"n2": -inf}).status.incarnation == incarnation


@pytest.mark.parametrize(
    ("pods", "fields"),
    [
        ((make_pod("master-0", node="n2"), *PODS[1:3]), {}),
        (PODS, {"spec": make_spec(minReplicas=4)}),
        (PODS, {"spec": make_spec(runtime={"mode": "Elastic"}), "last_answer_at": START}),
    ],
    ids=["without the master", "below the minimum", "Elastic"],
)
def test_no_log_is_asked_for_where_those_that_are_left_could_be_no_group(pods, fields):
    seen = see(job_of(pods, asked=None, **fields), now=DUE, unready={"n2": 100})
    assert seen.survivors is None
    assert seen.unready_nodes == {"n2": NodeState.LOST}


def test_pods_that_do_not_run_leave_or_are_on_other_unready_nodes_are_not_in_the_group():
    starts = make_pod("worker-3", phase="Pending", main=MainContainer())
    more = (starts, make_pod("worker-4", deleting_since=START + 90), make_pod("worker-5", node="n3"))
    seen = see(job_of((*PODS, *more)), now=DUE, unready={"n2": 100, "n3": 120})
    assert (seen.survivors.uids, seen.survivors.since) == (LEFT, START + 100)


def test_of_nodes_that_went_with_many_others_nobody_is_asked():
    kept = NodeOutage(unready=5, total=6, until=inf, kept_nodes=frozenset({"n2"}))
    assert see(job_of(node_outage=kept), now=DUE, unready={"n2": 100}).survivors is None


def test_the_pods_of_a_group_that_was_left_alone_are_a_job_like_any_other_afterwards():
    planned = after_loss(job_of(shown=LEFT))
    after = make_job(PODS[:3], status=planned.status)
    grown = plan(after, make_grant(keep=["master-0", "worker-0", "worker-1"], create=["worker-2"]), now=200)
    assert ([slot.index for slot in grown.slots], grown.creates.incarnation) == ([2], 1)
    assert grown.deletes == ()
