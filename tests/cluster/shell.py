"""A user's shell on the test's cluster, in a copy of what the pages speak of."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from demo.install import REPOSITORY
from tests.cluster.lab import Lab, Team
from tests.docs.pages import blocks, commands

ENV = 'eval "$(make env)"'
IN_ANOTHER = {"make demo", "make test", "make demo-quota", ENV}
"""What brings up clusters of its own: the demo's test, tests/demo/test_quota_demo.py, and CI's `make test`."""


class Shell:
    """A user's shell in a copy of what the pages speak of, with kubectl and helm for the test's cluster."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        for name in ("charts", "examples", "manifests"):
            shutil.copytree(REPOSITORY / name, folder / name)

    def run(self, command: str, **variables: str) -> str:
        """What the command prints. helm only says what it would do: the operator of the test stays as it is."""
        if command.startswith("helm "):
            command += " --dry-run" if " uninstall " in command else " --dry-run=server"
        return run(command, self.folder, self.environment | variables)

    def run_page(self, page: str, **variables: str) -> dict[str, str]:
        """What each of the page's commands prints."""
        for block in blocks(page, "yaml"):
            if block.first_line == "# values.yaml":
                (self.folder / "values.yaml").write_text(block.text)
        return {line: self.run(line, **variables) for line in commands(page) if line not in IN_ANOTHER}


def programs_of(lab: Lab) -> dict[str, str]:
    """The variables by which kubectl and helm are found, and find the cluster."""
    programs = os.pathsep.join(str(Path(lab.cluster.programs[name]).parent) for name in ("kubectl", "helm"))
    return {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "KUBECONFIG": str(lab.cluster.kubeconfig)}


def shell_of(team: Team, folder: Path) -> Shell:
    """One whose kubectl means the team's namespace."""
    team.lab.cluster.offer_volumes()
    environment = {**os.environ, **programs_of(team.lab), "KUBECONFIG": str(folder / "kubeconfig")}
    (folder / "kubeconfig").write_text(Path(team.lab.cluster.kubeconfig).read_text())
    run(f"kubectl config set-context --current --namespace={team.name}", folder, environment)
    return Shell(folder / "copy", environment)


def run(command: str, folder: Path, environment: dict[str, str], *, seconds: float = 300) -> str:
    """What it prints on its standard output; it must succeed."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout
