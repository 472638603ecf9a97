"""Elastic mode on real kubelets, when something breaks: the others go on, and no pod is replaced that need not be."""

from pathlib import Path

import pytest

from tests.cluster.elastic import fill, trainer
from tests.cluster.templates import foreign_pod

pytestmark = [pytest.mark.extended, pytest.mark.timeout(400)]
TWO_PER_NODE = 2
"""GPUs of a pod, where a node with four is to take two pods."""


def workers(team):
    """The workers that are there, with their uids."""
    return {name: uid for name, uid in team.uids().items() if "worker" in name}


def test_lost_workers_are_replaced_with_or_without_an_operator(team, training):
    training.starts(3)
    group, master = training.trains(3), team.uids()["toy-master-0"]
    training.dies("worker-0", "worker-1")
    group = training.trains(3, after=group)
    with team.lab.no_operator():
        training.dies(team.pods()[-1])
        group = training.trains(2, after=group)
    group = training.trains(3, after=group)
    status = team.wait_for("toy", "Running", pods=3)
    assert team.uids()["toy-master-0"] == master
    assert (status["incarnation"], status["masterEpoch"], status["restarts"], status.get("failures", 0)) == (1, 1, 3, 0)
    training.repeated()


def test_old_master_that_returns_trains_and_overwrites_nothing(team, training):
    # Two free GPUs on each node: the pods are spread, and there is room for another master beside the worker.
    team.apply(foreign_pod("a", gpus=2, node="n1"), foreign_pod("b", gpus=2, node="n2"))
    team.kubectl("wait", "pod/a", "pod/b", "--for=condition=Ready", "--timeout=60s")
    training.starts(2, trainer(gpus=TWO_PER_NODE), recovery={"nodeLossSeconds": 5})
    team.kubectl("delete", "pod", "a", "b")
    group, old, kept = training.trains(2), team.uids()["toy-master-0"], workers(team)
    node = team.lab.cluster.node(team.nodes_of()[0])
    team.lab.move_operator_off(team.nodes_of()[0])
    node.cut_off()
    try:
        group = training.trains(2, after=group)
        assert group[0] == 2
    finally:
        node.heal()
        team.lab.wait_ready()
    training.goes_on()
    steps = training.steps()
    replaced = next(step["time"] for step in steps if step["master_epoch"] == 2)
    assert not [step for step in steps if step["uid"] == old and step["time"] > replaced]
    assert (workers(team), training.last()) == (kept, group)
    status = team.status()
    assert (status["incarnation"], status["masterEpoch"], status.get("failures", 0)) == (1, 2, 0)
    training.repeated()


def test_job_survives_a_full_disk_and_fails_after_repeated_failures(team, training):
    saved, small = "/small/checkpoint.pt", {"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    training.starts(
        2,
        trainer("--checkpoint", saved, volumes=[small], mounts=[{"name": "small", "mountPath": "/small"}]),
        fewest=2,
        checkpoint=saved,
        recovery={"maxFailuresWithoutProgress": 4},
    )
    group, before = training.trains(2), team.uids()
    disk = Path(f"/proc/{training.launcher('master-0')}/root/small")
    fill(disk / "something else")
    team.wait_log("toy-master-0", "No space left on device")
    (disk / "something else").unlink()
    training.trains(2, after=group)
    assert team.uids() == before
    assert training.repeated() >= 1
    (training.folder / "fail-1").touch()
    team.wait_for("toy", "Failed")
    message = team.condition("Failed")["message"]
    for words in ("rank 1", "exit code 1", "Traceback (most recent call last)", "ValueError: the loss is NaN in epoch"):
        assert words in message
    assert "(failure 4 in a row)" in message
