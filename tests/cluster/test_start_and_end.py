"""Jobs of one name: one after the other, and side by side."""

import pytest

from tests.cluster.templates import command, job

pytestmark = pytest.mark.extended


def test_a_job_deleted_while_it_forms_and_applied_again_at_once_runs_as_the_new_one(team):
    # The master stays in its init container, and is slow to go: its name is still taken when the new job comes.
    slow = command(gpus=0, pod={"initContainers": [waiting_init_container()]})
    team.apply(job(min=2, max=2, template=slow, elasticity={"gracePeriodSeconds": 5}))
    team.wait("pods", lambda: len(team.pods()) == 2)
    old = team.job()["metadata"]["uid"]
    team.kubectl("delete", "eptj", "toy", "--wait=false")
    team.wait_gone("toy")
    team.apply(job(min=2, max=2, template=command(gpus=0)))
    team.wait_for("toy", "Running", pods=2)
    assert team.job()["metadata"]["uid"] != old
    assert team.status()["restarts"] == 0
    labels = [pod["metadata"]["labels"]["elastic-pytorch.dev/job-uid"] for pod in team.all_pods()]
    assert labels == [team.job()["metadata"]["uid"]] * 2


def waiting_init_container():
    return {
        "name": "wait",
        "image": "docker.io/local/base:1",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "sleep 3600"],
    }


def test_two_jobs_of_one_name_of_51_characters_in_two_namespaces_do_not_meet(teams):
    one, two = teams
    name = "n" * 51
    for team, pods in ((one, 2), (two, 1)):
        team.apply(job(name, min=pods, max=pods, template=command("echo $MASTER_ADDR; sleep 3600", gpus=0)))
    one.wait_for(name, "Running", pods=2)
    two.wait_for(name, "Running", pods=1)
    assert one.wait_log(f"{name}-master-0", "\n") != two.wait_log(f"{name}-master-0", "\n")
    one.kubectl("delete", "eptj", name)
    two.wait_for(name, "Running", pods=1)
