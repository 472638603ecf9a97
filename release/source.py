"""The source of a release: the files of a commit, its time, and the version that they name."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import yaml

from devcluster import shell
from devcluster.errors import DevclusterError
from devcluster.progress import Progress

ROOT = Path(__file__).parent.parent
PROJECTS = (
    "pyproject.toml",
    "api/pyproject.toml",
    "client/pyproject.toml",
    "operator/pyproject.toml",
    "worker/pyproject.toml",
)
CHART = Path("charts/elastic-pytorch")
PAGE = "docs/release.md"
VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
# A host with or without a port, and a path or none: what stands before /elastic-operator in an image's name.
REGISTRY = re.compile(r"[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The version, and the registry in chart and manifests; "" leaves the registry to be set at the installation."""

    version: str
    registry: str = ""

    def __post_init__(self) -> None:
        if not VERSION.fullmatch(self.version):
            raise DevclusterError(f"VERSION={self.version!r}: write three numbers, as in `make release VERSION=1.2.3`")
        if self.registry and not REGISTRY.fullmatch(self.registry):
            raise DevclusterError(
                f"REGISTRY={self.registry!r}: write a host and a path, as in REGISTRY=registry.example.com/team"
            )


@dataclass(frozen=True, slots=True)
class Source:
    """A folder with the files of a commit and nothing else, and the commit's time in seconds since 1970."""

    folder: Path
    epoch: int


def export(repository: Path, folder: Path, progress: Progress) -> Source:
    """Export the last commit's files into `folder`. Uncommitted files are left out, with a remark."""
    git = ("git", "-C", repository)
    if shell.run(*git, "status", "--porcelain", "--untracked-files=no"):
        progress.say("what is not committed is not in the release")
    archive = folder.with_suffix(".tar")
    shell.run(*git, "archive", "--output", archive, "HEAD")
    folder.mkdir()
    shell.run("tar", "--extract", "--file", archive, "--directory", folder)
    return Source(folder, int(shell.run(*git, "show", "--no-patch", "--format=%ct", "HEAD")))


def check_version(folder: Path, version: str) -> None:
    """Raises DevclusterError with the files that name another version."""
    wrong = {name: found for name, found in versions(folder).items() if found != version}
    if wrong:
        told = ", ".join(f"{name} says {found}" for name, found in wrong.items())
        raise DevclusterError(f"VERSION={version}: {told}; change it there, run `make generated`, and commit")


def versions(folder: Path) -> dict[str, str]:
    """By file that has to name a version, the version that it names."""
    projects = {name: tomllib.loads((folder / name).read_text())["project"]["version"] for name in PROJECTS}
    chart = yaml.safe_load((folder / CHART / "Chart.yaml").read_text())
    charts = {f"{CHART}/Chart.yaml: {key}": str(chart[key]) for key in ("version", "appVersion")}
    page = re.search(r"VERSION=([0-9.]+)", (folder / PAGE).read_text())
    return projects | charts | {PAGE: page[1] if page else "none"}
