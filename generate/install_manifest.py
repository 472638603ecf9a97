"""manifests/install.yaml: the chart with its defaults, for who installs with kubectl alone.

Where the images are must be said there too: before it is applied, REGISTRY is replaced.
"""

from __future__ import annotations

import re
from pathlib import Path

from generate import helm

PATH = Path("manifests/install.yaml")

_HEAD = """\
# The chart with its defaults, made by `make generated`; do not edit.{place}
#
#   {command}
---
apiVersion: v1
kind: Namespace
metadata:
  name: elastic-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""
_PLACEHOLDER = "REGISTRY"
_PLACE = " Where the images are is yours to say:"
_HELMS_OWN = re.compile(r"^ +(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", re.MULTILINE)


def text(chart: Path = helm.CHART, *, registry: str = "") -> str:
    """All objects, without what would say that helm manages them. `registry`: where the images are, if known."""
    where = ("--set", f"image.registry={registry or _PLACEHOLDER}")
    rendered = helm.render("--skip-tests", "--set", "crds.keep=false", *where, chart=chart)
    apply = "kubectl apply --server-side --filename"
    if registry:
        head = _HEAD.format(place="", command=f"{apply} install.yaml")
    else:
        replaced = f"sed s#{_PLACEHOLDER}/#registry.example.com/team/# manifests/install.yaml"
        head = _HEAD.format(place=_PLACE, command=f"{replaced} | {apply} -")
    return head + _HELMS_OWN.sub("", rendered)
