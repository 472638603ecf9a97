"""manifests/install.yaml: the chart with its defaults, for who installs with kubectl alone."""

from __future__ import annotations

import re
from pathlib import Path

from generate import helm

PATH = Path("manifests/install.yaml")

_HEAD = """\
# The chart with its defaults, made by `make generated`; do not edit.
#
#   kubectl apply --server-side --filename manifests/install.yaml
---
apiVersion: v1
kind: Namespace
metadata:
  name: elastic-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""
_HELMS_OWN = re.compile(r"^ +(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", re.MULTILINE)


def text() -> str:
    """All objects, without what would say that helm manages them."""
    rendered = helm.render("--skip-tests", "--set", "crds.keep=false")
    return _HEAD + _HELMS_OWN.sub("", rendered)
