"""A script that uses the library, as pods on real kubelets: whoever comes or goes, the others' processes stay."""

import re
from itertools import groupby

import pytest

from tests.cluster.elastic import IMPORT_SECONDS
from tests.cluster.examples import FOLDER, FROM_1_TO_3_AND_BACK, example, give_files, give_volume

pytestmark = pytest.mark.timeout(400)
EPOCH = re.compile(r"^epoch (\d+) on (\d+) processes", re.MULTILINE)
STARTED = re.compile(r"\d+ processes started")
FORCE = ("--force", "--grace-period=0")


@pytest.fixture
def job(team):
    """The example, with so many epochs that no test sees the end."""
    give_files(team, "library-script", train_py=FOLDER / "library" / "train.py")
    give_volume(team)

    def start(pods):
        team.apply(example("library", maxReplicas=pods, args=["--epochs", "100000", "--pause", "0.02"]))
        trains(team, pods)

    return start


def epochs(team):
    """What the present master has said: epochs and the number of processes that trained them."""
    return [(int(epoch), int(size)) for epoch, size in EPOCH.findall(team.logs("library-master-0"))]


def trains(team, pods, *, after=-1):
    """Until three epochs on end, later than that one, were trained by so many."""

    def last_three():
        return [size for epoch, size in epochs(team) if epoch > after][-3:]

    team.wait(f"epochs on {pods} processes", lambda: last_three() == [pods] * 3, seconds=IMPORT_SECONDS)


def loses(team, pod):
    """The pod ends without warning; returns the last epoch told until its successor had started its processes."""
    before = team.uids("library").values()
    team.delete_pod(pod, *FORCE)

    def successor():
        return [name for name, uid in team.uids("library").items() if uid not in before and starts(team, name)]

    team.wait(f"a pod in place of {pod}", successor, seconds=IMPORT_SECONDS)
    return epochs(team)[-1][0]


def starts(team, pod):
    """How often the pod's processes were started."""
    return len(STARTED.findall(team.logs(pod)))


def test_it_grows_and_shrinks_and_no_process_starts_again(team, job):
    job(1)
    team.scale("library", 3)
    trains(team, 3)
    team.scale("library", 1)
    trains(team, 1)
    history = team.wait("what the changes cost", lambda: costs(team))
    assert [(c["reason"], c["from"], c["to"], c["lostSteps"]) for c in history] == [
        ("ScaledDown", 3, 1, 0),
        ("ScaledUp", 1, 3, 0),
    ]
    told = epochs(team)
    assert [epoch for epoch, _ in told] == list(range(len(told)))
    assert [size for size, _ in groupby(size for _, size in told)] in FROM_1_TO_3_AND_BACK
    assert starts(team, "library-master-0") == 1
    status = team.status("library")
    assert (status["restarts"], status["incarnation"], status["masterEpoch"], status.get("failures", 0)) == (0, 1, 1, 0)


def costs(team):
    """The changes of size once it is known what the last one cost."""
    changes = [change for change in team.status("library")["history"] if change["from"] and change["to"]]
    return changes if "pauseSeconds" in changes[0] else []


@pytest.mark.extended
def test_workers_and_the_master_are_lost_and_the_others_keep_what_they_have(team, job):
    job(3)
    trains(team, 3, after=loses(team, "library-worker-0"))
    with team.lab.no_operator():
        team.delete_pod("library-worker-1", *FORCE)
        trains(team, 2)
    trains(team, 3)
    last = epochs(team)[-1][0]
    before = {pod: starts(team, pod) for pod in team.uids("library") if pod != "library-master-0"}
    assert list(before.values()) == [1, 1]
    assert starts(team, "library-master-0") == 1
    team.delete_pod("library-master-0", *FORCE)
    team.wait("a new master", lambda: team.status("library").get("masterEpoch") == 2)
    trains(team, 3)
    assert {pod: starts(team, pod) for pod in before} == before
    assert epochs(team)[0][0] >= last
    status = team.status("library")
    assert (status["incarnation"], status.get("failures", 0)) == (1, 0)
