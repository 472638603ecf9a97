"""Runs the real helm on the real chart, for the tests and for `renew`.

A case is a file of values in cases/; what the chart makes of it is checked in under golden/, by the same name. The
resource definitions and the dashboard are left out there: they are generated, long, and compared by tests of their own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from generate.helm import CHART, ROOT, render
from generate.helm import run as helm

__all__ = ["CASES", "CHART", "CRDS", "ROOT", "WITHOUT_CRDS", "case_file", "golden_file", "helm", "objects", "render"]

HERE = Path(__file__).parent
CRDS = ROOT / "crds"
CASES = sorted(path.stem for path in (HERE / "cases").glob("*.yaml"))
WITHOUT_CRDS = ("--set", "crds.enabled=false")
WITH_PROMETHEUS = ("--api-versions", "monitoring.coreos.com/v1")
"""What helm sees of a cluster with the Prometheus operator."""

DASHBOARD = re.compile(r"^(  elastic-pytorch\.json:) \|\n(?:(?:    .*)?\n)*", re.MULTILINE)


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
