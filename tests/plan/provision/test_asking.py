"""Which jobs ask for new nodes, with which pods, and who is not touched by it."""

from dataclasses import replace

import pytest

from elastic_api.status import SizeReason
from elastic_operator.plan.allocation import node_requests
from elastic_operator.plan.allocation.allocate import Allocator, allocate
from elastic_operator.plan.change_times import ChangeTimes
from elastic_operator.plan.facts.demand import NodeRequest
from tests.plan.allocate.world import (
    NOW,
    grants,
    make_inputs,
    make_job,
    make_node,
    make_shape,
    make_team,
    notation,
    outcome,
)
from tests.plan.provision.places import asking, with_pods_made
from tests.plan.quota.cases import make_foreign_pod

FULL = [make_node("n1", 2, used=2)]


def test_a_minimum_that_lacks_only_nodes_requests_them_by_pods_without_a_planned_node():
    assert outcome(FULL, [asking(low=2, high=4)]) == {"j": "+m0@? +w0@?"}


def test_a_job_asks_for_nodes_although_part_of_its_minimum_would_fit():
    assert outcome([make_node("n1", 1)], [asking(low=2)]) == {"j": "+m0@? +w0@?"}


def test_a_job_asks_for_nodes_although_there_are_none():
    assert outcome([], [asking(low=2)]) == {"j": "+m0@? +w0@?"}


def test_without_autoscaled_pools_nobody_asks():
    assert outcome(FULL, [make_job("j", 2)]) == {"j": ""}


def test_nobody_asks_before_the_delay_is_over_and_the_time_is_told():
    job = replace(asking(low=2), node_request=NodeRequest(NOW + 30))
    grant = grants(FULL, [job])["j"]
    assert (notation(grant), grant.size_reason.code, grant.requeue_at) == ("", SizeReason.INSUFFICIENT_NODES, NOW + 30)
    assert "New nodes are requested from 1970-01-01T00:17:10Z on." in grant.message


def test_a_pass_is_due_when_the_delay_is_over():
    assert (
        ChangeTimes().next(make_inputs(FULL, [replace(asking(low=2), node_request=NodeRequest(NOW + 30))])) == NOW + 30
    )


def test_what_fits_is_placed_and_not_asked_for():
    assert outcome([make_node("n1", 2)], [asking(low=2)]) == {"j": "+m0@n1 +w0@n1"}


def test_growth_does_not_ask():
    assert outcome([make_node("n1", 2)], [asking(low=2, high=4, on="n1 n1")]) == {"j": "m0 w0"}


def test_a_job_that_lost_pods_asks_for_those_it_lacks():
    assert outcome([make_node("n1", 2)], [asking(low=4, on="n1 n1")]) == {"j": "m0 w0 +w1@? +w2@?"}


def test_the_reason_says_what_is_wanted_what_there_is_and_what_comes_next():
    grant = grants(FULL, [asking(low=2, waits="m0 w0")])["j"]
    assert grant.size_reason.code == SizeReason.WAITING_FOR_NODES
    assert grant.message == (
        "The job gets 0 of 2 pods. 2 more need 1 nvidia.com/gpu each; 1 usable node has 0 of 2 GPUs free. Its pods wait"
        " for the cluster's autoscaler to add nodes until 1970-01-01T00:31:40Z. If it adds none, the operator"
        " deletes the pods and retries later."
    )


def test_without_an_answer_to_any_creation_a_job_states_no_time_until_which_its_pods_wait():
    """The time counts from the creation of the first pod. The status said 1970-01-01T00:00:00Z."""
    inputs = make_inputs(FULL, [asking(low=2)])
    grant = allocate(with_pods_made(inputs, allocate(inputs)))["j"]
    assert (notation(grant), grant.size_reason.code) == ("m0 w0", SizeReason.WAITING_FOR_NODES)
    assert "wait for the cluster's autoscaler to add nodes. If it adds none" in grant.message


# -- quota -------------------------------------------------------------------------------------------------------------


def test_a_job_beyond_its_teams_limit_does_not_ask():
    team = make_team("team-a", 1, borrow=0)
    grant = grants(FULL, [asking(low=2)], teams=[team])["j"]
    assert (notation(grant), grant.size_reason.code) == ("", SizeReason.BORROWING_DISABLED)


