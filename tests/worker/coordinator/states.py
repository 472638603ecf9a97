"""Builders for the coordinator's state: a job of some pods, at time 0, with defaults."""

from elastic_worker.coordinator.member import Member, Running
from elastic_worker.coordinator.model import Failure, Generation, Membership, Pod
from elastic_worker.coordinator.state import CoordinatorState, Phase, Rules


def make_pod(index, *, processes=1):
    """Pod 0 is the master."""
    name = f"toy-worker-{index - 1}" if index else "toy-master-0"
    return Pod(f"u{index}", name, f"10.0.0.{index}", processes, is_master=index == 0, index=max(0, index - 1))


def make_membership(*indices, number=1, fewest=2, most=8, **more):
    return Membership(number, frozenset(f"u{i}" for i in indices), fewest, most, **more)


def make_group(*indices, number=1, epoch=1, membership_number=1, **more):
    return Generation(number, epoch, membership_number, tuple(make_pod(i) for i in indices), **more)


def member(index, *, warm=0.0, **more):
    return Member(make_pod(index), warm_at=warm, store_port=4000, **more)


def make_state(*members, membership=None, rules=None, **more):
    defaults = {"own_uid": "u0", "epoch": 1, "rules": rules or Rules(), "started": 0.0}
    return CoordinatorState(**{**defaults, **more}, membership=membership, members={m.pod.uid: m for m in members})


def training(*indices, membership=None, rules=None, **more):
    """These pods train as generation 1."""
    group = more.pop("group", None) or make_group(*indices)
    return make_state(
        *(member(i, processes=Running(group.number)) for i in indices),
        membership=membership or make_membership(*indices),
        group=group,
        phase=Phase.RUNNING,
        phase_since=1.0,
        rules=rules,
        **more,
    )


def failure(index, *, generation=1, rank=0, message="boom", **more):
    return Failure(generation, rank, 1, message, pod=make_pod(index).name, **more)
