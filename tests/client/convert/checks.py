"""What every manifest of a converter must be."""

from __future__ import annotations

from typing import Any

import yaml

from elastic_api.job import JobSpec
from elastic_api.parse import parse_spec, unused_flags
from elastic_client.convert.converted import Converted
from elastic_client.convert.manifest import to_yaml
from tests.client.convert.schema import mistakes


def accepted(converted: Converted) -> JobSpec:
    """The spec as the operator reads it from the YAML that people get; it has no word against it."""
    body = yaml.safe_load(to_yaml(converted.manifest))
    assert body == converted.manifest
    assert list(mistakes(body)) == []
    spec = parse_spec(body)
    assert unused_flags(spec) == ""
    return spec


def main(converted: Converted) -> dict[str, Any]:
    """The main container."""
    containers = converted.manifest["spec"]["template"]["spec"]["containers"]
    return next(one for one in containers if one["name"] == "pytorch")


def said(converted: Converted) -> str:
    """All lines for people as one text."""
    return "\n".join(converted.lines())
