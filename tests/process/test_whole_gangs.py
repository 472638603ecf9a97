"""When a gang of foreign pods is whole, and which pods make one."""

from __future__ import annotations

from math import inf

import pytest

from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.read.foreign.gang_key import gang_of, may_be_split
from elastic_operator.read.foreign.whole_gangs import (
    MAX_GROWING_SECONDS,
    MAX_PODS_OF_A_GANG,
    MAX_UNTRIED_SECONDS,
    SETTLED_SECONDS,
    WholeGangs,
)
from tests.cluster_unit.build import pod
from tests.plan.quota.cases import make_foreign_pod

CREATED = 1000.0
"""When the pods of `make_foreign_pod` were made, to the second."""
NOW = CREATED + 0.999
SETTLED = NOW + SETTLED_SECONDS


def gang(count: int, *, name: str = "g", **more: ForeignPod | None) -> dict[str, dict[str, ForeignPod | None]]:
    """One gang of so many pods that wait, and some more."""
    return {name: {f"{name}{i}": make_foreign_pod(f"{name}{i}", gang=name) for i in range(count)} | more}


def unserved(
    gangs: WholeGangs,
    waiting: dict[str, dict[str, ForeignPod | None]],
    now: float,
    untried: frozenset[str] = frozenset(),
) -> set[str]:
    """The pods of gangs that are not served: each is on its own, and preempts nothing."""
    instead = gangs.without_unsettled(waiting, untried, now)
    assert not any(pod.gang for pod in instead.values())
    return {uid for uid, pod in instead.items() if pod.demand.bar.until == inf}


def test_a_gang_is_served_once_it_has_not_grown_for_a_second() -> None:
    gangs, two, three = WholeGangs(), gang(2), gang(3)
    assert unserved(gangs, two, NOW) == {"g0", "g1"}
    assert gangs.again_at_epoch == SETTLED
    assert len(unserved(gangs, three, SETTLED - 0.1)) == 3
    assert len(unserved(gangs, three, SETTLED)) == 3
    assert unserved(gangs, three, SETTLED + 1.0) == set()
    assert gangs.again_at_epoch == inf


def test_a_gang_that_keeps_growing_is_served_as_it_is_after_ten_seconds() -> None:
    gangs = WholeGangs()
    times = [NOW + 0.5 * i for i in range(25)]
    served = [not unserved(gangs, gang(2 + i), now) for i, now in enumerate(times)]
    assert served == [now >= NOW + MAX_GROWING_SECONDS for now in times]


def test_gang_that_grows_again_waits_until_all_pods_exist() -> None:
    gangs, later = WholeGangs(), SETTLED + 100.0
    unserved(gangs, gang(2), NOW)
    assert unserved(gangs, gang(2), SETTLED) == set()
    assert len(unserved(gangs, gang(10), later)) == 10
    assert len(unserved(gangs, gang(20), later + 0.5)) == 20
    assert unserved(gangs, gang(20), later + 0.5 + SETTLED_SECONDS) == set()


def test_a_pod_alone_of_its_job_is_no_gang() -> None:
    gangs = WholeGangs()
    assert unserved(gangs, gang(1), NOW) == {"g0"}
    (alone,) = gangs.without_unsettled(gang(1), frozenset(), SETTLED).values()
    assert (alone.gang, alone.demand.bar.until) == ("", -inf)
    assert gangs.note_served(frozenset(), frozenset({"g"}), SETTLED) == []
    assert unserved(gangs, gang(1), SETTLED) == set()


def test_a_new_leader_waits_for_no_gang_that_was_made_long_before() -> None:
    assert unserved(WholeGangs(), gang(2), NOW) == {"g0", "g1"}
    assert unserved(WholeGangs(), gang(2), NOW + 60) == set()


def test_a_pod_of_a_gang_that_has_a_node_or_is_gone_does_not_make_the_others_wait_again() -> None:
    gangs = WholeGangs()
    unserved(gangs, gang(3), NOW)
    assert unserved(gangs, gang(2), SETTLED) == set()


def test_a_gang_is_not_served_while_one_of_its_pods_waits_for_something_else() -> None:
    gangs = WholeGangs()
    unserved(gangs, gang(2, other=None), NOW)
    assert unserved(gangs, gang(2, other=None), SETTLED) == {"g0", "g1"}


def test_a_gang_that_may_be_split_does_not_wait_for_pods_that_wait_for_something_else() -> None:
    gangs = WholeGangs()
    waiting = {
        "g": {f"g{i}": make_foreign_pod(f"g{i}", gang="g", may_be_split=True) for i in range(2)} | {"other": None}
    }
    unserved(gangs, waiting, NOW)
    assert unserved(gangs, waiting, SETTLED) == set()


def gang_that_may_be_split(tried: int, pods: int) -> tuple[dict[str, dict[str, ForeignPod | None]], frozenset[str]]:
    """A gang of so many pods, and those of them (uids) that kube-scheduler has not tried yet."""
    uids = [f"g{i}" for i in range(pods)]
    there = {uid: make_foreign_pod(uid, gang="g", may_be_split=True) for uid in uids[:tried]}
    return {"g": there | dict.fromkeys(uids[tried:])}, frozenset(uids[tried:])


def test_a_gang_that_may_be_split_waits_while_kube_scheduler_tries_its_pods_one_by_one() -> None:
    gangs = WholeGangs()
    for tried in range(1, 30):
        waiting, untried = gang_that_may_be_split(tried, 30)
        assert len(unserved(gangs, waiting, NOW + tried, untried)) == tried
    assert unserved(gangs, *(gang_that_may_be_split(30, 30)[0], NOW + 30)) == set()


