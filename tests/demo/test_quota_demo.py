"""The quota demo as users run it, from nothing to its tables. It checks itself; this reads what it says at its end."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from demo.__main__ import DEFAULT_NAME, QUOTA_NAME
from demo.install import REPOSITORY
from devcluster import cluster
from devcluster.progress import Progress

NAME = "demoquota"
SECONDS = 900


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """A cluster name of the test's own; the cluster is gone when the test ends."""
    yield {**os.environ, "NAME": NAME}
    cluster.take_down(NAME, progress=Progress(quiet=True))


def test_each_demo_has_a_cluster_of_its_own_unless_one_is_named():
    given = {name: value for name, value in os.environ.items() if name not in {"NAME", "MAKEFLAGS"}}
    for named, shown in (({}, ""), ({"NAME": NAME}, f"--name {NAME}")):
        command = ["make", "--dry-run", "demo-quota"]
        told = subprocess.run(command, cwd=REPOSITORY, env=given | named, capture_output=True, text=True, check=True)
        (line,) = [line for line in told.stdout.splitlines() if "-m demo quota" in line]
        assert line.partition("-m demo quota")[2].split() == shown.split()
    assert QUOTA_NAME != DEFAULT_NAME


@pytest.mark.extended
@pytest.mark.cluster
@pytest.mark.parametrize(
    "mode", ["Torchrun", *(pytest.param(way, marks=pytest.mark.long) for way in ("Elastic", "Library"))]
)
@pytest.mark.timeout(SECONDS + 60)
def test_borrowed_gpus_go_back_to_their_owner_and_only_as_many_workers_as_needed_leave(
    environment: dict[str, str], tmp_path: Path, mode: str
) -> None:
    file = tmp_path / "demo.json"
    command = ["make", "demo-quota", f"ARGS=--json {file} --mode {mode}"]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    told = json.loads(file.read_text())
    between_three = [size for size, _ in groupby(size for size in told["worldSizes"] if size != 3)]
    assert between_three[:4] == [2, 4, 2, 4], told["worldSizes"]
    assert between_three[4:] in ([], [2]), "pods that take the place of others need not come at the same moment"
    assert told["worldSizes"][-1] == 3, "the job goes on without the lost node"
    assert told["evictedPerRequestedGPU"] == 1.0
    assert [reclaim["pod"] for reclaim in told["reclaims"]] == ["team-b/notebook-1", "team-b/notebook-2"]
    victims = [victim for reclaim in told["reclaims"] for victim in reclaim["victims"]]
    assert sorted(victims) == ["team-a/two-to-four-worker-1", "team-a/two-to-four-worker-2"]
    for reclaim in told["reclaims"]:
        assert 0 <= reclaim["pendingToEvictedSeconds"] <= reclaim["pendingToBoundSeconds"]
        assert reclaim["pendingToBoundSeconds"] <= reclaim["pendingToRunningSeconds"]
        assert reclaim["pod"] in done.stdout
    assert "team-b/notebook-" in told["events"][0], "who lost is told for whom"
    assert f"make down NAME={NAME}" in done.stdout
