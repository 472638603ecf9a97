"""The blocks of README.md and of docs/ are run as they stand; tests/docs/test_pages.py says which page is run where."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from demo.install import REPOSITORY
from devcluster import cluster
from devcluster.progress import Progress
from tests.cluster.examples import example, give_files, give_volume
from tests.cluster.lab import Lab, Team
from tests.cluster.shell import ENV, Shell, programs_of, run
from tests.docs.pages import blocks, commands

DEMO = "demoreadme"
NAMESPACES = ("tutorial", "trial", "vision")
LABELS = ("elastic-pool-", "gpu-pool-")


@pytest.fixture
def shell(lab: Lab, team: Team, tmp_path: Path) -> Iterator[Shell]:
    """What pages do to the cluster is undone at the end. NODE, NAMESPACE and JOB are as the pages have them."""
    lab.cluster.offer_volumes()
    yield Shell(tmp_path, {**os.environ, **programs_of(lab), "NODE": "n1", "NAMESPACE": team.name, "JOB": "toy"})
    for namespace in NAMESPACES:
        lab.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait")
    lab.kubectl("label", "nodes", "--all", *LABELS)
    for taint in ("upgrade-", "gpu-pool-"):
        lab.try_kubectl("taint", "nodes", "--all", taint)  # an error where no node has it


@pytest.fixture
def alone() -> Iterator[dict[str, str]]:
    """The environment of a user who has no cluster yet; the one that the demo makes is gone in the end."""
    yield {**os.environ, "NAME": DEMO}
    cluster.take_down(DEMO, progress=Progress(quiet=True))


def test_the_first_steps_of_the_readme_are_those_of_the_tutorial() -> None:
    assert commands("README.md")[:2] == ["make demo", "make test"]
    assert "exec make test" in (REPOSITORY / ".ci" / "run").read_text()
    first = [line for line in commands("README.md") if line.startswith("kubectl ")]
    assert len(first) == 5
    assert set(first) <= set(commands("docs/tutorial.md"))
    assert commands("docs/tutorial.md")[0] == ENV


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_demo_shows_both_modes_and_prints_commands_to_copy(
    alone: dict[str, str],
) -> None:
    told = run("make demo", REPOSITORY, alone, seconds=800)
    shown = [line for line in told.splitlines() if "processes │" in line]
    rows = [[cell.strip() for cell in line.strip(" │").split("│")] for line in shown]
    assert [row[:2] for row in rows] == [
        [f"{change} processes", mode] for change in ("4 -> 8", "8 -> 4") for mode in ("Torchrun", "Elastic")
    ]
    for _, mode, before, after, _, repeated in rows:
        assert 0 < int(before) <= int(after)
        assert int(repeated) <= (mode == "Torchrun")
    copied = [line.strip() for line in told.partition("copy:\n")[2].splitlines()]
    assert copied[0] == f'eval "$(make env NAME={DEMO})"'
    assert copied[-1] == f"make down NAME={DEMO}"
    quick = [line for line in copied[:-1] if "logs -f" not in line]
    assert "toy" in run("\n".join(quick), REPOSITORY, alone)
    lines = [line for line in commands("README.md") if line.startswith("kubectl ")]
    first_job = run("\n".join([quick[0], *lines]), REPOSITORY, alone)
    assert re.search(r"^toy +(Running|Resizing) ", first_job, re.MULTILINE), first_job


@pytest.mark.parametrize("page", ["README.md", "docs/install.md"])
def test_the_chart_can_be_installed_as_a_page_says(shell: Shell, page: str) -> None:
    (install,) = [line for line in commands(page) if line.startswith("helm upgrade")]
    assert "image: registry.example.com/team/elastic-operator:" in shell.run(install)


def test_the_plain_manifests_can_be_applied_as_a_page_says(shell: Shell) -> None:
    (apply,) = [line for line in commands("docs/install.md") if line.startswith("sed ")]
    assert "REGISTRY" not in shell.run(apply.partition("|")[0]).partition("\n---\n")[2]
    shell.run(f"{apply} --force-conflicts --dry-run=server")


def test_the_readme_s_changes_of_the_examples_reach_all_of_them(shell: Shell) -> None:
    for line in commands("README.md"):
        if line.startswith("sed "):
            shell.run(line)
    changed = [path.read_text() for path in (shell.folder / "examples").glob("*/*.yaml")]
    assert not any("local/base" in text for text in changed)
    claims = [yaml.safe_load(path.read_text()) for path in (shell.folder / "examples").glob("*/pvc.yaml")]
    assert {claim["spec"]["storageClassName"] for claim in claims} == {"shared"}


@pytest.mark.timeout(600)
def test_the_tutorial_works_line_by_line(shell: Shell) -> None:
    told = shell.run_page("docs/tutorial.md")
    (columns,) = [text for line, text in told.items() if line.endswith("get elasticpytorchjobs")]
    assert "LIMITED BY" in columns
    assert re.search(r"^toy +(Running|Resizing) ", columns, re.MULTILINE), columns  # its second pod may still start


@pytest.mark.extended
@pytest.mark.parametrize("page", ["docs/dry-run.md", "docs/beside-others.md"])
def test_the_guide_works_line_by_line(shell: Shell, page: str) -> None:
    assert shell.run_page(page)


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_the_runbook_works_line_by_line_and_an_upgrade_of_all_nodes_moves_a_pod_once(
    lab: Lab, team: Team, shell: Shell
) -> None:
    give_files(team, "toy-script", train_py=REPOSITORY / "examples" / "toy" / "train.py")
    give_volume(team)
    team.apply(example("toy", maxReplicas=1, args=["--epochs", "100000"], activeDeadlineSeconds=1_234_567))
    team.kubectl("wait", "elasticpytorchjob/toy", "--for=condition=Ready", "--timeout=120s")
    (first,), before = team.nodes_of(), team.uids()
    lab.move_operator_off(first)
    look, again, leader, taint, upgrade, deadlines, stop, start = blocks("docs/runbook.md", "sh")
    assert "toy-master-0" in shell.run(look.text)
    assert "elastic-pytorch-operator-" in shell.run(leader.text)
    assert re.search(rf"^{team.name} toy \S+Z 1234567$", shell.run(deadlines.text), re.MULTILINE)
    shell.run(taint.text)
    seen = []
    for node in (first, *({"n1", "n2"} - {first})):
        shell.run(upgrade.text, NODE=node)
        team.wait_for("toy", "Running", pods=1)
        seen.append(team.uids())
    assert seen[0] != before
    assert seen[1] == seen[0], "it was moved to a node that was still to be upgraded"
    for block in (again, stop, start):
        shell.run(block.text)
    team.kubectl("wait", "elasticpytorchjob/toy", "--for=condition=Ready", "--timeout=120s")
