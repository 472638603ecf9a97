"""The examples with torch itself: real process groups that change their size and go on from the last saved epoch."""

import re
from collections import Counter

import pytest

from tests.cluster.examples import TRAIN, example, give_files, give_volume
from tests.cluster.lab import IMPORT_SECONDS
from tests.cluster.shell import shell_of
from tests.examples.folders import on_a_cluster

EPOCH = re.compile(r"^\[\d+\] epoch (\d+) \(rank = (\d+), local_rank = (\d+)\) loss = [\d.]+$", re.MULTILINE)
LOADED = "load checkpoint from /checkpoints/"


@pytest.mark.timeout(400)
def test_toy_resizes_suspends_and_resumes_from_its_checkpoint(team):
    give_files(team, "toy-script", train_py=TRAIN)
    give_volume(team)
    team.apply(example("toy", gpus=2, maxReplicas=1, args=["--pause", "0.3", "--epochs", "100000"]))
    team.wait_for("toy", "Running", pods=1)
    master = team.uids()["toy-master-0"]
    team.wait_log("toy-master-0", ") loss =", times=6)

    team.scale("toy", 2)
    trains(team, size=4)
    assert len({(rank, local) for _, rank, local in EPOCH.findall(team.logs("toy-worker-0"))}) == 2
    with team.following("toy-worker-0") as last_words:
        team.scale("toy", 1)
        trains(team, size=2, groups=2)
        workers_log = last_words()
    status = team.wait_for("toy", "Running", pods=1, limited_by="AtMaximum")
    assert (status["restarts"], status["incarnation"], team.uids()["toy-master-0"]) == (0, 1, master)
    assert team.column("MAX") == "1"
    log = team.logs("toy-master-0")
    for line in ("Initializing process group with: {", "train worker starting...", LOADED):
        assert line in log
    last = is_without_a_gap(log, workers_log, changes=2)

    team.edit("toy", suspend=True)
    team.wait_for("toy", "Suspended", limited_by="Suspended")
    team.wait("the pods to go", lambda: team.all_pods() == [])
    team.edit("toy", suspend=False)
    status = team.wait_for("toy", "Running", pods=1)
    log = team.wait_log("toy-master-0", ") loss =", times=6)
    assert LOADED in log
    assert is_without_a_gap(log, changes=0) > last
    assert (status["restarts"], status.get("failures", 0), status["incarnation"]) == (0, 0, 2)


def is_without_a_gap(*logs, changes):
    """The last epoch; none is left out, and each change had at most the one under way begun again.

    torchrun ranks pods by their addresses as texts: 10.0.0.10 comes before 10.0.0.9, so any pod may have rank 0.
    """
    found = Counter(int(epoch) for log in logs for epoch, rank, _ in EPOCH.findall(log) if rank == "0")
    epochs = sorted(found)
    assert epochs == list(range(epochs[0], epochs[-1] + 1)), found
    assert max(found.values()) <= 2, found
    assert found.total() - len(found) <= changes, found
    return epochs[-1]


def trains(team, *, size, groups=1):
    """Until the master's group has that many processes (for the n-th time) and has trained some epochs."""

    def trained():
        parts = team.logs("toy-master-0").split(f"'WORLD_SIZE': '{size}'")
        # Two processes of the master say so each time.
        return len(parts) > 2 * groups and len(EPOCH.findall(parts[-1])) > 5

    team.wait(f"training on {size} processes", trained, seconds=120)


GROUP = re.compile(r"'WORLD_SIZE': '(\d+)'")


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_readme_commands_resize_the_toy_and_replace_a_pod(team, tmp_path):
    """Those of examples/toy/README.md: all processes save one file, and no epoch is left out."""
    shell = shell_of(team, tmp_path)
    apply, shrink, grow, delete, again, show = on_a_cluster("toy")

    def trains(processes):
        """Until so many have trained three epochs that the master has not told before."""
        last = max((int(epoch) for epoch, *_ in EPOCH.findall(team.logs("toy-master-0"))), default=-1)

        def found():
            text = team.logs("toy-master-0")
            sizes = GROUP.findall(text)
            told = EPOCH.findall(text.rpartition("'WORLD_SIZE'")[2])
            return sizes[-1:] == [str(processes)] and any(int(epoch) >= last + 3 for epoch, *_ in told)

        team.wait(f"{processes} processes to train", found, seconds=IMPORT_SECONDS)

    for line, processes in ((apply, 8), (shrink, 4), (grow, 8)):
        shell.run(line)
        trains(processes)
    before = set(team.uids().values())
    shell.run(delete)
    team.wait("another worker", lambda: set(team.uids().values()) - before)
    trains(8)
    shell.run(again)
    trains(4)
    # Of each pod's first process; that of the master was in every group.
    told = Counter(int(epoch) for epoch, _, local in EPOCH.findall(shell.run(show)) if local == "0")
    assert sorted(told) == list(range(max(told) + 1)), told
    assert told.total() - len(told) <= 5, "its group changed twice for the pod that was replaced, and thrice by a scale"
    status = team.status()
    assert (status.get("failures", 0), status["incarnation"], status["restarts"]) == (0, 1, 1)


@pytest.mark.extended
@pytest.mark.timeout(400)
def test_the_job_of_fixed_size_trains_and_survives_the_loss_of_a_pod(team):
    give_files(team, "toy-script", train_py=TRAIN)
    give_volume(team)
    team.apply(example("fixed-size", args=["--pause", "0.3"]))
    team.wait_for("fixed-size", "Running", pods=2)
    team.wait_log("fixed-size-master-0", ") loss =", times=3)
    team.delete_pod("fixed-size-worker-0")
    team.wait_log("fixed-size-master-0", "load checkpoint from /checkpoints/fixed-size.pt", seconds=120)
    worker = team.wait("a new worker", lambda: [pod for pod in team.pods("fixed-size") if pod != "master-0"])[0]
    team.wait_log(f"fixed-size-{worker}", ") loss =", times=3, seconds=120)
    status = team.wait_for("fixed-size", "Running", pods=2)
    assert (status["restarts"], status.get("failures", 0), status["incarnation"]) == (1, 0, 1)
