"""The alerts as a plain rules file, for a Prometheus without the Prometheus operator.

They stand in the chart's files/alerts.yaml, with <name> in place of each threshold of values.yaml; here the thresholds
are the defaults.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from generate.helm import CHART

PATH = Path("manifests/alerts.yaml")
SOURCE = CHART / "files" / "alerts.yaml"

_HEAD = """\
# Made from charts/elastic-pytorch/files/alerts.yaml by `make generated`; do not edit. docs/alerts.md explains each.
"""
_PLACE = re.compile(r"<(\w+)>")


def text() -> str:
    """The rules file, for `rule_files` of a Prometheus."""
    rule = yaml.safe_load((CHART / "values.yaml").read_text())["metrics"]["prometheusRule"]
    values = rule["thresholds"] | {"runbookUrl": rule["runbookUrl"]}
    source = SOURCE.read_text()
    return _HEAD + _PLACE.sub(lambda place: str(values[place[1]]), source[source.index("groups:") :])


def alerts() -> list[dict[str, Any]]:
    """All alerts with the default thresholds."""
    return [rule for group in yaml.safe_load(text())["groups"] for rule in group["rules"]]
