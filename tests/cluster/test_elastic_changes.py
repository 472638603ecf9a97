"""Elastic mode on real kubelets, when all goes as planned: pods come and go; other ways to start."""

import re
from itertools import groupby

import pytest

from devcluster import projectimage
from tests.cluster.elastic import CHECKPOINTS, IMPORT_SECONDS, trainer
from tests.cluster.examples import FOLDER, FROM_1_TO_3_AND_BACK, example, give_files, give_volume

pytestmark = pytest.mark.timeout(400)
EPOCH = re.compile(r"^epoch (\d+) on (\d+) processes", re.MULTILINE)


def test_the_example_grows_and_shrinks_right_after_checkpoints(team):
    give_files(team, "elastic-script", train_py=FOLDER / "elastic" / "train.py")
    give_volume(team)
    team.apply(example("elastic", maxReplicas=1, args=["--epochs", "100000", "--steps", "5"]))
    master = ""
    for size in (1, 3, 1):
        team.scale("elastic", size)
        trained = [size] * 3
        what = f"epochs on {size} processes"
        team.wait(what, lambda t=trained: [n for _, n in epochs(team)[-3:]] == t, seconds=IMPORT_SECONDS)
        master = master or team.uids("elastic")["elastic-master-0"]
    history = team.wait("what the changes cost", lambda: costs(team))
    assert [(c["reason"], c["from"], c["to"], c["lostSteps"]) for c in history] == [
        ("ScaledDown", 3, 1, 0),
        ("ScaledUp", 1, 3, 0),
    ]
    told = epochs(team)
    assert [epoch for epoch, _ in told] == list(range(len(told)))
    assert [size for size, _ in groupby(size for _, size in told)] in FROM_1_TO_3_AND_BACK
    assert team.uids("elastic") == {"elastic-master-0": master}
    assert "GenerationFormed" in team.events("elastic")
    status = team.status("elastic")
    assert (status["restarts"], status["incarnation"], status["masterEpoch"], status.get("failures", 0)) == (0, 1, 1, 0)


def epochs(team):
    """What the example's master has said: epochs and the number of processes that trained them."""
    return [(int(epoch), int(size)) for epoch, size in EPOCH.findall(team.logs("elastic-master-0"))]


def costs(team):
    """The changes while the example ran, once it is known what each of them cost."""
    changes = [change for change in team.status("elastic")["history"] if change["from"] and change["to"]]
    return changes if all("pauseSeconds" in change for change in changes) else []


LAUNCH = f"""
torchrun --nproc_per_node=1 --nnodes=2:$WORLD_SIZE --max-restarts=3 \
  --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT --rdzv_backend=c10d /script/train.py {CHECKPOINTS}
echo "torchrun has returned $?"
"""


def test_a_launch_script_that_calls_torchrun_runs_as_it_is(team, training):
    training.starts(2, trainer(command=["bash", "-c", LAUNCH]), fewest=2)
    training.ends()
    assert "torchrun has returned 0" in team.logs("toy-master-0")
    assert training.repeated() == 0
    assert "completionTime" in team.status()
    assert team.column("STATUS") == "Succeeded"
    team.wait("both pods to end", lambda: team.pods() == [])
    assert len(team.all_pods()) == 2, "their logs can be read"
    team.wait("the event", lambda: "Succeeded" in team.events())


@pytest.mark.extended
def test_an_image_that_has_the_package_needs_no_init_container(team, training):
    training.starts(1, trainer(image=projectimage.ref("worker")), runtime={"inject": False})
    assert "initContainers" not in team.all_pods()[0]["spec"]
    training.ends()