def test_two_jobs_of_a_team_do_not_ask_for_more_than_its_limit_together():
    team = make_team("team-a", 2, borrow=1)
    jobs = [asking("old", 2, age=9), asking("new", 2)]
    found = grants(FULL, jobs, teams=[team])
    assert {uid: notation(grant) for uid, grant in found.items()} == {"old": "+m0@? +w0@?", "new": ""}
    assert "uses 0, and 2 more are for pods that wait for new nodes." in found["new"].message


@pytest.mark.parametrize("more", [{"borrow": 1}, {"borrow": 0}], ids=["borrows", "does not borrow"])
def test_if_only_requests_keep_a_job_from_the_limit_a_higher_priority_is_advised_and_helps(more):
    team = make_team("team-a", 3 - more["borrow"], **more)
    jobs = [asking("old", 2, age=9), asking("new", 2)]
    assert grants(FULL, jobs, teams=[team])["new"].message.endswith(" Wait, or give the job a higher priority.")
    higher = [jobs[0], asking("new", 2, priority=1)]
    assert outcome(FULL, higher, teams=[team]) == {"old": "", "new": "+m0@? +w0@?"}


def test_if_the_team_s_use_keeps_a_job_from_the_limit_the_limit_is_named_as_too_low():
    jobs = [asking("old", 2, age=9), asking("new", 3)]
    message = grants(FULL, jobs, teams=[make_team("team-a", 2, borrow=0)])["new"].message
    assert message.endswith(" Raise borrowing.limit or the guarantee there, or wait.")


def test_a_limit_above_the_team_counts_too():
    teams = [make_team("dep", 2, borrow=0), make_team("a", 2, parent="dep"), make_team("b", 2, parent="dep")]
    jobs = [asking("ja", 2, team="a", age=9), asking("jb", 2, team="b")]
    assert outcome(FULL, jobs, teams=teams) == {"ja": "+m0@? +w0@?", "jb": ""}


def test_a_job_that_is_not_preemptible_asks_within_the_guarantee_only():
    team = make_team("team-a", 3)
    jobs = [asking("one", 2, preemptible=False, age=9), asking("two", 2, preemptible=False)]
    assert outcome(FULL, jobs, teams=[team]) == {"one": "+m0@? +w0@?", "two": ""}


def test_a_job_with_more_gpus_than_one_job_may_have_does_not_ask():
    assert outcome(FULL, [asking(low=2)], teams=[make_team("team-a", max_gpus_per_job=1)]) == {"j": ""}


def test_gpus_kept_for_their_owner_cause_no_request_which_the_scheduler_would_place_on_them():
    teams = [make_team("owner", 2, lend=0), make_team("team-a", 0)]
    assert outcome([make_node("n1", 2)], [asking(low=2)], teams=teams) == {"j": ""}
    assert outcome([make_node("n1", 2, used=2, by="owner")], [asking(low=2)], teams=teams) == {"j": "+m0@? +w0@?"}


def test_a_team_may_borrow_new_nodes_while_nobody_could_put_its_pods_where_gpus_are_kept():
    teams = [make_team("owner", 4, lend=0), make_team("team-a", 0)]
    nodes = [make_node("n1", 2, used_cpu=64)]
    assert outcome(nodes, [asking(low=2)], teams=teams) == {"j": "+m0@? +w0@?"}


def test_a_job_of_higher_priority_takes_the_limit_from_one_that_only_asks():
    nodes = [make_node("n1", 4, used=2)]
    low = asking("low", 3, waits="m0 w0 w1")
    high = make_job("high", 2, priority=1)
    team = make_team("team-a", 3, borrow=0)
    assert outcome(nodes, [low, high], teams=[team]) == {"low": "-w1 -w0 -m0", "high": "+m0@n1 +w0@n1"}


def test_a_job_of_higher_priority_does_so_by_a_weaker_right_too():
    nodes = [make_node("n1", 2), make_node("n2", 2)]
    low = asking("low", 1, waits="m0", shape=make_shape(3))
    high = make_job("high", 4, priority=1)
    found = outcome(nodes, [low, high], teams=[make_team("team-a", 3, borrow=1)])
    assert found == {"low": "-m0", "high": "+m0@n1 +w0@n1 +w1@n2 +w2@n2"}


