"""How jobs start, and how they end well: by success, deletion, clean-up."""

from tests.cluster.templates import command, foreign_pod, job, script


def test_a_job_starts_when_all_of_its_minimum_fits_and_not_before(team):
    team.apply(foreign_pod("a", gpus=3, node="n1"), foreign_pod("b", gpus=3, node="n2"))
    team.kubectl("wait", "pod/a", "pod/b", "--for=condition=Ready", "--timeout=60s")
    team.apply(job(min=3, max=4))
    team.wait_for("toy", "Queued", pods=0, limited_by="InsufficientNodes")
    assert "2 free of 8" in team.condition("FullSize")["message"]
    assert team.all_pods() == []
    team.delete_pod("a")
    status = team.wait_for("toy", "Running", pods=4, limited_by="AtMaximum")
    assert status["worldSize"] == status["gpus"] == 4
    assert (status["restarts"], status.get("failures", 0)) == (0, 0)
    assert team.pods() == ["master-0", "worker-0", "worker-1", "worker-2"]


def test_a_finished_job_keeps_its_ended_pods_and_says_so(team):
    team.apply(job(min=2, max=2, template=script("print('trained')")))
    status = team.wait_for("toy", "Succeeded")
    assert "completionTime" in status
    assert team.column("STATUS") == "Succeeded"
    team.kubectl("wait", "eptj/toy", "--for=condition=Succeeded", "--timeout=5s")
    assert "trained" in team.logs("toy-master-0")
    team.wait("both pods to end", lambda: team.pods() == [])
    assert len(team.all_pods()) == 2
    team.wait("the event", lambda: "Succeeded" in team.events())


def test_clean_pod_policies_and_the_time_to_live_after_the_end(team):
    short = command("exit 0", gpus=0)
    team.apply(
        job("none", template=short, cleanPodPolicy="None"),
        job("all", template=short, cleanPodPolicy="All"),
        job("ttl", template=short, ttlSecondsAfterFinished=3),
    )
    for name in ("none", "all"):
        team.wait_for(name, "Succeeded")
    team.wait("all pods of the job `all` to go", lambda: team.all_pods("all") == [])
    assert len(team.all_pods("none")) == 1
    team.wait_gone("ttl")


def test_a_job_fails_at_its_deadline_and_its_running_pods_go(team):
    team.apply(job(min=2, max=2, template=command(gpus=0), activeDeadlineSeconds=4))
    team.wait_for("toy", "Failed")
    failed = team.condition("Failed")
    assert (failed["status"], failed["reason"]) == ("True", "DeadlineExceeded")
    assert "activeDeadlineSeconds (4)" in failed["message"]
    team.wait("the pods to go", lambda: team.all_pods() == [])


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


def test_two_jobs_of_one_name_in_two_namespaces_do_not_meet(teams):
    one, two = teams
    one.apply(job(min=2, max=2, template=command("echo $MASTER_ADDR; sleep 3600", gpus=0)))
    two.apply(job(min=1, max=1, template=command("echo $MASTER_ADDR; sleep 3600", gpus=0)))
    one.wait_for("toy", "Running", pods=2)
    two.wait_for("toy", "Running", pods=1)
    assert one.wait_log("toy-master-0", "\n") != two.wait_log("toy-master-0", "\n")
    one.kubectl("delete", "eptj", "toy")
    two.wait_for("toy", "Running", pods=1)


def test_a_name_of_51_characters_works_and_one_of_52_is_refused(team):
    team.apply(job("n" * 51, min=2, max=2, template=command(gpus=0)))
    team.wait_for("n" * 51, "Running", pods=2)
    assert "51" in team.refusal(job("n" * 52, template=command(gpus=0)))
