"""How large a job is: out of others' way, and of pods of two sizes."""

import pytest

from tests.cluster.templates import command, job, script


def test_new_jobs_minimum_shrinks_a_running_job_highest_index_first(team):
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


SAY = r"""
import os, sys, time
e = os.environ
sys.stdout.write(f"rank {e['RANK']} of {e['WORLD_SIZE']} local {e['LOCAL_WORLD_SIZE']}\n")
"""


@pytest.mark.extended
def test_a_master_with_one_gpu_and_workers_with_two_start_that_many_processes(team):
    stay = SAY + "time.sleep(3600)"
    team.apply(job(min=2, max=2, master={"template": script(stay, gpus=1)}, worker={"template": script(stay, gpus=2)}))
    status = team.wait_for("toy", "Running", pods=2)
    assert (status["worldSize"], status["gpus"]) == (3, 3)
    team.wait_log("toy-master-0", "of 3 local 1")
    workers = team.wait_log("toy-worker-0", "of 3 local 2", times=2)
    ranks = sorted(line.split()[1] for line in (team.logs("toy-master-0") + workers).splitlines() if "of 3" in line)
    assert ranks == ["0", "1", "2"]


@pytest.mark.parametrize("node", ["n2", "n1"])
def test_a_master_runs_on_the_node_that_its_own_template_chooses_and_so_does_its_successor(team, node):
    chosen = command(pod={"nodeSelector": {"kubernetes.io/hostname": node}})
    team.apply(job(min=3, max=3, master={"template": chosen}))
    team.wait_for("toy", "Running", pods=3)
    assert team.nodes_of()[0] == node
    before = team.uids()["toy-master-0"]
    team.delete_pod("toy-master-0", "--force", "--grace-period=0")
    team.wait("another master", lambda: team.uids().get("toy-master-0", before) != before)
    team.wait_for("toy", "Running", pods=3)
    assert team.nodes_of()[0] == node