def test_a_gang_that_may_be_split_is_served_without_pods_that_stay_untried_for_ten_seconds() -> None:
    gangs, (waiting, untried) = WholeGangs(), gang_that_may_be_split(2, 4)
    assert len(unserved(gangs, waiting, NOW, untried)) == 2
    waiting, untried = gang_that_may_be_split(3, 4)
    assert len(unserved(gangs, waiting, NOW + 5, untried)) == 3
    assert len(unserved(gangs, waiting, NOW + 5 + MAX_GROWING_SECONDS - 0.1, untried)) == 3
    assert gangs.again_at_epoch == NOW + 5 + MAX_GROWING_SECONDS
    assert unserved(gangs, waiting, NOW + 5 + MAX_GROWING_SECONDS, untried) == set()


def test_a_gang_that_may_be_split_does_not_wait_for_untried_pods_for_ever() -> None:
    gangs = WholeGangs()
    times = [NOW + 5.0 * i for i in range(20)]
    cases = [(now, *gang_that_may_be_split(2 + i, 40)) for i, now in enumerate(times)]
    served = [not unserved(gangs, waiting, now, untried) for now, waiting, untried in cases]
    assert served == [now >= NOW + MAX_UNTRIED_SECONDS for now in times]


def test_if_one_pod_of_a_gang_cannot_be_placed_no_pods_are_evicted_but_for_promised_places() -> None:
    gangs = WholeGangs()
    more = {
        "bad": make_foreign_pod("bad", gang="g", unplannable="its claim is not bound"),
        "promised": make_foreign_pod("promised", gang="g", reserved="n1"),
    }
    unserved(gangs, gang(1, **more), NOW)
    assert unserved(gangs, gang(1, **more), SETTLED) == {"g0", "bad"}


def test_a_gang_of_too_many_pods_is_not_served() -> None:
    gangs, large = WholeGangs(), gang(MAX_PODS_OF_A_GANG + 1)
    unserved(gangs, large, NOW)
    assert len(unserved(gangs, large, SETTLED)) == MAX_PODS_OF_A_GANG + 1


def test_gang_without_room_backs_off_and_a_placed_gang_does_not() -> None:
    gangs, large, tried = WholeGangs(), gang(64), frozenset({"g"})
    unserved(gangs, large, NOW)
    times, now = [], SETTLED
    for _ in range(8):
        assert unserved(gangs, large, now) == set()
        first_backoffs = gangs.note_served(frozenset(), tried, now)
        assert first_backoffs == ([] if times else [frozenset(large["g"])])
        times.append(gangs.again_at_epoch - now)
        assert len(unserved(gangs, large, now)) == 64
        now = gangs.again_at_epoch
    assert times == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert unserved(gangs, large, now) == set()
    gangs.note_served(frozenset({"g0"}), tried, now)
    assert unserved(gangs, large, now) == set()
    gangs.note_served(frozenset(), tried, now)
    assert gangs.again_at_epoch == now + 2.0


def test_during_back_off_no_pods_are_evicted_for_promised_places_either() -> None:
    gangs, part = WholeGangs(), gang(2, promised=make_foreign_pod("promised", gang="g", reserved="n1"))
    unserved(gangs, part, NOW)
    assert unserved(gangs, part, SETTLED) == set()
    gangs.note_served(frozenset(), frozenset({"g"}), SETTLED)
    assert unserved(gangs, part, SETTLED) == {"g0", "g1", "promised"}


def test_a_gang_that_was_not_tried_does_not_rest() -> None:
    gangs, waiting = WholeGangs(), gang(2) | gang(64, name="h")
    unserved(gangs, waiting, NOW)
    assert unserved(gangs, waiting, SETTLED) == set()
    assert gangs.note_served(frozenset(), frozenset({"h"}), SETTLED) == [frozenset(waiting["h"])]
    assert gangs.again_at_epoch == SETTLED + 1.0, "its turn may come while the other one backs off"
    assert unserved(gangs, waiting, SETTLED) == waiting["h"].keys()


def test_if_no_gang_was_tried_no_pass_is_due() -> None:
    """The next pass would serve the same gangs, and decide the same."""
    gangs = WholeGangs()
    unserved(gangs, gang(2), NOW)
    assert unserved(gangs, gang(2), SETTLED) == set()
    assert gangs.note_served(frozenset(), frozenset(), SETTLED) == []
    assert gangs.again_at_epoch == inf
    assert unserved(gangs, gang(2), SETTLED) == set()


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


def test_a_name_that_is_too_long_names_no_gang() -> None:
    long = {"elastic-pytorch.dev/gang": "x" * 254}
    spec = {"containers": [{"name": "main"}]}
    assert gang_of(pod("p", namespace="team", spec=spec, annotations=long)) == ""
    assert gang_of(pod("p", namespace="team", spec=spec, annotations=long, ownerReferences=JOB)) == "team/Job/of-job"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ownerReferences": JOB}, True),
        ({"ownerReferences": JOB, "labels": {"batch.kubernetes.io/job-completion-index": "0"}}, False),
        ({"ownerReferences": JOB, "labels": {"jobset.sigs.k8s.io/jobset-name": "s"}}, False),
        ({"ownerReferences": JOB, "annotations": {"elastic-pytorch.dev/gang": "mine"}}, False),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "p"}}, False),
    ],
    ids=["of a Job", "of an indexed Job", "of a JobSet", "of a gang that names itself", "of a PodGroup"],
)
def test_pods_of_a_job_that_are_all_alike_are_of_use_in_parts(fields: dict[str, object], expected: bool) -> None:
    found = pod("p", namespace="team", spec={"containers": [{"name": "main"}]}, **fields)
    assert may_be_split(found) is expected
