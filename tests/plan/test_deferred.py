"""Which pods are evicted for those who can use their room, while others are still asked about (139)."""

from __future__ import annotations

import pytest

from elastic_api.status import JobStatus
from elastic_operator.plan.facts.decisions import Assignment, Grant
from elastic_operator.plan.job.deferred_release import DeferredRelease, pods_to_defer
from tests.plan.allocate.world import make_job
from tests.plan.jobs import group, make_grant, make_pod, names, plan, started
from tests.plan.jobs import make_job as make_own
from tests.plan.quota.cases import on

MASTER = "master"


def released(count: int, *, of: int = 8) -> Assignment:
    """A job of so many pods lets the last ones go; all of them if the master is among these."""
    pods = [f"w{index}" for index in range(of - 2, -1, -1)] + [MASTER]
    going = pods[:count]
    return Assignment(tuple(reversed(pods[count:])), tuple(going), ())


def kept(
    assignment: Assignment, preemptors: dict[str, str], *waiting: str, sizes: tuple[int, ...] = tuple(range(1, 9))
) -> set[str]:
    return set(
        pods_to_defer(make_job("green", sizes=sizes, on=on("n1", 8)), assignment, preemptors, frozenset(waiting))
    )


def test_while_nobody_waits_all_go() -> None:
    assert kept(released(3), dict.fromkeys(("w6", "w5"), "red")) == set()


def test_those_go_whose_preemptors_can_use_the_room() -> None:
    preemptors = {"w6": "red", "w5": "blue", "w4": "red"}
    assert kept(released(3), preemptors, "red") == {"w6", "w4"}
    assert kept(released(3), preemptors, "red", "blue") == {"w6", "w5", "w4"}


def test_a_job_that_may_not_have_the_size_in_between_releases_what_the_others_need() -> None:
    preemptors = {"w6": "red", "w5": "red", "w4": "blue"}
    assert kept(released(4), preemptors, "red", sizes=(4, 8)) == set()
    assert kept(released(4), preemptors, "red", sizes=(2, 4, 6, 8)) == {"w6", "w5"}


def test_all_pods_of_a_gang_are_evicted_for_one() -> None:
    preemptors = {"w6": "red", "w5": "blue"}
    assert kept(released(8), preemptors, "red", sizes=(8,)) == set()
    assert len(kept(released(8), preemptors, "red", "blue", sizes=(8,))) == 8


def test_pods_beyond_the_largest_size_are_released_at_once() -> None:
    assert kept(released(4), {"w6": "red"}, "red", sizes=(1, 2, 3, 4, 5, 6)) == {"w6", "w3"}


def with_release_deferred(grant: Grant, target: int) -> Grant:
    """The grant of a job of that size while all its releases are deferred."""
    return DeferredRelease(frozenset(grant.assignment.release)).applied_to(grant, JobStatus(target_replicas=target), 1)


@pytest.mark.parametrize("lost", ["master-0", "worker-1"])
def test_lost_pods_are_replaced_while_a_release_is_deferred(lost: str) -> None:
    grant = make_grant(keep=["worker-0"], release=["worker-2"], create=[lost])
    held = with_release_deferred(grant, 3)
    assert (held.assignment.release, held.target_replicas) == ((), 3)
    assert [slot.role for slot in held.assignment.create] == [lost.split("-")[0]]


def test_a_job_that_lost_nothing_gets_nothing_while_a_release_is_deferred() -> None:
    grant = make_grant(keep=["master-0", "worker-0"], release=["worker-1"], create=["worker-2"])
    assert with_release_deferred(grant, 3).assignment.create == ()


def test_room_that_is_not_free_yet_is_not_used_while_a_release_is_deferred() -> None:
    grant = make_grant(keep=["master-0"], release=["worker-1"], create=["worker-2"], ready=False)
    assert with_release_deferred(grant, 3).assignment.create == ()


def test_the_pod_of_a_lost_node_is_replaced_while_a_release_is_deferred() -> None:
    pods = (*group(1), make_pod("worker-2"))
    grant = make_grant(keep=["master-0", "worker-0"], release=["worker-2"], create=["worker-1"])
    planned = plan(make_own(pods, status=started(3)), with_release_deferred(grant, 4))
    assert names(planned.deletes) == []
    assert [(create.role, create.index) for create in planned.slots] == [("worker", 1)]
