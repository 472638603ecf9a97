"""A pod's part of a group: what it is told, and what a coordinator that starts anew makes of several."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_worker.coordinator.model import Generation, Pod
from elastic_worker.coordinator.part import merge_reported, part_of, read_part, to_whole_group
from tests.worker.coordinator.states import make_group, make_pod

PODS = (make_pod(0), make_pod(3, processes=4), make_pod(1, processes=2), make_pod(2))
GROUP = Generation(7, 2, 5, PODS, "Join", failures=1, step=300, store_port=4000)


def travelled(message):
    return json.loads(json.dumps(message))


def brought(group, pod, *, told=GROUP):
    """What is known of the latest group after that pod has come with its part of `told`."""
    return merge_reported(group, travelled(part_of(told, pod.uid).to_message()), pod)


def test_a_part_says_where_a_pods_ranks_are():
    part = part_of(GROUP, "u1")
    assert (part.place, part.pods, part.first_rank, part.processes, part.world_size) == (2, 4, 5, 2, 8)
    assert (part.number, part.epoch, part.membership_number, part.reason) == (7, 2, 5, "Join")
    assert (part.failures, part.step, part.store_port, part.host) == (1, 300, 4000, PODS[0].address)


def test_who_is_not_in_a_group_is_told_so():
    assert part_of(GROUP, "u9").place == -1


@pytest.mark.parametrize("uid", ["u0", "u1", "u9"])
def test_from_the_whole_group_a_pod_takes_the_same_as_from_its_part(uid):
    part = part_of(GROUP, uid)
    assert read_part(travelled(part.to_message()), uid) == part
    assert read_part(travelled(GROUP.to_message()), uid) == part


@pytest.mark.parametrize("record", [part_of(GROUP, "u1").to_message()["part"], GROUP.to_message()])
def test_the_number_of_the_membership_has_the_name_in_json_that_other_releases_use(record):
    assert (record["number"], record["wish"], "membership_number" in record) == (7, 5, False)


def test_what_a_later_release_adds_to_a_part_is_passed_over():
    part = part_of(GROUP, "u1")
    assert read_part({"part": {**part.to_message()["part"], "new": 1}, "new": 1}, "u1") == part


@given(st.permutations(PODS))
def test_of_the_parts_of_all_pods_the_group_is_known_again_in_whatever_order_they_come(pods):
    known = None
    for pod in pods:
        known = brought(known, pod)
        assert len(known.pods) == len(GROUP.pods)
        assert pod.uid in known.uids
    assert known == GROUP
    assert all(brought(known, pod) is known for pod in pods)


def test_of_pods_that_do_not_come_only_their_places_are_known():
    known = brought(brought(None, PODS[1]), PODS[3])
    assert [pod.uid for pod in known.pods if pod.is_known] == ["u3", "u2"]
    assert known.places["u2"][0] == 3
    assert [pod.is_master for pod in known.pods] == [True, False, False, False]
    assert (known.number, known.epoch, known.failures, known.step) == (7, 2, 1, 300)


@pytest.mark.parametrize("number", [6, 8])
def test_the_latest_group_counts(number):
    other = make_group(0, 1, number=number, epoch=2)
    known = brought(brought(None, make_pod(1), told=other), PODS[2])
    assert known.number == max(7, number)
    assert known == brought(brought(None, PODS[2]), make_pod(1), told=other)


def test_a_whole_group_fills_the_places_of_which_nobody_has_come():
    known = brought(None, PODS[1])
    assert merge_reported(known, travelled(GROUP.to_message()), PODS[2]) == GROUP
    assert merge_reported(GROUP, travelled(GROUP.to_message()), PODS[2]) is GROUP


def test_nobody_takes_the_place_of_a_pod_that_is_known():
    known = brought(None, PODS[1])
    intruder = replace(GROUP, pods=(PODS[0], make_pod(9), *PODS[2:]))
    assert brought(known, make_pod(9), told=intruder) is known


@pytest.mark.parametrize(
    "told", [{"part": 5}, {"part": {"epoch": 1}}, {"pods": 3}, {"part": {"number": "?", "epoch": 2}}]
)
def test_what_is_no_group_is_not_taken_for_one(told):
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        merge_reported(GROUP, told, PODS[0])


def test_to_a_coordinator_that_knows_no_parts_the_others_have_names_that_nobody_has():
    """It reads nothing that it does not know: a field more would be an error there (103)."""
    whole = travelled(to_whole_group(part_of(GROUP, "u1"), PODS[2]))
    assert whole.keys() == {"number", "epoch", "wish", "pods", "reason", "failures", "step", "store_port"}
    assert all(pod.keys() == {field.name for field in fields(Pod)} for pod in whole["pods"])
    group = Generation.from_message(whole)
    assert (group.number, group.epoch, group.failures, group.step, group.membership_number) == (7, 2, 1, 300, 5)
    assert [pod.uid for pod in group.pods if pod.is_known] == ["u1"]
    assert group.pods[2] == PODS[2]
