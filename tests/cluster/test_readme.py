"""Every block of the README is run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.install import REPOSITORY
from devcluster import cluster
from devcluster.progress import Progress
from tests.cluster.lab import Lab

DEMO = "demoreadme"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall((REPOSITORY / "README.md").read_text())
MAKE = [block for block in BLOCKS if block.startswith("make ")]
HELM = [block for block in BLOCKS if block.startswith("helm ")]
TUTORIAL = [block for block in BLOCKS if block.startswith("kubectl ")]


@pytest.fixture
def shell(lab: Lab, teams: list[object]) -> Iterator[dict[str, str]]:
    """The environment of a user who has kubectl and helm for the test's cluster."""
    assert teams is not None
    programs = os.pathsep.join(str(Path(lab.cluster.programs[name]).parent) for name in ("kubectl", "helm"))
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    yield {**os.environ, "KUBECONFIG": str(lab.cluster.kubeconfig), "PATH": path}
    lab.kubectl("delete", "namespace", "tutorial", "--ignore-not-found", "--wait")


@pytest.fixture
def alone() -> Iterator[dict[str, str]]:
    """The environment of a user who has no cluster yet; the one that the demo makes is gone in the end."""
    yield {**os.environ, "NAME": DEMO}
    cluster.take_down(DEMO, progress=Progress(quiet=True))


def run(command: str, environment: dict[str, str], *, seconds: float = 300) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_every_block_of_the_readme_is_run_by_one_of_these_tests() -> None:
    assert sorted(BLOCKS) == sorted(MAKE + HELM + TUTORIAL)
    assert MAKE == ["make demo\nmake test\n", "make demo-quota\n"]  # the second: tests/demo/test_quota_demo.py
    assert "exec make test" in (REPOSITORY / ".ci" / "run").read_text()
    assert len(TUTORIAL) >= 5


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_the_demo_grows_a_job_from_4_to_8_processes_and_back_from_the_last_saved_epoch(alone: dict[str, str]) -> None:
    told = run("make demo", alone, seconds=500)
    rows = [line for line in told.splitlines() if "processes │" in line]
    assert ["4 -> 8" in rows[0], "8 -> 4" in rows[1]] == [True, True]
    for row in rows:
        _, before, after, _, repeated = (cell.strip() for cell in row.strip(" │").split("│"))
        assert 0 < int(before) <= int(after)
        assert int(repeated) <= 1
    assert "make down" in told


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_the_chart_can_be_installed_as_a_page_says(shell: dict[str, str], page: str) -> None:
    blocks = BLOCK.findall((REPOSITORY / page).read_text())
    (install,) = [block.partition("helm test")[0] for block in blocks if block.startswith("helm upgrade")]
    told = run(install.rstrip() + " --dry-run=server", shell)
    assert "kind: Deployment" in told
    assert "image: registry.example.com/team/elastic-operator:" in told


def test_the_plain_manifests_can_be_applied_as_a_page_says(shell: dict[str, str]) -> None:
    blocks = BLOCK.findall((REPOSITORY / "docs" / "install.md").read_text())
    (apply,) = [block for block in blocks if block.startswith("sed ")]
    assert "REGISTRY" not in run(apply.partition("|")[0], shell).partition("\n---\n")[2]
    run(apply.rstrip() + " --force-conflicts --dry-run=server", shell)


@pytest.mark.timeout(600)
def test_the_tutorial_works_line_by_line(lab: Lab, shell: dict[str, str]) -> None:
    lines = [line for block in TUTORIAL for line in block.splitlines()]
    told = {}
    for line in lines:
        told[line] = run(line, shell)
        if line.startswith("kubectl create namespace"):
            lab.cluster.shared_claim("tutorial")
    (columns,) = [text for line, text in told.items() if line.endswith("get elasticpytorchjobs")]
    assert "LIMITED BY" in columns
    assert re.search(r"^toy +(Running|Resizing) ", columns, re.MULTILINE), columns  # its second pod may still start
