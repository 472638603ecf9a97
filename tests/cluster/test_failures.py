"""What goes wrong with a job is told in its conditions, in words that a user can act on."""

import pytest

from elastic_operator.api.job import API_VERSION, PLURAL
from tests.cluster.follow import Follow
from tests.cluster.templates import command, job, script

AT_ONCE = {"PET_MAX_RESTARTS": "0"}
"""torchrun itself tries once only."""
FIRST = {"maxFailuresWithoutProgress": 0}


def test_a_script_that_crashes_at_import_fails_the_job_after_three_incarnations(team):
    with Follow(team.lab, f"/apis/{API_VERSION}/namespaces/{team.name}/{PLURAL}") as jobs:
        team.apply(job(min=2, max=2, template=script("print('hello')\nimport no_such_module", env=AT_ONCE)))
        status = team.wait_for("toy", "Failed")
    assert any(map(is_paused, jobs.changes)), "the next try comes after a pause"
    failed, stalled = team.condition("Failed"), team.condition("Stalled")
    assert (failed["status"], failed["reason"], stalled["status"]) == ("True", "RestartLimitReached", "True")
    for words in ("rank", "exit code 1", "Traceback (most recent call last)", "No module named 'no_such_module'"):
        assert words in failed["message"]
    assert "(failure 3 in a row)" in failed["message"]
    assert (status["failures"], status["incarnation"]) == (3, 3)
    assert "RestartLimitReached" in team.wait(
        "events", lambda: "RestartLimitReached" in team.events() and team.events()
    )


def is_paused(job):
    ready = [each for each in job.get("status", {}).get("conditions", []) if each["type"] == "Ready"]
    return any(each["reason"] == "Restarting" and "Tried again in about" in each["message"] for each in ready)


@pytest.mark.extended
def test_an_image_without_torch_is_named_as_such(team):
    # In the local cluster torch comes with the GPUs.
    team.apply(job(template=script(gpus=0), recovery=FIRST))
    team.wait_for("toy", "Failed")
    message = team.condition("Failed")["message"]
    assert "exit code 127" in message
    assert "Use an image with PyTorch, or give the container a command" in message


def test_a_pod_that_takes_more_memory_than_its_limit_is_told_from_a_crash(team):
    greedy = command("python3 -c \"b'x' * 500_000_000\"", gpus=0, limits={"memory": "100Mi"})
    team.apply(job(template=greedy, recovery=FIRST))
    team.wait_for("toy", "Failed")
    assert "exit code 137 (OOMKilled)" in team.condition("Failed")["message"]


@pytest.mark.extended
def test_an_image_that_is_not_there_is_told_while_the_job_waits(team):
    team.apply(job(template=command(gpus=0, image="docker.io/local/none:1")))
    team.wait("the reason", lambda: "ErrImageNeverPull" in team.condition("Ready").get("message", ""))
    assert "docker.io/local/none:1" in team.condition("Ready")["message"]
    assert team.condition("Ready")["status"] == "False"


@pytest.mark.extended
def test_what_no_node_can_give_is_named_with_what_to_do(team):
    wanted = {
        "selector": (
            {"pod": {"nodeSelector": {"kind": "none"}}},
            "NodeSelectorUnsatisfied",
            "Change the template's nodeSelector",
        ),
        "cpu": ({"requests": {"cpu": "1000"}}, "InsufficientCPUOrMemory", "1000 cpu"),
        "memory": ({"requests": {"memory": "900Ti"}}, "InsufficientCPUOrMemory", "memory"),
        "gpus": ({"gpus": 5}, "InsufficientNodes", "the largest usable node has 4 nvidia.com/gpu"),
    }
    team.apply(*(job(name, template=command(**fields)) for name, (fields, _, _) in wanted.items()))
    for name, (_, limit, words) in wanted.items():
        team.wait_for(name, "Queued", pods=0, limited_by=limit)
        assert words in team.condition("FullSize", name)["message"]
        assert (team.column("STATUS", name), team.column("LIMITED BY", name)) == ("Queued", limit)


@pytest.mark.extended
def test_a_typing_error_in_the_pod_template_makes_the_spec_invalid_until_it_is_mended(team):
    team.apply(job(template=command(gpus=0, enviroment=[])))
    team.wait_for("toy", "InvalidSpec", pods=0)
    assert "enviroment" in team.condition("Ready")["message"]
    assert team.condition("Stalled")["status"] == "True"
    team.edit("toy", suspend=True)
    team.wait_for("toy", "Suspended")
    team.edit("toy", suspend=False, template=command(gpus=0))
    team.wait_for("toy", "Running", pods=1)


@pytest.mark.extended
def test_a_reserved_variable_is_refused_at_once_and_named(team):
    refusal = team.refusal(job(template=command(env={"WORLD_SIZE": "3"})))
    assert "env[0].name: 'WORLD_SIZE': must not be set here, remove it" in refusal


@pytest.mark.extended
def test_a_quota_that_forbids_pods_is_told_and_the_job_starts_when_it_is_lifted(team):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    team.apply(quota)
    team.wait(
        "the quota to be counted",
        lambda: "pods" in team.kubectl("get", "quota", "none", "-o", "jsonpath={.status.used}"),
    )
    team.apply(job(min=2, max=2, template=command(gpus=0)))
    team.wait("the reason", lambda: "exceeded quota: none" in team.condition("Ready").get("message", ""))
    team.kubectl("delete", "quota", "none")
    team.wait_for("toy", "Running", pods=2)
    assert team.status().get("failures", 0) == 0
