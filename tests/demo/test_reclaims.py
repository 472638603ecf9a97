import pytest

from demo.lives import Life, Step
from demo.reclaims import reclaims_of, taken_back_by


def preemptor(name="notebook-1", *, node="n1", created=10.0, bound=13.0, running=None, gpus=1):
    """A pod of the team that gets its GPUs back."""
    seen = {Step.CREATED: created} | ({} if bound is None else {Step.BOUND: bound})
    seen |= {} if running is None else {Step.RUNNING: running}
    return Life("team-b", name, gpus, node, seen)


def victim(name="worker-1", *, node="n1", evicted=10.5, gone=12.5, gpus=1):
    """A pod of the team that had borrowed them."""
    seen = {Step.CREATED: 0.0, Step.BOUND: 0.5}
    times = {Step.EVICTED: evicted, Step.GONE: gone}
    return Life("team-a", name, gpus, node, seen | {step: at for step, at in times.items() if at is not None})


def test_a_reclaim_is_told_from_the_creation_of_the_pod_to_its_binding():
    (reclaim,) = reclaims_of([preemptor()], [victim()])
    assert reclaim.as_json() == {
        "pod": "team-b/notebook-1",
        "node": "n1",
        "victims": ["team-a/worker-1"],
        "requestedGPUs": 1,
        "evictedGPUs": 1,
        "pendingToEvictedSeconds": 0.5,
        "pendingToFreedSeconds": 2.5,
        "pendingToBoundSeconds": 3.0,
        "pendingToRunningSeconds": None,
    }


def test_a_reclaim_is_over_for_the_owner_when_its_container_runs():
    (reclaim,) = reclaims_of([preemptor(running=13.75)], [victim()])
    assert (reclaim.bound_after, reclaim.running_after) == (3.0, 3.75)


def test_each_pod_has_the_victims_of_its_own_node():
    preemptors = [preemptor("notebook-2", node="n2"), preemptor("notebook-1", node="n1")]
    others = [victim("worker-2", node="n1"), victim("worker-1", node="n2")]
    found = [(r.pod, r.victims) for r in reclaims_of(preemptors, others)]
    assert found == [("team-b/notebook-1", ("team-a/worker-2",)), ("team-b/notebook-2", ("team-a/worker-1",))]


@pytest.mark.parametrize("evicted", [None, 9.5, 13.5], ids=["never", "before it came", "after it was bound"])
def test_who_was_not_told_to_go_while_the_pod_waited_is_no_victim(evicted):
    assert reclaims_of([preemptor()], [victim(evicted=evicted, gone=None)]) == []


def test_a_pod_that_waits_still_is_no_reclaim():
    assert reclaims_of([preemptor(bound=None)], [victim()]) == []


def test_of_several_victims_the_last_one_counts():
    (reclaim,) = reclaims_of([preemptor(gpus=2)], [victim("a", evicted=10.2, gone=11.0), victim("b", evicted=11.0)])
    assert (reclaim.evicted_gpus, reclaim.victims) == (2, ("team-a/a", "team-a/b"))
    assert (reclaim.evicted_after, reclaim.freed_after, reclaim.bound_after) == (1.0, 2.5, 3.0)


def test_room_is_free_when_the_pod_is_bound_even_if_the_end_of_the_victim_is_seen_later():
    (reclaim,) = reclaims_of([preemptor()], [victim(gone=13.4)])
    assert (reclaim.freed_after, reclaim.bound_after) == (3.0, 3.0)


def test_room_is_free_when_the_victims_containers_have_ended():
    ended = victim(gone=12.9)
    ended.seen[Step.ENDED] = 12.0
    assert reclaims_of([preemptor()], [ended])[0].freed_after == 2.0


def test_who_went_for_nobody_is_evicted_all_the_same_and_the_ratio_is_above_one():
    others = [victim("a"), victim("b", node="n2"), victim("c", evicted=None), victim("d", evicted=3.0)]
    back = taken_back_by([preemptor()], others)
    assert [reclaim.victims for reclaim in back.reclaims] == [("team-a/a",)]
    assert (back.evicted, back.evicted_gpus, back.requested_gpus, back.ratio) == (("team-a/a", "team-a/b"), 2, 1, 2.0)


def test_as_many_evicted_as_requested_is_a_ratio_of_one_however_the_gpus_are_spread():
    back = taken_back_by([preemptor(gpus=2)], [victim("a"), victim("b")])
    assert (back.evicted_gpus, back.requested_gpus, back.ratio) == (2, 2, 1.0)
