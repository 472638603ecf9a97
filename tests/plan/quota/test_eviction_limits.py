"""The limits on evictions, as part of the allocation: what counts, for whom, and who is said to wait for them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.allocation.check_evictions import EvictionCount
from elastic_operator.plan.facts.eviction_limits import EvictionLimit, EvictionLimits, PreemptorKey
from elastic_operator.plan.facts.team import Flavor, Quota
from tests.plan.allocate.world import GPU, make_inputs, make_job, make_node, make_shape, make_team
from tests.plan.quota.cases import make_foreign_pod, on

N8 = (make_node("n1", 8),)
TEAMS = (make_team("red", 4), make_team("blue"))


def replicas(allocation):
    return {uid: allocation[uid].assignment.replicas for uid in allocation}


def test_who_gets_a_place_in_the_same_pass_after_all_does_not_wait_for_a_limit():
    jobs = (
        make_job("large", 4, team="red"),
        make_job("low", 8, team="blue", on=on("n1", 8), priority=-1),
        make_job("high", 2, team="blue", priority=1),
    )
    found = allocate(make_inputs(N8, jobs, teams=TEAMS, eviction_limits=EvictionLimits(2, 100)))
    assert replicas(found) == {"large": 4, "low": 0, "high": 2}
    assert found.over_eviction_limit == ()
    assert found.evicted_for == {}


def test_a_gang_that_gets_its_places_in_the_same_pass_does_not_wait_for_a_limit():
    nodes = (make_node("n1", 8, labels={"kind": "a"}), make_node("n2", 1, labels={"kind": "b"}))
    flavors = tuple(Flavor(name, (GPU,), {"kind": name}) for name in "ab")
    teams = (
        make_team("red", quotas={name: Quota(guaranteed=4) for name in "ab"}),
        make_team("blue", quotas={name: Quota() for name in "ab"}),
    )
    on_a = {"shape": make_shape(node_selector={"kind": "a"}), "flavor": "a"}
    jobs = (
        make_job("low", 8, team="blue", on=on("n1", 8), priority=-1, **on_a),
        make_job("high", 2, team="blue", priority=1, **on_a),
    )
    for first in "ab":  # a gang may have pods of two flavors: then its pods use two accounts
        gang = [
            make_foreign_pod(
                f"p{i}",
                team="red",
                age=100 - i,
                shape=make_shape(node_selector={"kind": flavor}),
                flavor=flavor,
                gang="red/g",
            )
            for i, flavor in enumerate(f"{first}aaa")
        ]
        found = allocate(
            make_inputs(
                nodes,
                jobs,
                teams=teams,
                flavors=flavors,
                foreign_pods=tuple(gang),
                eviction_limits=EvictionLimits(2, 100),
            )
        )
        assert replicas(found) == {"low": 0, "high": 2}
        assert len(found.nominations) == 4
        assert found.evicted_for == {}
        assert found.over_eviction_limit == ()


def test_an_evicted_pod_that_is_preempted_again_counts_once():
    jobs = (make_job("large", 4, team="red"), make_job("low", 1, 8, team="blue", on=on("n1", 8)))
    first = allocate(make_inputs(N8, jobs, teams=TEAMS, eviction_limits=EvictionLimits(4, 4)))
    assert replicas(first) == {"large": 4, "low": 4}
    again = allocate(
        make_inputs(N8, jobs, teams=TEAMS, eviction_limits=EvictionLimits(4, 4, evicted_last_minute=first.evicted_for))
    )
    assert again.evicted_for == first.evicted_for
    assert again.over_eviction_limit == ()


def test_what_went_for_another_team_counts_for_all_together_only():
    jobs = (make_job("large", 4, team="red"), make_job("low", 1, 8, team="blue", on=on("n1", 8)))
    gone = {f"gone-{i}": PreemptorKey("green", "other") for i in range(3)}
    for limits, served in (
        (EvictionLimits(4, 7, evicted_last_minute=gone), 4),
        (EvictionLimits(4, 6, evicted_last_minute=gone), 0),
    ):
        found = allocate(make_inputs(N8, jobs, teams=TEAMS, eviction_limits=limits))
        assert found["large"].assignment.replicas == served
        exceeded = [one.hit.exceeded for one in found.over_eviction_limit]
        assert exceeded == ([] if served else [EvictionLimit.PER_CLUSTER])


def test_a_limit_that_nobody_set_lets_one_preemptor_of_a_team_within_its_guarantee_pass():
    jobs = (make_job("large", 4, team="red"), make_job("low", 1, 8, team="blue", on=on("n1", 8)))
    others = {"gone": PreemptorKey("red", "another")}
    own = {"gone": PreemptorKey("red", "large")}
    for gone, served in (({}, 4), (own, 4), (others, 0)):
        found = allocate(
            make_inputs(
                N8,
                jobs,
                teams=TEAMS,
                eviction_limits=EvictionLimits(2, 2, evicted_last_minute=gone, configured=frozenset()),
            )
        )
        assert found["large"].assignment.replicas == served
        assert not any(one.hit.needs_higher_limit for one in found.over_eviction_limit)


def test_no_other_preemptor_takes_the_part_reserved_for_the_longest_waiting_one():
    jobs = (
        make_job("gang", 4, team="red"),
        make_job("first", 1, team="blue"),
        make_job("low", 1, 8, team="green", on=on("n1", 8)),
    )
    teams = (make_team("red", 4), make_team("blue", 1), make_team("green"))
    gone = {"gone": PreemptorKey("blue", "other")}
    limits = EvictionLimits(
        4, 4, evicted_last_minute=gone, longest_waiting=PreemptorKey("red", "gang"), reserved_evictions=4
    )
    found = allocate(make_inputs(N8, jobs, teams=teams, eviction_limits=limits))
    assert replicas(found) == {"gang": 0, "first": 0, "low": 8}
    found = allocate(make_inputs(N8, jobs, teams=teams, eviction_limits=replace(limits, evicted_last_minute={})))
    assert replicas(found) == {"gang": 4, "first": 0, "low": 4}
    assert next(one.hit.reason.message for one in found.over_eviction_limit).endswith("leaves 0 for this minute. Wait.")


def test_a_job_behind_another_of_its_team_is_told_which_limit_that_one_waits_for():
    """By default the limit per team is larger, and a raise of it would not help."""
    jobs = (
        make_job("first", 3, team="red", age=9),
        make_job("second", 1, team="red", age=5),
        make_job("low", 1, 8, team="blue", on=on("n1", 8)),
    )
    gone = {f"gone-{i}": PreemptorKey("green", "other") for i in range(2)}
    limits = EvictionLimits(16, 4, evicted_last_minute=gone)
    found = allocate(make_inputs(N8, jobs, teams=TEAMS, eviction_limits=limits))
    assert replicas(found) == {"first": 0, "second": 0, "low": 8}
    first, second = (one.hit for one in found.over_eviction_limit)
    assert first.reason.message == (
        "3 pods of others would have to be evicted for it at once, and reclaim.maxEvictionsPerMinute (4) leaves 2 for"
        " this minute. Wait."
    )
    assert second.reason.message == (
        "1 pod of others would have to be evicted for it, but an earlier job or pod of its team waits for"
        " reclaim.maxEvictionsPerMinute (4) first. Wait."
    )
    assert found["second"].message.endswith(second.reason.message)
    assert [one.hit.is_behind for one in found.over_eviction_limit] == [False, True]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([None, ("red", 1), ("red", 2), ("blue", 3)]))))
def test_a_pod_counts_once_for_the_preemptor_that_gets_its_room(steps):
    gone = {"a": PreemptorKey("red", "1"), "e": PreemptorKey("blue", "3")}
    evictions, going = EvictionCount(gone), {}
    for uid, preemptor in steps:
        preemptor = preemptor and PreemptorKey(preemptor[0], str(preemptor[1]))
        evictions.put(uid, preemptor)
        going.pop(uid, None)
        going |= {uid: preemptor} if preemptor else {}
        total = list({**gone, **going}.values())
        assert evictions.evicted == going
        assert evictions.per_cluster == len(total)
        assert evictions.of_team["red"] == sum(one.team == "red" for one in total)
        assert evictions.of_preemptor[PreemptorKey("red", "2")] == total.count(PreemptorKey("red", "2"))
