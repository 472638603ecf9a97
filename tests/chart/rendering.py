"""Runs the real helm on the real chart, for the tests and for `renew`.

A case is a file of values in cases/; what the chart makes of it is checked in under golden/, by the same name. The
resource definitions and the dashboard are left out there: they are generated, long, and compared by tests of their own.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from generate.helm import CHART, ROOT, run
from generate.helm import render as render_chart

__all__ = [
    "CASES",
    "CHART",
    "CRDS",
    "ROOT",
    "WITHOUT_CRDS",
    "case_file",
    "golden_file",
    "helm",
    "objects",
    "render",
    "run",
]

HERE = Path(__file__).parent
CRDS = ROOT / "crds"
REGISTRY = ("--values", HERE / "registry.yaml")
"""The one value that has no default."""
TAKE_VALUES = ("install", "lint", "template", "upgrade")
CASES = sorted(path.stem for path in (HERE / "cases").glob("*.yaml"))
WITHOUT_CRDS = ("--set", "crds.enabled=false")
WITH_PROMETHEUS = ("--api-versions", "monitoring.coreos.com/v1")
"""What helm sees of a cluster with the Prometheus operator."""

DASHBOARD = re.compile(r"^(  elastic-pytorch\.json:) \|\n(?:(?:    .*)?\n)*", re.MULTILINE)


def helm(command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm; where the images are is said, and what the arguments say wins."""
    return run(command, *(REGISTRY if command in TAKE_VALUES else ()), *arguments)


def render(*flags: str | Path) -> str:
    """The manifests with these flags, and with what must be said."""
    return render_chart(*REGISTRY, *flags)


def case_file(case: str) -> Path:
    """The values of a case."""
    return HERE / "cases" / f"{case}.yaml"


def golden_file(case: str) -> Path:
    """What the chart is known to make of a case."""
    return HERE / "golden" / f"{case}.yaml"


def render_case(case: str) -> str:
    """The manifests of a case, without resource definitions and the dashboard's content."""
    return DASHBOARD.sub(r"\1 ...\n", render("--values", case_file(case), *WITHOUT_CRDS))


def objects(*flags: str | Path, kind: str) -> list[dict[str, Any]]:
    """The rendered objects of one kind."""
    return [o for o in yaml.safe_load_all(render(*flags)) if o and o["kind"] == kind]
