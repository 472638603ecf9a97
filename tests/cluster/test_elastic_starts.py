"""Elastic mode on real kubelets: other ways to start."""

import pytest

from devcluster import projectimage
from tests.cluster.elastic import CHECKPOINTS, trainer

pytestmark = pytest.mark.timeout(400)

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
