"""Planned GPUs entitle another team to no pod (166). A nominated pod's room is kept whole (41)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.plan.allocate.world import make_job, make_node, make_shape, make_team, outcome
from tests.plan.quota.cases import make_foreign_pod

RED, BLUE = make_team("red", 4), make_team("blue", 6)


def test_a_job_that_starts_does_not_expose_a_running_job_within_its_teams_guarantee():
    """History 914: red runs on what is guaranteed to it, and one of its jobs could borrow what is free. The plan of
    that job made red look richer, and blue, whose job needs four GPUs of n4, took a pod that it is not entitled to.
    """
    nodes = (make_node("n1", 1), make_node("n3", 2), make_node("n4", 4))
    runs = make_job("runs", 2, 5, team="red", on="n1 n3 n3 n4", age=9)
    starts = make_job("starts", 2, 3, team="red", age=5)
    preemptor = make_job("preemptor", 2, 4, team="blue", shape=make_shape(2))
    found = outcome(nodes, (runs, starts, preemptor), teams=(RED, BLUE))
    assert found["runs"] == "m0 w0 w1 w2"
    assert found["preemptor"] == ""


def test_a_job_that_grows_in_the_same_pass_is_not_ended_for_what_it_would_grow_by():
    """History 730: the pods that a job was planned to get put its team beyond its guarantee, and it lost its master."""
    nodes = (make_node("n3", 2), make_node("n4", 8, cpu=9))
    grows = make_job("grows", 1, 4, team="blue", on="n3")
    rival = make_job("rival", 2, 7, team="red", shape=make_shape(1, cpu=3), on="n3 n4 n4")
    teams = (make_team("blue", 2, borrow=1), make_team("red", 6))
    assert outcome(nodes, (grows, rival), teams=teams)["grows"].startswith("m0")


def test_a_team_loses_no_pod_for_a_job_of_its_own_whose_planned_place_another_team_takes():
    """Red runs on what is guaranteed to it. Its waiting job could borrow what is free, beside a worker of the running
    job. Blue is entitled to what red would borrow, and not to the worker (219).
    """
    nodes = (make_node("n1", 4), make_node("n2", 1, cpu=0))
    runs = make_job("runs", 1, 2, team="red", on="n1 n1")
    waits, comes = make_job("waits", 3, team="red"), make_job("comes", 3, team="blue")
    found = outcome(nodes, (runs, waits, comes), teams=(make_team("red", 2), make_team("blue", 3)))
    assert found == {"runs": "m0 w0", "waits": "", "comes": ""}


@pytest.mark.parametrize("waiting", [1, 2, 5])
def test_however_many_equal_jobs_of_a_team_wait_it_loses_no_pod_for_the_first_of_them(waiting):
    """The pass is decided again for all of them at once, because it is decided three times at most (112, 219)."""
    nodes = (make_node("n1", 4), make_node("n2", 1, cpu=0))
    runs = make_job("runs", 1, 2, team="red", on="n1 n1")
    queue, comes = [make_job(f"waits-{n}", 3, team="red") for n in range(waiting)], make_job("comes", 3, team="blue")
    found = outcome(nodes, (runs, *queue, comes), teams=(make_team("red", 2), make_team("blue", 3)))
    assert found == {"runs": "m0 w0", "comes": "", **{job.name: "" for job in queue}}


def test_a_job_that_may_preempt_no_whole_job_still_gets_its_minimum_from_lower_jobs_of_its_team():
    """In the first try of the pass blue's job loses the room of red's job again, so it may preempt no whole job in the
    next try (112). It may still take the planned places of a lower job of blue (219).
    """
    nodes = (make_node("n0", 2), make_node("n1", 4))
    limits = {"org": 2, "red": 1, "blue": 3, "green": 3}
    teams = [make_team(name, gpus, parent=None if name == "org" else "org") for name, gpus in limits.items()]
    runs = make_job("runs", 1, 4, team="red", shape=make_shape(2), age=5, on="n1 n0 n1")
    lower = make_job("lower", 3, team="blue", age=8)
    higher = make_job("higher", 4, team="blue", priority=1, age=2)
    comes = make_job("comes", 2, team="green", age=5)
    found = outcome(nodes, (runs, lower, higher, comes), teams=teams)
    assert (found["lower"], found["higher"]) == ("", "~m0@n1 ~w0@n0 ~w1@n1 ~w2@n1")


def test_a_parent_loses_no_pod_for_a_job_under_it_whose_planned_place_a_team_outside_takes():
    """The teams under org run on what is guaranteed to org. Green is entitled to a worker of red, blue is not (219)."""
    nodes = (make_node("n1", 4), make_node("n2", 2, cpu=0))
    below = (make_team("red", 1, parent="org"), make_team("green", 1, parent="org"))
    runs = make_job("runs", 1, 3, team="red", on="n1 n1 n1")
    waits, comes = make_job("waits", 2, team="green"), make_job("comes", 2, team="blue")
    found = outcome(nodes, (runs, waits, comes), teams=(make_team("org", 3), *below, make_team("blue", 2)))
    assert found == {"runs": "m0 w0 w1", "waits": "", "comes": ""}


def test_no_pod_is_created_in_a_part_of_the_room_that_is_kept_for_a_nominated_pod():
    """History 261: kube-scheduler keeps two GPUs, and one of them is free already. A pod that is to take the place of
    one that leaves must wait until both are there.
    """
    node = make_node("n1", 4, used=0, leaving=1)
    goes = make_job("goes", 1, 3, team="red", on="n1 n1")
    comes = make_job("comes", 1, team="blue")
    pod = replace(make_foreign_pod(gpus=2), nominated="n1")
    found = outcome((node,), (goes, comes), teams=(make_team("red", 1), make_team("blue", 1)), foreign_pods=(pod,))
    assert found["comes"].startswith("~m0")


def test_a_pod_without_gpus_is_preempted_though_its_team_may_lose_no_gpu():
    """After the growth both teams use two of their three GPUs. So red may not take a GPU from blue, but it may take
    pods without GPUs: blue's use stays the same. Blue's planned pod on n4 is worth nothing to red.
    """
    nodes = (make_node("n1", 1), make_node("n2", 2), make_node("n3", cpu=8, gpus=1), make_node("n4", 1, cpu=1))
    no_cpu, a_gpu = make_node("n5", 1, cpu=0), make_shape(1)
    grows = make_job("grows", 1, 8, team="red", on="n1", master=a_gpu, shape=make_shape(1, cpu=8))
    runs = make_job("runs", team="blue", on="n2")
    loads = make_job("loads", 1, 3, team="blue", on="n2 n3 n3", master=a_gpu, shape=make_shape(0, cpu=4))
    starts = make_job("starts", team="blue")
    found = outcome((*nodes, no_cpu), (grows, runs, loads, starts), teams=(make_team("red"), make_team("blue")))
    assert found == {
        "grows": "m0 ~w0@n3",
        "runs": "m0",
        "loads": "m0 +w2@n2 +w3@n2 -w1 -w0",
        "starts": "+m0@n4",
    }
