"""The control plane stalls, forgets, or changes its operator just then: as much is done as was asked for, and once."""

import secrets
import threading

import pytest

from elastic_api.job import PLURAL
from tests.cluster.births import Births
from tests.cluster.control_plane import Stalls, forget_history, operators_frozen, relists
from tests.cluster.install import Installation
from tests.cluster.lab import OPERATOR_NAMESPACE, wait
from tests.cluster.leader import Leader
from tests.cluster.policies import guaranteed
from tests.cluster.templates import command, foreign_pod, job

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]

QUICK = {"gracePeriodSeconds": 1}
SLOW_SECONDS = 180.0


def test_stalled_api_server_costs_no_extra_pods(lab, teams):
    borrower, owner = teams
    with guaranteed({borrower: 2, owner: 6}):
        borrower.apply(job(min=1, max=8, template=command(), elasticity=QUICK))
        borrower.wait_for("toy", "Running", pods=8)
        before = borrower.uids()
        with Stalls(lab) as stalls:
            for number, names in enumerate((["first"], ["second", "third"])):
                owner.wait("another stall", lambda number=number: stalls.count > number)
                owner.apply(*(foreign_pod(name) for name in names))
                owner.wait("pods with nodes", lambda names=names: set(names) <= placed(owner), seconds=SLOW_SECONDS)
        assert stalls.count > 1
        borrower.wait_for("toy", "Running", pods=5)
        assert borrower.uids().items() <= before.items()
        assert (borrower.status()["restarts"], borrower.status()["incarnation"]) == (0, 1)


def placed(team):
    """The names of the team's pods that have nodes."""
    return {pod["metadata"]["name"] for pod in team.lab.pods(team.name) if pod["spec"].get("nodeName")}


def test_operator_catches_up_after_etcd_compaction(lab, team):
    team.apply(foreign_pod(gpus=2), job("ends", min=2, max=2, elasticity=QUICK))
    team.wait_for("ends", "Running", pods=2)
    team.apply(job(min=1, max=8, elasticity=QUICK))
    team.wait_for("toy", "Running", pods=4)
    before, listed = team.uids(), relists(lab)
    assert listed
    with operators_frozen(lab):
        lab.cluster.part("apiserver").restart()  # what was sent to the frozen would be read when they are thawed
        wait("the API server to be ready", lab.cluster.api.is_ready)
        team.kubectl("delete", "pod", "foreign", "toy-worker-1", "--wait")
        team.kubectl("delete", PLURAL, "ends", "--wait")
        team.wait("its pods to go", lambda: len(team.lab.pods(team.name)) == 3)
        forget_history(lab)
    status = team.wait_for("toy", "Running", pods=8, limited_by="AtMaximum")
    kept = {name: uid for name, uid in before.items() if name != "toy-worker-1"}
    assert kept.items() <= team.uids().items()
    assert (status["restarts"], status["incarnation"], status.get("failures", 0)) == (1, 1, 0)
    team.wait("the replicas that were frozen to list anew", lambda: all_more(listed, relists(lab)))


def all_more(before, now):
    """A replica that the kubelet has started again meanwhile has listed everything anyway."""
    return all(count > before[replica] for replica, count in now.items() if replica in before)


def test_restored_backup_continues_as_the_runbook_says(lab, team, tmp_path):
    team.apply(job("goes", min=1, max=1, elasticity=QUICK), job(min=1, max=7, elasticity=QUICK))
    team.wait_for("toy", "Running", pods=7)  # its pods know seven as the most: no later size makes them anew
    team.scale("toy", 2)
    team.wait_for("toy", "Running", pods=2)
    team.wait_for("goes", "Running", pods=1)
    before = team.uids()
    lab.cluster.back_up(tmp_path / "etcd")
    team.kubectl("delete", PLURAL, "goes", "--wait")
    team.scale("toy", 4)
    team.wait_for("toy", "Running", pods=4)
    comes = job("comes", min=1, max=2, elasticity=QUICK)
    team.apply(comes)
    team.wait_for("comes", "Running", pods=2)

    operator = ("deployment", "--all", "-n", OPERATOR_NAMESPACE)
    lab.kubectl("scale", *operator, "--replicas=0")
    lab.cluster.restore(tmp_path / "etcd")
    assert (team.job("goes") is not None, team.job("comes")) == (True, None)
    team.kubectl("delete", PLURAL, "goes", "--wait")
    team.apply(comes)
    lab.kubectl("scale", *operator, "--replicas=2")
    lab.kubectl("rollout", "restart", "deployment", "-n", OPERATOR_NAMESPACE)
    lab.kubectl("rollout", "status", "deployment", "-n", OPERATOR_NAMESPACE, "--timeout=180s")

    team.wait_for("comes", "Running", pods=2)
    status = team.wait_for("toy", "Running", pods=2)
    assert team.uids() == before
    assert (status["restarts"], status["incarnation"], status.get("failures", 0)) == (0, 1, 0)
    team.scale("toy", 7)  # no GPU is held any more by what the API server does not know
    team.wait_for("toy", "Running", pods=6, seconds=SLOW_SECONDS)


def test_training_resizes_while_leaders_are_killed_and_upgraded(lab, team, training):
    leader, installation = Leader(lab), Installation(lab)
    training.starts(1)
    uid, master = team.job()["metadata"]["uid"], team.uids()["toy-master-0"]
    with Births(lab, team.name) as births:
        group = training.last()
        for size in (3, 1):
            leader.wait_until_leads()
            pid = leader.wait_until_there()
            births.wait_for_news(lambda size=size: team.scale("toy", size), seconds=3.0)
            leader.kill(pid)
            group = training.trains(size, after=group)
        team.wait_for("toy", "Running", pods=1)  # a pod that is still leaving would stay if it is wanted again
        replaced = installation.uids()
        another = f"podAnnotations.upgraded={secrets.token_hex(3)}"
        upgrade = threading.Thread(target=installation.install, args=("--set-string", another))
        upgrade.start()
        for size in (2, 1):
            team.scale("toy", size)
            group = training.trains(size, after=group)
        upgrade.join()
        made = births.pods_of(uid)
    wait("the old replicas to go", lambda: not replaced & installation.uids())
    status = team.wait_for("toy", "Running", pods=1)
    assert (status["restarts"], status["incarnation"], status["masterEpoch"], status.get("failures", 0)) == (0, 1, 1, 0)
    assert team.uids() == {"toy-master-0": master}
    assert made == {1: 1 + 2 + 1}
    assert training.repeated() == 0