def test_a_younger_job_does_not_take_the_limit_from_one_that_asks():
    nodes = [make_node("n1", 4, used=2)]
    jobs = [asking("old", 3, waits="m0 w0 w1", age=9), make_job("new", 2)]
    assert outcome(nodes, jobs, teams=[make_team("team-a", 3, borrow=0)]) == {"old": "m0 w0 w1", "new": ""}


def test_growth_does_not_take_the_limit_from_a_job_that_asks():
    jobs = [asking("asks", 2, waits="m0 w0", shape=make_shape(2)), make_job("grows", 1, 4, on="n1")]
    team = make_team("team-a", 6, borrow=0)
    found = grants([make_node("n1", 4)], jobs, teams=[team])
    assert {uid: notation(grant) for uid, grant in found.items()} == {"asks": "m0 w0", "grows": "m0 +w0@n1"}
    assert "uses 2, and 4 more are for pods that wait for new nodes; borrowing is off" in found["grows"].message


def test_what_a_team_asks_for_keeps_no_other_team_from_the_limit_of_both():
    teams = [make_team("dep", 4, borrow=0), make_team("a", 2, parent="dep"), make_team("b", 2, parent="dep")]
    jobs = [
        asking("ja", 4, team="a", waits="m0 w0 w1 w2", shape=make_shape(1, cpu=9), age=9),
        make_job("jb", 1, team="b"),
    ]
    nodes = [make_node("n1", 1, cpu=8)]
    assert outcome(nodes, jobs, teams=teams) == {"ja": "-w2 -w1 -w0 -m0", "jb": "+m0@n1"}


def test_pods_that_may_not_ask_any_more_keep_nobody_from_the_limit():
    jobs = [asking("asks", 2, waits="m0 w0", preemptible=False, age=9), make_job("new", 2)]
    found = outcome([make_node("n1", 2)], jobs, teams=[make_team("team-a", 1, borrow=2)])
    assert found == {"asks": "-w0 -m0", "new": "+m0@n1 +w0@n1"}


def test_a_job_that_is_suspended_does_not_ask():
    assert outcome([make_node("n1", 2)], [replace(asking(low=2, on="n1"), wants_pods=False)]) == {"j": "-m0"}


def test_who_did_not_ask_before_asks_in_the_pass_in_which_it_may():
    early = make_inputs(FULL, [replace(asking(low=2), node_request=NodeRequest(NOW + 30))])
    allocator = Allocator()
    assert notation(allocator.allocate(early)["j"]) == ""
    assert notation(allocator.allocate(replace(early, now=NOW + 30))["j"]) == "+m0@? +w0@?"


def test_what_waiting_jobs_ask_for_is_summed_up_once_and_only_where_the_limit_is_near(monkeypatch):
    looked_at, may_request_nodes = [], node_requests.may_request_nodes
    monkeypatch.setattr(
        node_requests, "may_request_nodes", lambda state, one: looked_at.append(one) or may_request_nodes(state, one)
    )
    jobs = [asking(f"asks-{number}", 2, waits="m0 w0") for number in range(50)]
    grants(FULL, jobs, teams=[make_team("team-a", 1000)])
    far = len(looked_at)
    grants(FULL, jobs, teams=[make_team("team-a", 90, borrow=0)])
    assert far <= 2 * len(jobs)
    assert len(looked_at) - far <= 10 * len(jobs), "a few times each, not once for each other one"


# -- others ------------------------------------------------------------------------------------------------------------


def test_nobody_loses_a_pod_for_pods_that_wait_for_nodes():
    """Entitled it would be: it takes what is its own once its pods are taken back."""
    teams = [make_team("team-a", 2), make_team("b", 0)]
    nodes = [make_node("n1", 2)]
    runs = make_job("runs", 2, team="b", on="n1 n1")
    assert outcome(nodes, [asking(low=2, waits="m0 w0"), runs], teams=teams) == {"j": "m0 w0", "runs": "m0 w0"}
    assert outcome(nodes, [asking(low=2), runs], teams=teams) == {"j": "~m0@n1 ~w0@n1", "runs": "-w0 -m0"}


def test_a_job_that_does_not_wait_takes_what_one_like_it_left_since_it_waits():
    teams = [make_team("team-a", 2), make_team("b", 0)]
    jobs = [asking("asks", 2, waits="m0 w0", age=9), make_job("new", 2), make_job("runs", 2, team="b", on="n1 n1")]
    found = outcome([make_node("n1", 2)], jobs, teams=teams)
    assert found == {"asks": "-w0 -m0", "new": "~m0@n1 ~w0@n1", "runs": "-w0 -m0"}


