"""Runs the real helm on the real chart, for the tests and for `renew`.

A case is a file of values in cases/; what the chart makes of it is checked in under golden/, by the same name. The
resource definitions are left out there: they are generated, long, and compared as data by a test of their own.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from devcluster import binaries
from devcluster.progress import Progress

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CHART = ROOT / "charts" / "elastic-pytorch"
CRDS = ROOT / "crds"
CASES = sorted(path.stem for path in (HERE / "cases").glob("*.yaml"))
WITHOUT_CRDS = ("--set", "crds.enabled=false")
# What the chart sees of a cluster it is not connected to.
KUBERNETES_VERSION = "1.36.0"


def case_file(case: str) -> Path:
    """The values of a case."""
    return HERE / "cases" / f"{case}.yaml"


def golden_file(case: str) -> Path:
    """What the chart is known to make of a case."""
    return HERE / "golden" / f"{case}.yaml"


@cache
def helm_program() -> str:
    """The path of helm, built if the cache lacks it."""
    return binaries.ensure(Progress())["helm"]


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm; a refusal is for the caller to judge."""
    return subprocess.run([helm_program(), *map(str, arguments)], capture_output=True, text=True, check=False)


def render(*flags: str | Path) -> str:
    """The chart's manifests, as an installation named elastic-pytorch in elastic-system would send them."""
    place = ("--namespace", "elastic-system", "--kube-version", KUBERNETES_VERSION)
    result = helm("template", "elastic-pytorch", CHART, *place, *flags)
    assert result.returncode == 0, result.stderr
    return result.stdout


def render_case(case: str) -> str:
    """The manifests of a case, without resource definitions."""
    return render("--values", case_file(case), *WITHOUT_CRDS)


def objects(*flags: str | Path, kind: str) -> list[dict[str, Any]]:
    """The rendered objects of one kind."""
    return [o for o in yaml.safe_load_all(render(*flags)) if o and o["kind"] == kind]
