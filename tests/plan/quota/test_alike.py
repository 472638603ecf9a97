"""What is found out about one entry holds for the others like it, and for no other (38)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.allocation.pass_memo import PassMemo, TooMany
from elastic_operator.plan.allocation.rounds import serve
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.snapshot import EvictionLimits, Member, Taker
from tests.plan.allocate.world import make_job, make_node, make_shape, make_snapshot, make_team
from tests.plan.quota.cases import make_pending, on

N8 = (make_node("n1", 8),)


def replicas(snapshot):
    allocation = allocate(snapshot)
    return {uid: allocation[uid].assignment.replicas for uid in allocation}


@pytest.mark.parametrize(
    ("limits", "grown"),
    [
        (EvictionLimits(1, gone={"gone": Taker("red", "second")}, firm=frozenset()), {"first": 1, "second": 3}),
        (EvictionLimits(9, 2, first=Taker("red", "second"), kept=2), {"first": 1, "second": 3}),
        (EvictionLimits(1, gone={"gone": Taker("red", "other")}, firm=frozenset()), {"first": 1, "second": 1}),
    ],
    ids=["it goes on", "the limit is kept for it", "it is like the first"],
)
def test_a_job_grows_that_the_limits_on_evictions_let_take_although_they_stop_one_before_it(limits, grown):
    jobs = (
        make_job("first", 1, 3, team="red", on="n1", age=9),
        make_job("second", 1, 3, team="red", on="n1"),
        make_job("low", 1, 6, team="blue", on=on("n1", 6)),
    )
    teams = (make_team("red", 6), make_team("blue"))
    assert replicas(make_snapshot(N8, jobs, teams=teams, eviction_limits=limits)).items() >= grown.items()


def test_a_job_grows_that_ranks_before_the_one_that_waits_for_a_limit_although_one_behind_that_may_not():
    jobs = (
        make_job("before", 1, 3, team="red", on="n1 n1", age=9),
        make_job("waits", 2, team="red", holds=True, age=5),
        make_job("behind", 1, 2, team="red", on="n1"),
        make_job("low", 1, 5, team="blue", on=on("n1", 5)),
    )
    limits = EvictionLimits(2, gone={"gone": Taker("red", "other")})
    snapshot = make_snapshot(N8, jobs, teams=(make_team("red", 7), make_team("blue")), eviction_limits=limits)
    assert replicas(snapshot) == {"before": 3, "waits": 0, "behind": 1, "low": 4}


def test_a_job_grows_that_may_take_whole_jobs_although_one_before_it_may_not():
    jobs = (
        make_job("first", 1, 2, team="red", on="n1", age=9),
        make_job("second", 1, 2, team="red", on="n1"),
        *(make_job(f"low{i}", team="blue", on="n1") for i in (1, 2)),
    )
    teams = (make_team("red", 4), make_team("blue"))
    state = AllocationState(make_snapshot((make_node("n1", 4),), jobs, teams=teams))
    state.in_vain = frozenset({"first"})
    serve(state)
    assert [state.roster.of(uid).size for uid in ("first", "second")] == [1, 2]


def test_a_job_grows_although_one_before_it_leaves_the_limit_to_a_job_of_a_priority_in_between():
    elsewhere = make_shape(node_selector={"pool": "new"})
    waits = Member.of("waits", "master", 0, None, elsewhere)
    jobs = (
        make_job("low", 1, 3, team="red", on="n1"),
        make_job("high", 1, 3, team="red", on="n1 n1", priority=9),
        make_job("asks", 2, team="red", priority=5, shape=elsewhere, nodes_from=0.0, provisioning_pods=(waits,)),
    )
    assert replicas(make_snapshot(N8, jobs, teams=(make_team("red", borrow=5),)))["high"] == 3


def test_a_gang_that_gets_nothing_keeps_no_smaller_one_from_its_places():
    nodes = tuple(make_node(f"n{i}", 2) for i in range(3))
    jobs = tuple(make_job(f"b{i}", team="b", on=f"n{i}", shape=make_shape(2)) for i in range(3))
    pods = [
        make_pending(f"{name}{i}", 2, gang=name, age=age)
        for name, n, age in (("g", 4, 9), ("h", 2, 1))
        for i in range(n)
    ]
    snapshot = make_snapshot(nodes, jobs, teams=(make_team("a", 12), make_team("b")))
    places = allocate(replace(snapshot, pending_pods=tuple(pods))).nominations
    assert {place.uid for place in places} == {"h0", "h1"}


def test_an_answer_is_void_once_something_has_changed_and_holds_again_once_that_is_undone():
    journal = Journal()
    memo = PassMemo[str](journal)
    memo.put("key", "answer")
    assert (memo.get("key"), memo.get("other")) == ("answer", None)
    journal.do(lambda: None, undo=lambda: None)
    assert memo.get("key") is None
    journal.roll_back()
    assert memo.get("key") == "answer"
    journal.do(lambda: None, undo=lambda: None)
    assert memo.get("key") is None


def test_as_many_pods_as_did_not_fit_and_more_are_too_many():
    known = TooMany()
    known.add("key", 3)
    copy = known.copy()
    copy.add("key", 2)
    assert [known.covers("key", count) for count in (2, 3, 4)] == [False, True, True]
    assert (copy.covers("key", 2), copy.covers("other", 9)) == (True, False)
    copy.add("key", 5)
    assert copy.covers("key", 2)
