"""How a running job changes its size: into idle GPUs, out of others' way, and as it is told."""

import pytest

from tests.cluster.templates import command, foreign_pod, job, script


def hold(team, *pods):
    """Foreign pods that hold GPUs."""
    team.apply(*pods)
    team.kubectl("wait", *(f"pod/{pod['metadata']['name']}" for pod in pods), "--for=condition=Ready", "--timeout=60s")


def test_a_job_grows_into_gpus_when_a_foreign_pod_ends(team):
    hold(team, foreign_pod("a", gpus=4, node="n1"), foreign_pod("b", gpus=3, node="n2"))
    team.apply(job(min=1, max=3))
    team.wait_for("toy", "Running", pods=1, limited_by="InsufficientNodes")
    assert team.column("LIMITED BY") == "InsufficientNodes"
    team.delete_pod("b")
    status = team.wait_for("toy", "Running", pods=3, limited_by="AtMaximum")
    assert team.column("PODS") == "3"
    assert (status["resizes"], status["restarts"]) == (1, 0)
    assert "ScaledUp" in team.events()


def test_a_newcomers_minimum_takes_the_surplus_of_a_running_job_highest_index_first_and_it_grows_back(team):
    team.apply(job("old", min=1, max=8))
    team.wait_for("old", "Running", pods=8)
    before = team.uids("old")
    team.apply(job("new", min=3, max=3))
    team.wait_for("new", "Running", pods=3)
    team.wait_for("old", "Running", pods=5, limited_by="HigherPriorityJobs")
    kept = team.uids("old")
    assert team.pods("old") == ["master-0", *(f"worker-{i}" for i in range(4))]
    assert kept.items() <= before.items()
    team.kubectl("delete", "eptj", "new")
    team.wait_for("old", "Running", pods=8)
    assert kept.items() <= team.uids("old").items()
    assert team.status("old")["restarts"] == 0


def test_a_job_of_higher_priority_is_served_first_and_takes_the_place_of_a_lower_one(team, priority):
    hold(team, foreign_pod("a", gpus=4, node="n1"))
    team.apply(job("low", min=4, max=4))
    team.wait_for("low", "Running", pods=4)
    team.apply(job("equal", min=3, max=3), job("high", min=3, max=3, priorityClassName=priority))
    team.wait_for("high", "Running", pods=3)
    team.wait_for("low", "Queued", pods=0, limited_by="HigherPriorityJobs")
    team.wait_for("equal", "Queued", pods=0)
    team.kubectl("delete", "eptj", "high", "equal")
    team.wait_for("low", "Running", pods=4)
    assert team.status("low").get("failures", 0) == 0


@pytest.fixture
def priority(team):
    name = f"urgent-{team.name}"
    team.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 10})
    yield name
    team.kubectl("delete", "priorityclass", name)


def test_kubectl_scale_grows_and_shrinks_a_job_and_keeps_its_master(team):
    team.apply(job(min=1, max=1, template=script()))
    master = team.wait_for("toy", "Running", pods=1) and team.uids()["toy-master-0"]
    team.scale("toy", 3)
    team.wait_for("toy", "Running", pods=3, limited_by="AtMaximum")
    team.scale("toy", 2)
    team.wait_for("toy", "Running", pods=2, limited_by="AtMaximum")
    assert team.pods() == ["master-0", "worker-0"]
    assert team.uids()["toy-master-0"] == master
    assert team.status()["restarts"] == 0
    assert team.column("MAX") == "2"


EDITS = [
    ("raise max", {"maxReplicas": 6}, 6),
    ("raise min", {"minReplicas": 4}, 6),
    ("lower max", {"maxReplicas": 4}, 4),
    ("lower min", {"minReplicas": 1}, 4),
    ("shrink both", {"minReplicas": 1, "maxReplicas": 2}, 2),
    ("move both above the size", {"minReplicas": 3, "maxReplicas": 5}, 5),
    ("min = max", {"minReplicas": 3, "maxReplicas": 3}, 3),
    ("move both below the size", {"minReplicas": 1, "maxReplicas": 2}, 2),
    ("one pod", {"minReplicas": 1, "maxReplicas": 1}, 1),
    ("to 2:4", {"minReplicas": 2, "maxReplicas": 4}, 4),
]


