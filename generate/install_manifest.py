"""manifests/install.yaml: the chart with its defaults, for an installation with kubectl alone.

The place of the images is REGISTRY there, which must be replaced before the file is applied.
"""

from __future__ import annotations

import re
from pathlib import Path

from generate import helm

PATH = Path("manifests/install.yaml")

_HEAD = """\
# The chart with its defaults, made by `make generated`; do not edit.
#
#   {}
---
apiVersion: v1
kind: Namespace
metadata:
  name: elastic-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""
_PLACEHOLDER = "REGISTRY"
_REPLACE = f"sed s#{_PLACEHOLDER}/#registry.example.com/team/#"
_APPLY = "kubectl apply --server-side --filename {}"
_HELMS_OWN = re.compile(r"^ +(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", re.MULTILINE)


def text(chart: Path = helm.CHART, *, registry: str = "") -> str:
    """All objects, without helm's labels and annotations. `registry`: the registry of the images, if known."""
    where = ("--set", f"image.registry={registry or _PLACEHOLDER}")
    rendered = helm.render("--skip-tests", "--set", "crds.keep=false", *where, chart=chart)
    command = _APPLY.format("install.yaml") if registry else f"{_REPLACE} install.yaml | {_APPLY.format('-')}"
    return _HEAD.format(command) + _HELMS_OWN.sub("", rendered)