def test_what_a_team_asks_for_does_not_make_its_running_pods_anybodys_prey():
    teams = [make_team("team-a", 2), make_team("b", 2)]
    nodes = [make_node("n1", 2), make_node("n2", 2, used=2, by="b")]
    jobs = [make_job("runs", 2, on="n1 n1"), asking("asks", 2, waits="m0 w0"), make_job("wants", 1, team="b")]
    assert outcome(nodes, jobs, teams=teams)["runs"] == "m0 w0"


def test_others_grow_into_room_that_does_not_suit_the_pods_that_wait():
    nodes = [make_node("n1", 4)]
    jobs = [asking("asks", 1, waits="m0", shape=make_shape(8)), make_job("grows", 1, 4, on="n1", team="b")]
    assert outcome(nodes, jobs) == {"asks": "m0", "grows": "m0 +w0@n1 +w1@n1 +w2@n1"}


def test_room_that_appears_on_a_node_is_left_to_the_pods_that_wait():
    nodes = [make_node("n1", 4)]
    jobs = [asking("asks", 2, waits="m0 w0", age=9), make_job("grows", 1, 4, on="n1")]
    assert outcome(nodes, jobs) == {"asks": "m0 w0", "grows": "m0 +w0@n1"}


def test_the_reason_then_is_the_scheduler():
    grant = grants([make_node("n1", 4)], [asking(low=2, high=4, waits="m0 w0")])["j"]
    assert (notation(grant), grant.size_reason.code) == ("m0 w0", SizeReason.WAITING_FOR_NODES)
    assert "the scheduler has not placed them yet" in grant.message


def test_pods_are_withdrawn_while_room_is_made_for_others_that_they_would_take():
    teams = [make_team("team-a", 0), make_team("b", 0), make_team("c", 2)]
    nodes = [make_node("n1", 2)]
    jobs = [
        asking("asks", 2, waits="m0 w0"),
        make_job("loses", 2, team="b", on="n1 n1"),
        make_job("takes", 2, team="c"),
    ]
    found = grants(nodes, jobs, teams=teams)
    assert {uid: notation(grant) for uid, grant in found.items()} == {
        "asks": "-w0 -m0",
        "loses": "-w0 -m0",
        "takes": "~m0@n1 ~w0@n1",
    }
    assert (found["asks"].size_reason.code, "room is held" in found["asks"].message) == (
        SizeReason.WAITING_FOR_NODES,
        True,
    )


def test_they_go_on_waiting_while_room_is_made_that_they_would_not_fit():
    teams = [make_team("team-a", 0), make_team("b", 0), make_team("c", 2)]
    jobs = [
        asking("asks", 1, waits="m0", shape=make_shape(4)),
        make_job("loses", 2, team="b", on="n1 n1"),
        make_job("takes", 2, team="c"),
    ]
    found = outcome([make_node("n1", 2)], jobs, teams=teams)
    assert (found["asks"], found["takes"]) == ("m0", "~m0@n1 ~w0@n1")


def test_pods_are_withdrawn_while_pods_are_evicted_for_a_foreign_pod():
    inputs = make_inputs([make_node("n1", 1, leaving=1)], [asking("asks", 2, waits="m0 w0")])
    pod = make_foreign_pod("r", nominated="n1", team="b")
    assert notation(allocate(replace(inputs, foreign_pods=(pod,)))["asks"]) == "-w0 -m0"


def test_nobody_begins_to_ask_while_a_foreign_pod_is_about_to_be_bound():
    inputs = make_inputs([make_node("n1", 1)], [asking("asks", 2)])
    pod = make_foreign_pod("r", nominated="n1", team="b")
    assert notation(allocate(replace(inputs, foreign_pods=(pod,)))["asks"]) == ""


def test_nor_where_other_gpus_are_kept_for_their_owners():
    teams = [make_team("owner", 2, lend=0), make_team("team-a", 0), make_team("b", 1)]
    inputs = make_inputs([make_node("n1", 1)], [asking("asks", 2)], teams=teams)
    pod = make_foreign_pod("r", nominated="n1", team="b")
    assert notation(allocate(replace(inputs, foreign_pods=(pod,)))["asks"]) == ""


