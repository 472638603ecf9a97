"""Elastic mode on real kubelets, when all goes as planned: pods come and go; other ways to start."""

from itertools import groupby

import pytest

from devcluster import projectimage
from tests.cluster.elastic import CHECKPOINTS, trainer
from tests.cluster.examples import ELASTIC, Example

pytestmark = pytest.mark.timeout(400)
FROM_1_TO_3_AND_BACK = ([1, 3, 1], [1, 2, 3, 1], [1, 3, 2, 1], [1, 2, 3, 2, 1])
"""Two pods that come may be ready at two checkpoints, one after the other, and two that are told to go may leave so."""


@pytest.mark.parametrize("name", ELASTIC)
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
    assert name != "library" or all(team.column(title, name) for title in ("PROGRESS", "ETA"))
    status = team.status(name)
    assert (status["restarts"], status["incarnation"], status["masterEpoch"], status.get("failures", 0)) == (0, 1, 1, 0)


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
