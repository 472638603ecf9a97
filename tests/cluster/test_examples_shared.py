"""The examples in which others move a job: an autoscaler, a cloud, a team. The lines of each README.md are run."""

import contextlib

import pytest

from tests.cluster.lab import IMPORT_SECONDS, Team
from tests.cluster.shell import shell_of
from tests.examples.folders import epochs_in, on_a_cluster

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]

LONG = 2 * IMPORT_SECONDS


@pytest.fixture
def shell(team, tmp_path):
    """In a copy of the examples."""
    return shell_of(team, tmp_path)


@contextlib.contextmanager
def named_teams(lab, *names, policies):
    """The namespaces that an example names, gone at the end with its policies."""
    made = [Team(lab, name) for name in names]
    try:
        yield made
    finally:
        for team in made:
            print(team.report())
            team.is_removed()
            lab.kubectl("wait", "namespace", team.name, "--for=delete", "--timeout=90s")
        lab.kubectl("delete", "gpuquotapolicies", *policies, "--ignore-not-found")


def trains(team, name, pods, *, after=-1):
    """Until three epochs, later than that one, were trained by so many on end; returns the last one."""

    def last():
        told = [each for each in epochs_in(team.logs(f"{name}-master-0")) if each[0] > after][-3:]
        return told[-1:] if [size for _, size in told] == [pods] * 3 else []

    return team.wait(f"{pods} pods of {name} to train", last, seconds=LONG)[0][0]


def test_an_autoscaler_moves_a_job_within_its_limits(shell, team):
    apply, small, large, show = on_a_cluster("hpa")
    shell.run(apply)
    last = trains(team, "elastic", 3)
    shell.run(small)
    last = trains(team, "elastic", 1, after=last)
    shell.run(large)
    trains(team, "elastic", 3, after=last)
    assert "elastic" in shell.run(show)
    assert team.job("elastic")["spec"]["maxReplicas"] == 3


def test_a_job_on_spot_nodes_loses_no_step_though_a_node_is_taken_each_minute(shell, team):
    apply, wait, take, describe = on_a_cluster("spot")
    shell.run(apply)
    shell.run(wait)
    trains(team, "elastic", 8)
    taken = shell.run(take)
    assert taken.count("is taken") == taken.count("is given back") == 3
    trains(team, "elastic", 8)
    assert "History" in shell.run(describe)
    status = team.status("elastic")
    assert status.get("failures", 0) == 0
    assert sum(change.get("lostSteps", 0) for change in status["history"]) == 0, status["history"]


def test_jobs_of_two_teams_take_turns_and_go_on_where_they_were(shell, lab):
    *first, show = on_a_cluster("time-sharing")
    with named_teams(lab, "team-a", "team-b", policies=["shared"]) as (one, other):
        for line in first:
            shell.run(line)
        trains(one, "elastic", 2)
        with one.following("elastic-master-0") as last_words:
            trains(other, "elastic", 2)
            said = epochs_in(last_words())
        shown = shell.run(show)
        assert {"team-a", "team-b"} <= set(shown.split())
        trains(one, "elastic", 2)
        again = epochs_in(one.logs("elastic-master-0"))
        assert again[0][0] in (said[-1][0], said[-1][0] + 1)
        for team in (one, other):
            status = team.status("elastic")
            assert (status.get("failures", 0), status.get("restarts", 0)) == (0, 0)


def test_training_gives_way_to_a_server_by_day_in_under_a_second_and_takes_the_night(shell, lab):
    apply, day, night, describe = on_a_cluster("by-day")
    with named_teams(lab, "serving", "training", policies=["serving", "training"]) as (serving, training):
        shell.run(apply)
        last = trains(training, "library", 4)
        shell.run(day)
        last = trains(training, "library", 2, after=last)
        serving.kubectl("rollout", "status", "deployment/server", "--timeout=120s")
        (change, *_) = [each for each in training.status("library")["history"] if each["to"] == 2]
        assert change["reason"] == "QuotaReclaimed"

        def pause():
            return [each["pauseSeconds"] for each in training.status("library")["history"] if "pauseSeconds" in each]

        assert max(training.wait("what the change cost", pause)) < 1
        shell.run(night)
        trains(training, "library", 4, after=last)
        assert "Quota" in shell.run(describe)
        assert training.status("library").get("failures", 0) == 0