def test_pods_that_wait_have_left_the_room_alone_that_is_free():
    inputs = make_inputs([make_node("n1", 1)], [asking("asks", 2, waits="m0 w0")])
    pod = make_foreign_pod("r", nominated="n1", team="b")
    assert notation(allocate(replace(inputs, foreign_pods=(pod,)))["asks"]) == "m0 w0"


def test_nobody_begins_to_ask_while_others_are_about_to_get_the_room():
    nodes = [make_node("n1", 3)]
    jobs = [asking("asks", 2, shape=make_shape(2)), make_job("grows", 1, 3, on="n1", team="b")]
    first = outcome(nodes, jobs)
    assert first == {"asks": "", "grows": "m0 +w0@n1 +w1@n1"}
    grown = make_job("grows", 1, 3, on="n1 n1 n1", team="b")
    assert outcome(nodes, [jobs[0], grown]) == {"asks": "+m0@? +w0@?", "grows": "m0 w0 w1"}


def test_room_where_the_scheduler_does_not_bring_pods_is_not_held_for_them():
    """Their template asks for what the planner does not know; others may have what seems free."""
    odd = make_shape(pinnable=False)
    jobs = [asking("asks", 2, waits="m0 w0", shape=odd, age=9), make_job("grows", 1, 4, on="n1")]
    assert outcome([make_node("n1", 4)], jobs) == {"asks": "m0 w0", "grows": "m0 +w0@n1 +w1@n1 +w2@n1"}


def test_a_job_that_has_waited_too_long_asks_rather_than_to_hold_room():
    job = asking("j", 2, waiting_since=NOW - 700)
    assert outcome([make_node("n1", 2, used=1)], [job]) == {"j": "+m0@? +w0@?"}


# -- afterwards --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [FULL, [], [make_node("n1", 1)]])
def test_what_was_carried_out_is_decided_again(nodes):
    inputs = make_inputs(nodes, [asking("j", 2, 4), make_job("k", 1, 3, team="b")])
    for _ in range(2):  # in the first pass, j leaves the room that there is to k
        inputs = with_pods_made(inputs, allocate(inputs))
    granted = allocate(inputs)
    assert not any(grant.assignment.create or grant.assignment.release for grant in granted.values())
    assert notation(granted["j"]) == "m0 w0"


def test_a_node_that_comes_is_for_the_pods_that_wait_and_not_for_growth():
    nodes = [make_node("n1", 1), make_node("new", 2)]
    jobs = [asking("asks", 2, 4, waits="m0 w0"), make_job("grows", 1, 3, on="n1", age=99)]
    assert outcome(nodes, jobs) == {"asks": "m0 w0", "grows": "m0"}


def test_once_its_pods_are_bound_it_grows_like_any_other():
    assert outcome([make_node("new", 4)], [asking("j", 2, 4, on="new new")]) == {"j": "m0 w0 +w1@new +w2@new"}


def test_pods_of_a_gang_that_is_bound_in_part_are_kept_until_another_minimum_needs_them():
    nodes = [make_node("n1", 1)]
    half = asking("half", 2, on="n1", waits="w0", age=9)
    assert outcome(nodes, [half]) == {"half": "m0 w0"}
    assert outcome(nodes, [half, make_job("one", 1, priority=1)])["one"] == "~m0@n1"


def test_pods_that_wait_for_more_than_the_minimum_lacks_are_taken_back():
    job = asking("j", 2, waits="m0 w0 w1")
    assert outcome(FULL, [job]) == {"j": "m0 w0 -w1"}


def test_pods_that_wait_are_taken_back_when_the_limit_is_lowered():
    job = asking("j", 2, waits="m0 w0")
    assert outcome(FULL, [job], teams=[make_team("team-a", 1, borrow=0)]) == {"j": "-w0 -m0"}


def test_a_pod_that_could_not_be_made_is_made_later():
    assert outcome(FULL, [asking("j", 3, waits="m0 w1")]) == {"j": "m0 w1 +w0@?"}


def test_pods_that_wait_go_on_whatever_the_delay():
    job = replace(asking("j", 2, waits="m0 w0"), node_request=NodeRequest(NOW + 30))
    assert outcome(FULL, [job]) == {"j": "m0 w0"}


def test_a_suspended_job_does_not_ask():
    assert outcome(FULL, [asking("j", 2, wants_pods=False)]) == {"j": ""}
