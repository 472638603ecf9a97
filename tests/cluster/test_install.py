"""The operator comes, changes and goes with helm. Jobs never notice, and nothing waits for an operator that is gone."""

import threading
import time
from datetime import datetime
from itertools import pairwise

import pytest

from demo.install import NAMESPACE, RELEASE
from elastic_api.job import PLURAL
from tests.cluster.elastic import Training
from tests.cluster.follow import Follow
from tests.cluster.install import RELEASED, Installation
from tests.cluster.leader import LEASES, holders
from tests.cluster.policies import guaranteed
from tests.cluster.templates import command, foreign_pod, job

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


@pytest.fixture
def installation(lab):
    """The release as it is; at the end the present chart is installed, whatever the test did to it."""
    found = Installation(lab)
    yield found
    found.install()


def containers(team):
    """Each pod of the team: its uid, and how often its containers were started again."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            [status["restartCount"] for status in pod["status"].get("containerStatuses", [])],
        )
        for pod in team.lab.pods(team.name)
    }


def test_jobs_survive_upgrade_rollback_and_operator_absence(team, installation):
    installation.uninstall()
    installation.install(chart=RELEASED)
    released = installation.version()
    training = Training(team)
    training.starts(2)
    team.apply(job("other", min=1, max=3, template=command(gpus=0)))
    team.wait_for("other", "Running", pods=3)
    before = containers(team)

    installation.install()
    assert installation.version() != released
    team.scale("other", 2)
    team.wait_for("other", "Running", pods=2)
    del before["other-worker-1"]
    team.wait("the pods that stay to be as they were", lambda: containers(team) == before)

    installation.roll_back()
    assert installation.version() == released
    team.scale("other", 1)
    team.wait_for("other", "Running", pods=1)
    del before["other-worker-0"]
    team.wait("the pods that stay to be as they were", lambda: containers(team) == before)

    installation.uninstall()
    training.goes_on()
    team.wait("the pods that stay to be as they were", lambda: containers(team) == before)
    team.kubectl("delete", PLURAL, "other", "--wait", "--timeout=60s")
    team.wait("the pod of the deleted job to go", lambda: "other-master-0" not in containers(team))

    installation.install()
    team.scale("toy", 1)
    team.wait_for("toy", "Running", pods=1)
    training.goes_on()
    status = team.status()
    assert (status["restarts"], status["incarnation"], training.repeated()) == (0, 1, 0)
    training.nothing_left()


def test_deleted_crds_delete_all_jobs_on_request(team, installation):
    team.apply(job(min=2, max=2, template=command(gpus=0)))
    team.wait_for("toy", "Running", pods=2)
    installation.install("--set", "crds.keep=false")
    installation.uninstall()
    team.wait("the pods to go", lambda: not containers(team))
    team.wait("their API to go", lambda: "elastic-pytorch.dev" not in team.lab.kubectl("api-versions"))
    ours = ("all,secrets,leases", "-n", NAMESPACE, "-l", "app.kubernetes.io/part-of", "-o", "name")
    team.wait("nothing of the release to be left", lambda: team.lab.kubectl("get", *ours) == "")

    installation.install()
    team.apply(job(min=1, max=1, template=command(gpus=0)))
    team.wait_for("toy", "Running", pods=1)


def test_helms_own_test_finds_the_operator_at_work(installation):
    assert "Succeeded" in installation.kube.helm("test", RELEASE, "--namespace", NAMESPACE, "--timeout", "60s")


class Visitors:
    """Pods of an owner who comes back, one every so often, and how long each waited for the GPU that was lent."""

    def __init__(self, team, *, every):
        self.team, self.every = team, every
        self.asked, self.done = {}, threading.Event()
        self.thread = threading.Thread(target=self._come)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def _come(self):
        while not self.done.wait(self.every) and len(self.asked) < 7:
            name = f"visitor-{len(self.asked)}"
            self.asked[name] = time.time()
            self.team.apply(foreign_pod(name, gpus=1))

    def waited(self):
        """Seconds from creation to being bound, by pod, on the API server's clock; None for one that still waits."""
        return {pod["metadata"]["name"]: waited(pod) for pod in self.team.lab.pods(self.team.name)}


def waited(pod):
    scheduled = [
        c for c in pod["status"].get("conditions", []) if c["type"] == "PodScheduled" and c["status"] == "True"
    ]
    return (
        seconds(scheduled[0]["lastTransitionTime"]) - seconds(pod["metadata"]["creationTimestamp"])
        if scheduled
        else None
    )


def seconds(text):
    return datetime.fromisoformat(text).timestamp()


def test_gpus_are_given_back_all_through_a_rolling_upgrade(lab, teams, installation):
    borrower, owner = teams
    with guaranteed({borrower: 1, owner: 7}):
        borrower.apply(job(min=1, max=8, template=command(), elasticity={"gracePeriodSeconds": 1}))
        borrower.wait_for("toy", "Running", pods=8)
        before = installation.uids()
        with Follow(lab, LEASES) as leases:
            with Visitors(owner, every=2.0) as visitors:
                installation.install("--set", "podAnnotations.upgraded=yes")
                owner.wait("all visitors to come", lambda: len(visitors.asked) == 7, seconds=60)
            owner.wait("the old replicas to go", lambda: not before & installation.uids())
            owner.wait("all visitors to be there", lambda: None not in visitors.waited().values())
        print(f"seconds that each waited for its GPU: {visitors.waited()}")
        assert len(visitors.waited()) == 7
        held = holders(leases.changes)
        assert len(set(held) - {""}) > 1
        assert all("" in pair for pair in pairwise(held)), "nobody waits for the end of a lease"
        assert borrower.pods() == ["master-0"]
