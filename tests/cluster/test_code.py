"""Code without an image, on real kubelets with real torch: edit a folder, run it, edit it; what is left if it fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

from demo.install import REPOSITORY
from devcluster.images import BASE_REF
from tests.cluster.lab import IMPORT_SECONDS, Team

TRAIN = """\
import os, sys
from pathlib import Path

import torch.distributed as dist

from parts import helper

dist.init_process_group("gloo")
read = Path("config.txt").read_text().strip()
beside = Path(__file__).with_name("config.txt").read_text().strip()
print("code", helper.VERSION, read, beside, os.getcwd(), dist.get_rank(), dist.get_world_size(), flush=True)
if dist.get_rank() == 0:
    assert os.system("./check.sh") == 0
dist.barrier()
dist.destroy_process_group()
"""
FAILING = """\
import os, sys, time

rank = int(os.environ["RANK"])
print("rank", rank, "begins", flush=True)
if rank == 1:
    print("the licence server is away")
    sys.exit(3)
time.sleep(1000)
"""
ONE_TRY = ("-e", "PET_MAX_RESTARTS=0")
"""Of torchrun's own; the operator makes three."""
CHECK = "#!/bin/sh\necho check.sh may be executed\n"


def elastic(team: Team, *words: str) -> str:
    """What `kubectl elastic` prints."""
    place = ("--kubeconfig", str(team.lab.cluster.kubeconfig), "-n", team.name)
    command = [sys.executable, "-m", "elastic_client", *place, *words]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def configmaps(team: Team) -> list[str]:
    """Those with code."""
    path = f"/api/v1/namespaces/{team.name}/configmaps?labelSelector=elastic-pytorch.dev/code"
    return [one["metadata"]["name"] for one in team.lab.get(path)["items"]]


@pytest.mark.extended
@pytest.mark.timeout(500)
@pytest.mark.parametrize("mode", ["Torchrun", "Elastic"])
def test_an_edited_folder_runs_again_without_an_image(team, tmp_path, mode):
    (tmp_path / "parts").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "config.txt").write_text("configured\n")
    (tmp_path / "check.sh").write_text(CHECK)
    (tmp_path / "check.sh").chmod(0o755)
    for version in ("first", "second"):
        (tmp_path / "parts" / "helper.py").write_text(f"VERSION = {version!r}\n")
        size = ("--workers", "2", "-g", "1", "--nproc-per-node", "1", "--mode", mode)
        elastic(team, "run", "--name", version, "--code", str(tmp_path), *size, "-i", BASE_REF, "--", "train.py")
        team.wait_for(version, "Succeeded", seconds=IMPORT_SECONDS)
        logs = [team.logs(f"{version}-{pod}") for pod in ("master-0", "worker-0")]
        ranks = [f"code {version} configured configured /code {rank} 2" for rank in (0, 1)]
        assert sorted(line for log in logs for line in log.splitlines() if line.startswith("code ")) == ranks, logs
        assert "check.sh may be executed" in "".join(logs)
        assert f"{tmp_path.name}, 4 files" in elastic(team, "describe", version)
    assert len(configmaps(team)) == 2
    elastic(team, "delete", "first", "second")
    team.wait("the code to go with its jobs", lambda: configmaps(team) == [])


@pytest.mark.extended
@pytest.mark.timeout(500)
@pytest.mark.parametrize("mode", ["Torchrun", "Elastic"])
def test_the_last_lines_of_a_failed_rank_can_be_read_when_its_pod_is_gone(team, tmp_path, mode):
    (tmp_path / "train.py").write_text(FAILING)
    size = ("--workers", "2", "-g", "1", "--nproc-per-node", "1", "--mode", mode, *ONE_TRY)
    elastic(team, "run", "--name", "toy", "--code", str(tmp_path), *size, "-i", BASE_REF, "--", "train.py")
    last = team.wait_for("toy", "Failed", seconds=2 * IMPORT_SECONDS)["lastFailure"]
    assert (last["rank"], last["exitCode"]) == (1, 3)
    assert last["logTail"][-2:] == ["rank 1 begins", "the licence server is away"]
    team.kubectl("delete", "pods", "--all", "--wait")
    assert "\n  rank 1 begins\n  the licence server is away\n" in elastic(team, "why", "toy")
