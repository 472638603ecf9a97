"""What is found out about one entry holds for the others like it, and for no other (38)."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import fields, replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.plan.allocation import admit, queues, scale_up_queues
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.allocation.equivalence import equivalence_key
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.allocation.pass_memo import KnownInfeasible, PassMemo, Question
from elastic_operator.plan.allocation.preemption import options
from elastic_operator.plan.allocation.preemption.candidates import Candidates
from elastic_operator.plan.allocation.rounds import serve
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.decisions import Slot
from elastic_operator.plan.facts.demand import FailedSize, JobDemand, Member, NodeRequest
from elastic_operator.plan.facts.eviction_limits import EvictionLimits, PreemptorKey
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from tests.plan.allocate.world import NOW, make_inputs, make_job, make_node, make_shape, make_team
from tests.plan.allocate.worlds import crowds
from tests.plan.quota.cases import make_foreign_pod, on

N8 = (make_node("n1", 8),)
MANY = 4
"""More than there are tiers: in each of them, one job of a group is tried and from then on asked by itself."""


FORGETFUL = (
    (PassMemo, "get", lambda *_: None),
    (KnownInfeasible, "covers", lambda *_: False),
    (scale_up_queues, "growth_key", lambda entry, _now: entry.demand.uid),
    (options, "equivalence_key", lambda state, entry: (equivalence_key(state, entry), entry.gang or entry.demand.uid)),
    (Candidates, "_running_in_team", lambda *_: []),
)
"""Each entry is asked by itself, and all nodes of its team are searched. Pods of a gang share their options (44)."""


def decided(inputs):
    allocation = allocate(inputs)
    return dict(allocation), allocation.nominations


@pytest.mark.parametrize("kind", ["minima", "growth", "places"])
@given(st.data())
def test_who_remembers_nothing_decides_the_same(kind, data):
    inputs = data.draw(crowds(kind))
    remembering = decided(inputs)
    with ExitStack() as forgetful:
        for changed in FORGETFUL:
            forgetful.enter_context(patch.object(*changed))
        assert decided(inputs) == remembering


def test_numbers_of_old_classes_are_dropped_and_two_classes_have_two_numbers(monkeypatch):
    monkeypatch.setattr(queues, "_MAX_CLASSES", 10)
    state = AllocationState(make_inputs(N8, ()))
    for cpu in range(2, 30):
        jobs = (make_job("same"), make_job("other", shape=make_shape(1, cpu=cpu)))
        state = state.renewed(make_inputs(N8, jobs))
        assert len({entry.equivalence_class for entry in state.queues.entries}) == 2
        assert len(state.queues._class_numbers) <= 10


IN_A_KEY = {
    "uid": "a key of its own, where earlier tries or evictions were for this entry",
    "namespace": "kind, by its team and account",
    "priority": "kind",
    "shape": "kind; a flavor's problem: the sizes of the entry; its lowest priority is not read of a preemptor",
    "preemptible": "kind",
    "sizes": "minimum; what the next size lacks",
    "members": "alone; what the next size lacks",
    "undelayed_size": "waits to grow",
    "may_grow_at": "waits to grow",
    "resize_cost": "waits to grow",
    "changed_at": "waits to grow",
    "failed": "failed size; its reason is for texts only",
    "bar": "may_preempt; which bar it is, is for texts only",
    "yields_until": "may_preempt",
    "waiting_since": "starves",
    "provisioning_pods": "alone",
    # of a foreign pod
    "demand": "its fields are above",
    "preempts": "kind",
    "reserved": "kind",
    "may_be_split": "kind",
    "gang": "a gang is served; limits on evictions",
}
NOT_IN_A_KEY = {
    "name": "for texts only",
    "avoided": "for texts only; the shapes exclude these nodes",
    "created": "the order in which entries are served",
    "is_admitted": "the order in which entries are served",
    "used_indices": "the indices of its new pods, chosen after all places",
    "wants_pods": "an entry that wants nothing is not tried",
    "unplannable": "such a pod has no entry, or is served before all keys",
    "nominated": "such a pod is served before all keys",
    "running_since": "whether its own pods may be preempted; not read of a preemptor",
    "node_request": "read of jobs with provisioning pods, which are alone, and after all places",
}


def test_each_field_of_an_entry_is_part_of_a_key_or_cannot_change_an_answer():
    """A new field is in one of these tables: a key that lacks it may deny a job its GPUs."""
    named = {field.name for kind in (JobDemand, ForeignPod) for field in fields(kind)}
    assert IN_A_KEY.keys() | NOT_IN_A_KEY.keys() == named
    assert not IN_A_KEY.keys() & NOT_IN_A_KEY.keys()


def replicas(inputs):
    allocation = allocate(inputs)
    return {uid: allocation[uid].assignment.replicas for uid in allocation}


@pytest.mark.parametrize(
    ("limits", "grown"),
    [
        (EvictionLimits(1, evicted_last_minute={"gone": PreemptorKey("red", "last")}, configured=frozenset()), 3),
        (EvictionLimits(9, 2, longest_waiting=PreemptorKey("red", "last"), reserved_evictions=2), 3),
        (EvictionLimits(1, evicted_last_minute={"gone": PreemptorKey("red", "other")}, configured=frozenset()), 1),
    ],
    ids=["it goes on", "the limit is kept for it", "it is like the others"],
)
def test_a_job_grows_that_the_limits_on_evictions_let_take_although_they_stop_one_before_it(limits, grown):
    jobs = (
        *(make_job(f"first{i}", 1, 3, team="red", on="n1", age=9) for i in range(MANY)),
        make_job("last", 1, 3, team="red", on="n1"),
        make_job("low", 1, 6, team="blue", on=on("n1", 6)),
    )
    teams, nodes = (make_team("red", 20), make_team("blue")), (make_node("n1", 7 + MANY),)
    found = replicas(make_inputs(nodes, jobs, teams=teams, eviction_limits=limits))
    assert (found["first0"], found["last"]) == (1, grown)


def test_a_job_before_the_one_that_waits_for_an_eviction_limit_grows_and_those_behind_do_not():
    jobs = (
        make_job("before", 1, 3, team="red", on="n1 n1", age=9),
        make_job("waits", 2, team="red", holds=True, age=5),
        *(make_job(f"behind{i}", 1, 2, team="red", on="n1") for i in range(MANY)),
        make_job("low", 1, 5, team="blue", on=on("n1", 5)),
    )
    limits, nodes = (
        EvictionLimits(2, evicted_last_minute={"gone": PreemptorKey("red", "other")}),
        (make_node("n1", 7 + MANY),),
    )
    inputs = make_inputs(nodes, jobs, teams=(make_team("red", 20), make_team("blue")), eviction_limits=limits)
    behind = {f"behind{i}": 1 for i in range(MANY)}
    assert replicas(inputs) == {"before": 3, "waits": 0, **behind, "low": 4}


def test_a_job_grows_that_may_take_whole_jobs_although_one_before_it_may_not():
    jobs = (
        make_job("first", 1, 2, team="red", on="n1", age=9),
        make_job("second", 1, 2, team="red", on="n1"),
        *(make_job(f"low{i}", team="blue", on="n1") for i in (1, 2)),
    )
    teams = (make_team("red", 4), make_team("blue"))
    state = AllocationState(make_inputs((make_node("n1", 4),), jobs, teams=teams))
    state.futile_preemptors = frozenset({"first"})
    serve(state)
    assert [state.queues.by_uid[uid].size for uid in ("first", "second")] == [1, 2]


def test_a_job_grows_although_one_before_it_leaves_the_limit_to_a_job_of_a_priority_in_between():
    elsewhere = make_shape(node_selector={"pool": "new"})
    waits = Member.at("waits", Slot("master", 0, None, True), elsewhere)
    jobs = (
        make_job("low", 1, 3, team="red", on="n1"),
        make_job("high", 1, 3, team="red", on="n1 n1", priority=9),
        make_job(
            "asks",
            2,
            team="red",
            priority=5,
            shape=elsewhere,
            node_request=NodeRequest(0.0),
            provisioning_pods=(waits,),
        ),
    )
    assert replicas(make_inputs(N8, jobs, teams=(make_team("red", borrow=5),)))["high"] == 3


def places(pods, jobs, nodes, *, guaranteed):
    teams = (make_team("a", guaranteed), make_team("b"))
    inputs = make_inputs(nodes, jobs, teams=teams, foreign_pods=tuple(pods))
    return {place.uid: place.node for place in allocate(inputs).nominations}


def test_a_gang_gets_a_place_beside_its_own_pod_although_a_pod_of_no_gang_may_not_have_it():
    reserved = make_foreign_pod("g0", gang="g", reserved="n1", nominated="n1")
    pods = (make_foreign_pod("alone", age=9), reserved, make_foreign_pod("g1", gang="g"))
    jobs = (make_job("low", team="b", on="n1"),)
    assert places(pods, jobs, (make_node("n1", 2),), guaranteed=4) == {"g0": "n1", "g1": "n1"}


def test_a_pod_keeps_its_node_although_one_before_it_got_none_in_this_pass(monkeypatch):
    monkeypatch.setattr(admit, "MAX_NOMINATIONS_PER_PASS", 1)
    last = make_foreign_pod("last", reserved="n2", nominated="n2")
    pods = (make_foreign_pod("first", age=9), make_foreign_pod("later", age=8), last)
    jobs = tuple(make_job(f"low{i}", team="b", on=f"n{i}") for i in (1, 2, 3))
    found = places(pods, jobs, tuple(make_node(f"n{i}", 1) for i in (1, 2, 3)), guaranteed=3)
    assert found.keys() == {"first", "last"}
    assert found["last"] == "n2"


def test_a_job_with_pods_gets_the_rest_of_its_minimum_although_one_without_pods_got_none():
    jobs = (
        make_job("without", 3, team="a", age=9, holds=True, preemptible=False),
        make_job("with", 3, team="a", on="n1 n1", preemptible=False),
    )
    inputs = make_inputs((make_node("n1", 4),), jobs, teams=(make_team("a", 4),))
    assert replicas(inputs) == {"without": 0, "with": 3}


def test_a_job_borrows_although_one_before_it_that_two_teams_preempted_may_not():
    """The job torn has no master, so its workers are preempted one by one (16)."""
    torn, pool = make_job("torn", 3, team="b", on="n1 n1 n1", age=9), make_shape(node_selector={"pool": "x"})
    jobs = (
        replace(torn, members=torn.members[1:]),
        make_job("fresh", 3, team="b", holds=True),
        *(make_job(f"owner{i}", team="a", shape=pool) for i in (1, 2)),
    )
    nodes, teams = (
        (make_node("n1", 2, labels={"pool": "x"}), make_node("n2", 3)),
        (make_team("a", 2), make_team("b", weight=0)),
    )
    assert replicas(make_inputs(nodes, jobs, teams=teams)) == {"torn": 0, "fresh": 3, "owner1": 1, "owner2": 1}


def test_a_gang_that_gets_nothing_keeps_no_smaller_one_from_its_places():
    nodes = tuple(make_node(f"n{i}", 2) for i in range(3))
    jobs = tuple(make_job(f"b{i}", team="b", on=f"n{i}", shape=make_shape(2)) for i in range(3))
    pods = [
        make_foreign_pod(f"{name}{i}", 2, gang=name, age=age)
        for name, n, age in (("g", 4, 9), ("h", 2, 1))
        for i in range(n)
    ]
    inputs = make_inputs(nodes, jobs, teams=(make_team("a", 12), make_team("b")))
    places = allocate(replace(inputs, foreign_pods=tuple(pods))).nominations
    assert {place.uid for place in places} == {"h0", "h1"}


def test_a_gang_that_may_be_split_gets_a_part_of_its_places_although_one_before_it_got_none():
    jobs = (make_job("low", team="a", on="n1"), make_job("fixed", 3, team="b", on=on("n1", 3), preemptible=False))
    pods = tuple(
        make_foreign_pod(f"{gang}{i}", gang=gang, priority=1 - i, may_be_split=gang == "h", preempts=False)
        for gang in "gh"
        for i in (0, 1)
    )
    inputs = make_inputs((make_node("n1", 4),), jobs, teams=(make_team("a"), make_team("b")), foreign_pods=pods)
    assert {place.uid for place in allocate(inputs).nominations} == {"h0"}


def test_an_option_is_looked_at_again_where_a_job_goes_that_went_for_another_node():
    """The job low is preempted for p0. So p1 needs no more than a worker of wide on n2, and last stays."""
    jobs = (
        make_job("low", 4, team="b", on="n1 n1 n1 n2"),
        make_job("fixed", team="b", on="n2", preemptible=False),
        make_job("last", team="a", on="n1"),
        make_job("wide", 1, 2, team="a", on="n2 n2"),
    )
    pods = tuple(make_foreign_pod(f"p{i}", 2, gang="p", priority=1, preempts=False) for i in (0, 1))
    nodes, teams = (make_node("n1", 4), make_node("n2", 4)), (make_team("a", 8), make_team("b", weight=0))
    places = allocate(make_inputs(nodes, jobs, teams=teams, foreign_pods=pods)).nominations
    assert [(place.uid, place.node) for place in places] == [("p0", "n1"), ("p1", "n2")]


LOW = make_job("low", 1, 4, team="b", on=on("n1", 4))
A_AND_B = (make_team("a"), make_team("b"))


@pytest.mark.parametrize("pods", [1, 2], ids=["the same", "more"])
def test_each_job_that_waits_for_an_eviction_limit_says_so_though_only_one_was_tried(pods):
    jobs = (make_job("first", age=9, team="a"), *(make_job(f"later{i}", pods, team="a") for i in range(3)), LOW)
    limits = EvictionLimits(0)
    found = allocate(make_inputs((make_node("n1", 4),), jobs, teams=A_AND_B, eviction_limits=limits))
    assert {found[job.uid].size_reason.code for job in jobs[:-1]} == {"ReclaimTooLarge"}
    assert all(f"{pods} pod" in found[f"later{i}"].message for i in range(3))


def test_a_job_that_no_limit_on_evictions_keeps_waiting_any_more_does_not_say_so():
    """At first a limit keeps two jobs waiting. Once a job of b has taken from its own team, there is room for one."""
    jobs = (
        make_job("first", 2, team="a"),
        make_job("second", 2, team="a", priority=-1),
        make_job("preemptor", 2, team="b", holds=True),
        make_job("low", 1, 4, team="b", on="n0 n0 n1 n1"),
        make_job("fixed", 2, team="b", on="n2 n2", preemptible=False),
    )
    nodes = [make_node(f"n{i}", 2) for i in range(3)]
    found = allocate(make_inputs(nodes, jobs, teams=A_AND_B, eviction_limits=EvictionLimits(per_cluster=1)))
    assert found["first"].assignment.replicas == 2
    assert found["second"].size_reason.code == "HigherPriorityJobs"


def test_a_job_gets_room_under_a_limit_on_evictions_that_became_free_in_an_earlier_round():
    jobs = (
        make_job("waits", 1, 4, team="a"),
        make_job("other", 1, 4, team="b", failed=FailedSize(2, NOW + 9)),
        *(make_job(f"run{i}", 1, 4, team="a", on="n0", may_grow_at=NOW + 9) for i in range(2)),
        make_job("low", 1, 4, team="b", on="n0 n1 n1 n1"),
    )
    limits = EvictionLimits(per_cluster=1, evicted_last_minute={"gone": PreemptorKey("a", "z")})
    pods = (make_foreign_pod("z", preempts=False),)
    nodes = [make_node(f"n{i}", 3) for i in range(2)]
    inputs = make_inputs(nodes, jobs, teams=A_AND_B, foreign_pods=pods, eviction_limits=limits)
    assert replicas(inputs)["waits"] == 1


def test_the_one_for_which_a_limit_is_kept_does_not_wait_behind_one_that_may_not_use_it():
    jobs = (make_job("new", 1, team="a", age=9), make_job("first", 1, team="a"), LOW)
    limits = EvictionLimits(9, 1, longest_waiting=PreemptorKey("a", "first"), reserved_evictions=1)
    inputs = make_inputs((make_node("n1", 4),), jobs, teams=A_AND_B, eviction_limits=limits)
    assert replicas(inputs) == {"new": 0, "first": 1, "low": 3}


def test_an_answer_is_void_once_something_has_changed_and_holds_again_once_that_is_undone():
    journal = Journal()
    memo = PassMemo(journal)
    asked, other = Question.REQUESTED_GPUS, Question.PREEMPTIBLE_GPUS
    memo.put(asked, "key", 7)
    assert [memo.get(*at) for at in ((asked, "key"), (asked, "other"), (other, "key"))] == [7, None, None]
    journal.do(lambda: None, undo=lambda: None)
    assert memo.get(asked, "key") is None
    journal.roll_back()
    assert memo.get(asked, "key") == 7
    journal.do(lambda: None, undo=lambda: None)
    assert memo.get(asked, "key") is None


def test_an_answer_is_void_once_something_has_changed_that_cannot_be_undone():
    journal = Journal()
    memo = PassMemo(journal)
    memo.put(Question.REFUSED, "key")
    journal.renumber()
    assert memo.get(Question.REFUSED, "key") is None


def test_as_many_pods_as_did_not_fit_and_more_are_too_many():
    known = KnownInfeasible()
    known.add("key", 3)
    copy = known.copy()
    copy.add("key", 2)
    assert [known.covers("key", count) for count in (2, 3, 4)] == [False, True, True]
    assert (copy.covers("key", 2), copy.covers("other", 9)) == (True, False)
    copy.add("key", 5)
    assert copy.covers("key", 2)