@pytest.mark.parametrize("made", [script, command], ids=["args", "command"])
def test_edits_of_min_and_max_in_every_order_end_in_a_consistent_job(team, made):
    """At first each edit comes while the one before is still being carried out, then one after the other."""
    team.apply(job(min=2, max=4, template=made()))
    team.wait_for("toy", "Running", pods=4)
    for _, edit, _ in EDITS:
        team.edit("toy", **edit)
    team.wait_for("toy", "Running", pods=4)
    for what, edit, size in EDITS:
        team.edit("toy", **edit)
        status = team.wait_for("toy", "Running", pods=size, limited_by="AtMaximum")
        assert status.get("failures", 0) == 0, what
        assert status["worldSize"] == size, what
    assert team.status()["restarts"] == 0


def test_growth_waits_for_its_delay_and_edits_do_not(team):
    hold(team, foreign_pod("a", gpus=4, node="n1"), foreign_pod("b", gpus=1, node="n2"))
    team.apply(job(min=1, max=2, elasticity={"scaleUpDelaySeconds": 3600}))
    team.wait_for("toy", "Running", pods=2)
    team.edit("toy", maxReplicas=4)
    team.wait_for("toy", "Running", pods=3, limited_by="InsufficientNodes")
    team.delete_pod("b")
    team.wait_for("toy", "Running", pods=3, limited_by="ScaleUpDelayed")
    assert team.column("LIMITED BY") == "ScaleUpDelayed"
    team.edit("toy", elasticity={"scaleUpDelaySeconds": 0})
    team.wait_for("toy", "Running", pods=4, limited_by="AtMaximum")


def test_only_allowed_sizes_are_taken(team):
    hold(team, foreign_pod("a", gpus=4, node="n1"), foreign_pod("b", gpus=1, node="n2"))
    team.apply(job(min=1, max=4, allowedReplicas=[1, 2, 4]))
    team.wait_for("toy", "Running", pods=2, limited_by="SizeNotAllowed")
    assert team.column("LIMITED BY") == "SizeNotAllowed"
    team.delete_pod("b")
    team.wait_for("toy", "Running", pods=4)
    team.kubectl("patch", "eptj", "toy", "--type=json", "-p", REPLACE_SIZES_BY_STEP)
    team.wait_for("toy", "Running", pods=3, limited_by="AtMaximum")


REPLACE_SIZES_BY_STEP = (
    '[{"op": "remove", "path": "/spec/allowedReplicas"}, {"op": "add", "path": "/spec/replicaStep", "value": 2}]'
)


SAY = r"""
import os, sys, time
e = os.environ
sys.stdout.write(f"rank {e['RANK']} of {e['WORLD_SIZE']} local {e['LOCAL_WORLD_SIZE']}\n")
"""


def test_a_master_with_one_gpu_and_workers_with_two_start_that_many_processes(team):
    stay = SAY + "time.sleep(3600)"
    team.apply(job(min=2, max=2, master={"template": script(stay, gpus=1)}, worker={"template": script(stay, gpus=2)}))
    status = team.wait_for("toy", "Running", pods=2)
    assert (status["worldSize"], status["gpus"]) == (3, 3)
    team.wait_log("toy-master-0", "of 3 local 1")
    workers = team.wait_log("toy-worker-0", "of 3 local 2", times=2)
    ranks = sorted(line.split()[1] for line in (team.logs("toy-master-0") + workers).splitlines() if "of 3" in line)
    assert ranks == ["0", "1", "2"]
