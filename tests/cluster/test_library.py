"""A script that uses the library, as pods on real kubelets: whoever is lost, the others' processes stay."""

import pytest

from tests.cluster.examples import Example

FORCE = ("--force", "--grace-period=0")


@pytest.mark.extended
@pytest.mark.timeout(400)
def test_workers_and_the_master_are_lost_and_the_others_keep_what_they_have(team):
    training = Example(team, "library", pods=3)
    training.trains(3, after=training.loses("library-worker-0"))
    with team.lab.no_operator():
        team.delete_pod("library-worker-1", *FORCE)
        training.trains(2)
    training.trains(3)
    last = training.epochs()[-1][0]
    before = {pod: training.starts_of(pod) for pod in team.uids("library") if pod != "library-master-0"}
    assert list(before.values()) == [1, 1]
    assert training.starts_of("library-master-0") == 1
    team.delete_pod("library-master-0", *FORCE)
    team.wait("a new master", lambda: team.status("library").get("masterEpoch") == 2)
    training.trains(3)
    assert {pod: training.starts_of(pod) for pod in before} == before
    assert training.epochs()[0][0] >= last
    status = team.status("library")
    assert (status["incarnation"], status.get("failures", 0)) == (1, 0)


@pytest.mark.extended
@pytest.mark.timeout(400)
def test_workers_train_until_a_new_master_is_ready(team):
    training = Example(team, "library", pods=3)
    first = team.uids("library")["library-master-0"]
    team.delete_pod("library-master-0")
    team.wait("the others to train on", lambda: training.epochs("worker-0"))
    team.wait("a new master", lambda: team.uids("library").get("library-master-0") not in (None, first))
    training.trains(3)
    alone = training.epochs("worker-0")
    assert {size for _, size in alone} == {2}
    assert alone[-1][0] <= training.epochs()[0][0], "the master has the first rank again"
    assert [training.starts_of(f"library-worker-{index}") for index in (0, 1)] == [1, 1]
    status = team.status("library")
    assert (status["incarnation"], status.get("failures", 0)) == (1, 0)
