"""The examples of Elastic mode, as pods on real kubelets: whoever comes or goes, no epoch is left out or repeated.

One of them uses the library: the others' processes stay.
"""

import re
from itertools import groupby

import pytest

from tests.cluster.elastic import IMPORT_SECONDS
from tests.cluster.examples import FOLDER, example, give_files, give_volume

pytestmark = pytest.mark.timeout(400)
EPOCH = re.compile(r"^epoch (\d+) on (\d+) processes", re.MULTILINE)
STARTED = re.compile(r"\d+ processes started")
FORCE = ("--force", "--grace-period=0")
ARGUMENTS = {"elastic": ["--steps", "5"], "library": ["--pause", "0.02"]}
"""What makes the examples quick."""
FROM_1_TO_3_AND_BACK = ([1, 3, 1], [1, 2, 3, 1], [1, 3, 2, 1], [1, 2, 3, 2, 1])
"""Two pods that come may be ready at two checkpoints, one after the other, and two that are told to go may leave so."""


class Example:
    """One of them, with so many epochs that no test sees the end."""

    def __init__(self, team, name, *, pods):
        self.team, self.name = team, name
        give_files(team, f"{name}-script", train_py=FOLDER / name / "train.py")
        give_volume(team)
        team.apply(example(name, maxReplicas=pods, args=["--epochs", "100000", *ARGUMENTS[name]]))
        self.trains(pods)

    def epochs(self):
        """What the present master has said: epochs and the number of processes that trained them."""
        return [(int(epoch), int(size)) for epoch, size in EPOCH.findall(self.team.logs(f"{self.name}-master-0"))]

    def trains(self, pods, *, after=-1):
        """Until three epochs on end, later than that one, were trained by so many."""

        def last_three():
            return [size for epoch, size in self.epochs() if epoch > after][-3:]

        self.team.wait(f"epochs on {pods} processes", lambda: last_three() == [pods] * 3, seconds=IMPORT_SECONDS)

    def loses(self, pod):
        """It ends without warning; returns the last epoch told until its successor had started its processes."""
        before = self.team.uids(self.name).values()
        self.team.delete_pod(pod, *FORCE)

        def successor():
            there = self.team.uids(self.name).items()
            return [name for name, uid in there if uid not in before and self.starts_of(name)]

        self.team.wait(f"a pod in place of {pod}", successor, seconds=IMPORT_SECONDS)
        return self.epochs()[-1][0]

    def starts_of(self, pod):
        """How often the pod's processes were started."""
        return len(STARTED.findall(self.team.logs(pod)))

    def costs(self):
        """The changes of its size, once it is known what each of them cost."""
        changes = [change for change in self.team.status(self.name)["history"] if change["from"] and change["to"]]
        return changes if all("pauseSeconds" in change for change in changes) else []


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_example_grows_and_shrinks_right_after_checkpoints(team, name):
    training = Example(team, name, pods=1)
    master = team.uids(name)
    for size in (3, 1):
        team.scale(name, size)
        training.trains(size)
    history = team.wait("what the changes cost", training.costs)
    assert [(c["reason"], c["from"], c["to"], c["lostSteps"]) for c in history] == [
        ("ScaledDown", 3, 1, 0),
        ("ScaledUp", 1, 3, 0),
    ]
    told = training.epochs()
    assert [epoch for epoch, _ in told] == list(range(len(told)))
    assert [size for size, _ in groupby(size for _, size in told)] in FROM_1_TO_3_AND_BACK
    assert name != "library" or training.starts_of("library-master-0") == 1
    assert team.uids(name) == master
    assert "GenerationFormed" in team.events(name)
    status = team.status(name)
    assert (status["restarts"], status["incarnation"], status["masterEpoch"], status.get("failures", 0)) == (0, 1, 1, 0)


@pytest.mark.extended
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
