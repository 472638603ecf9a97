"""Runs the project's own helm on the chart."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from devcluster import binaries
from devcluster.progress import Progress

ROOT = Path(__file__).parent.parent
CHART = ROOT / "charts" / "elastic-pytorch"
# What the chart sees of a cluster it is not connected to.
KUBERNETES_VERSION = "1.36.0"


@cache
def program() -> str:
    """The path of helm, built if the cache lacks it."""
    return binaries.ensure(Progress())["helm"]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm; a refusal is for the caller to judge."""
    return subprocess.run([program(), *map(str, arguments)], capture_output=True, text=True, check=False)


def render(*flags: str | Path, chart: Path = CHART) -> str:
    """A chart's manifests, as an installation named elastic-pytorch in elastic-system would send them.

    Raises RuntimeError with helm's words.
    """
    place = ("--namespace", "elastic-system", "--kube-version", KUBERNETES_VERSION)
    result = run("template", "elastic-pytorch", chart, *place, *flags)
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return result.stdout
