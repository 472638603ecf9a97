"""When a gang of foreign pods is whole, and which pods make one."""

from __future__ import annotations

import pytest

from elastic_operator.cluster.gang import gang_of
from elastic_operator.loop.whole import GROWS, MOST_PODS, NO_ROOM, OTHERS_WAIT, SETTLED_SECONDS, TOO_LARGE, WholeGangs
from elastic_operator.plan.model import Request
from tests.cluster_unit.build import pod
from tests.plan.quota.cases import make_request

CREATED = 1000.0
"""When the pods of `make_request` were made, to the second."""
NOW = CREATED + 0.999
SETTLED = NOW + SETTLED_SECONDS


def gang(count: int, **more: Request | None) -> dict[str, dict[str, Request | None]]:
    """One gang of so many pods that wait, and some more."""
    return {"g": {f"g{i}": make_request(f"g{i}", gang="g") for i in range(count)} | more}


def reasons(gangs: WholeGangs, waiting: dict[str, dict[str, Request | None]], now: float) -> dict[str, str]:
    """Why each pod is held back."""
    return {uid: request.unplannable for uid, request in gangs.hold_back(waiting, now).items()}


def test_a_gang_is_held_back_until_it_has_not_grown_for_a_second() -> None:
    gangs, two, three = WholeGangs(), gang(2), gang(3)
    assert reasons(gangs, two, NOW) == {"g0": GROWS, "g1": GROWS}
    assert gangs.again_at == SETTLED
    assert set(reasons(gangs, three, SETTLED - 0.1).values()) == {GROWS}
    assert set(reasons(gangs, three, SETTLED).values()) == {GROWS}
    assert reasons(gangs, three, SETTLED + 1.0) == {}
    assert gangs.again_at == float("inf")


def test_a_new_leader_waits_for_no_gang_that_was_made_long_before() -> None:
    assert reasons(WholeGangs(), gang(2), NOW) == {"g0": GROWS, "g1": GROWS}
    assert reasons(WholeGangs(), gang(2), NOW + 60) == {}


def test_one_that_has_a_node_or_is_gone_does_not_make_the_others_wait_anew() -> None:
    gangs = WholeGangs()
    reasons(gangs, gang(3), NOW)
    assert reasons(gangs, gang(2), SETTLED) == {}


def test_a_gang_is_held_back_while_one_of_its_pods_waits_for_something_else() -> None:
    gangs = WholeGangs()
    reasons(gangs, gang(2, other=None), NOW)
    assert reasons(gangs, gang(2, other=None), SETTLED) == {"g0": OTHERS_WAIT, "g1": OTHERS_WAIT}
    assert reasons(gangs, gang(3), SETTLED + 5) == {f"g{i}": GROWS for i in range(3)}


def test_what_keeps_one_from_a_place_keeps_all_from_one_but_those_that_have_a_promise() -> None:
    gangs = WholeGangs()
    more = {
        "bad": make_request("bad", gang="g", unplannable="its claim is not bound"),
        "promised": make_request("promised", gang="g", reserved="n1"),
    }
    reasons(gangs, gang(1, **more), NOW)
    found = reasons(gangs, gang(1, **more), SETTLED)
    assert found == {"g0": "its claim is not bound", "bad": "its claim is not bound"}


def test_a_gang_of_too_many_pods_is_not_served() -> None:
    gangs = WholeGangs()
    reasons(gangs, gang(MOST_PODS + 1), NOW)
    assert set(reasons(gangs, gang(MOST_PODS + 1), SETTLED).values()) == {TOO_LARGE}


def test_a_gang_for_which_there_is_no_room_rests_longer_each_time_and_one_that_has_its_places_does_not() -> None:
    gangs, large = WholeGangs(), gang(64)
    reasons(gangs, large, NOW)
    times = []
    now = SETTLED
    for _ in range(8):
        assert reasons(gangs, large, now) == {}
        rest_first = gangs.note_served(frozenset(), now)
        assert rest_first == ([] if times else [frozenset(large["g"])])
        times.append(gangs.again_at - now)
        assert set(reasons(gangs, large, now).values()) == {NO_ROOM}
        now = gangs.again_at
    assert times == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert reasons(gangs, large, now) == {}
    gangs.note_served(frozenset({"g0"}), now)
    assert reasons(gangs, large, now) == {}
    gangs.note_served(frozenset(), now)
    assert gangs.again_at == now + 2.0


def test_the_same_requests_are_held_back_as_the_same_objects() -> None:
    gangs, waiting = WholeGangs(), gang(2)
    first, again = gangs.hold_back(waiting, NOW), gangs.hold_back(waiting, NOW + 0.1)
    assert all(first[uid] is again[uid] for uid in first)


JOB = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "of-job", "controller": True}]
SERVER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "of-server", "controller": True}]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ""),
        ({"ownerReferences": JOB}, "team/Job/of-job"),
        ({"ownerReferences": SERVER}, ""),
        ({"ownerReferences": JOB, "labels": {"jobset.sigs.k8s.io/jobset-name": "s"}}, "team/JobSet/s"),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "p"}}, "team/PodGroup/p"),
        ({"spec": {"schedulingGroup": {"podGroupName": "p"}}}, "team/PodGroup/p"),
        (
            {"ownerReferences": SERVER, "labels": {"leaderworkerset.sigs.k8s.io/group-key": "k"}},
            "team/LeaderWorkerSet/k",
        ),
        ({"ownerReferences": JOB, "annotations": {"elastic-pytorch.dev/gang": "none"}}, ""),
        ({"ownerReferences": SERVER, "annotations": {"elastic-pytorch.dev/gang": "mine"}}, "team/gang/mine"),
    ],
    ids=[
        "on its own",
        "of a Job",
        "of a server",
        "of a JobSet",
        "of scheduler-plugins' PodGroup",
        "of Kubernetes' own PodGroup",
        "of a LeaderWorkerSet",
        "of a sweep that says so",
        "of a gang that names itself",
    ],
)
def test_which_pods_belong_together(fields: dict[str, object], expected: str) -> None:
    spec = {"containers": [{"name": "main"}], **fields.pop("spec", {})}  # type: ignore[dict-item]
    assert gang_of(pod("p", namespace="team", spec=spec, **fields)) == expected
