"""What goes wrong with a job is told in its conditions, in words that a user can act on."""

import pytest

from elastic_api.job import API_VERSION, PLURAL
from tests.cluster.follow import Follow
from tests.cluster.templates import command, job, script, template

AT_ONCE = {"PET_MAX_RESTARTS": "0"}
"""torchrun itself tries once only."""
CRASH = "import sys\nprint('hello', file=sys.stderr)\nimport no_such_module"
"""All in one stream: a container runtime reads stdout and stderr from two pipes, and may swap lines of the two."""
FIRST = {"maxFailuresWithoutProgress": 0}


def test_crash_at_import_fails_the_job_after_three_incarnations(team):
    with Follow(team.lab, f"/apis/{API_VERSION}/namespaces/{team.name}/{PLURAL}") as jobs:
        team.apply(job(min=2, max=2, template=script(CRASH, env=AT_ONCE)))
        status = team.wait_for("toy", "Failed")
    assert any(map(is_paused, jobs.changes)), "the next try comes after a pause"
    failed, stalled = team.condition("Failed"), team.condition("Stalled")
    assert (failed["status"], failed["reason"], stalled["status"]) == ("True", "RestartLimitReached", "True")
    for words in ("rank", "exit code 1", "Traceback (most recent call last)", "No module named 'no_such_module'"):
        assert words in failed["message"]
    assert "This is failure 3 in a row without progress" in failed["message"]
    assert status["lastFailure"]["logTail"][-1] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert (status["failures"], status["incarnation"]) == (3, 3)
    assert "RestartLimitReached" in team.wait(
        "events", lambda: "RestartLimitReached" in team.events() and team.events()
    )


def is_paused(job):
    ready = [each for each in job.get("status", {}).get("conditions", []) if each["type"] == "Ready"]
    return any(each["reason"] == "Restarting" and "The operator retries in about" in each["message"] for each in ready)


def test_pod_over_its_memory_limit_is_not_reported_as_a_crash(team):
    words = "python3 -c \"print('takes all', flush=True); b'x' * 500_000_000\""
    team.apply(job(template=command(words, gpus=0, limits={"memory": "100Mi"}), recovery=FIRST))
    last = team.wait_for("toy", "Failed")["lastFailure"]
    assert "exit code 137 (OOMKilled)" in team.condition("Failed")["message"]
    assert (last["exitCode"], last["logTail"][0]) == (137, "takes all")


@pytest.mark.extended
def test_missing_image_or_missing_torch_is_reported(team):
    # In the local cluster torch comes with the GPUs.
    bare = {"template": template(gpus=0, args=["train.py"]), "runtime": {"mode": "Elastic"}}
    team.apply(job("absent", template=command(gpus=0, image="docker.io/local/none:1")), job("bare", **bare))
    team.wait("the reason", lambda: "ErrImageNeverPull" in team.condition("Ready", "absent").get("message", ""))
    ready = team.condition("Ready", "absent")
    assert "docker.io/local/none:1" in ready["message"]
    assert ready["status"] == "False"
    status = team.wait_for("bare", "Failed")
    message = team.condition("Failed", "bare")["message"]
    for words in ("python3: it lacks torch", "python: ", "Use an image with PyTorch", "spec.runtime.python"):
        assert words in message
    assert status.get("failures", 0) == 0
