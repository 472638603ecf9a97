"""docs/fields.md: every field of the two custom resources with its default and meaning, from their definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from elastic_api import crd

PATH = Path("docs/fields.md")

_HEAD = """\
<!-- Made from the definitions (crds/) by `make generated`; do not edit. -->
# Fields

All fields of ElasticPyTorchJob and GPUQuotaPolicy, with their meanings and defaults. On a cluster
`kubectl explain elasticpytorchjob.spec --recursive` shows the same. A field in **bold** is required. The operator
writes `status` and never `spec`.
"""
_COLUMNS = "| field | default | what it is |\n|---|---|---|\n"


def text() -> str:
    """The whole page."""
    return _HEAD + "".join(_kind(yaml.safe_load(definition.text())["spec"]) for definition in crd.ALL)


def _kind(spec: Mapping[str, Any]) -> str:
    version = spec["versions"][-1]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    columns = "".join(
        f"| `{column['name'].upper()}` | `{column['jsonPath']}` |\n" for column in version["additionalPrinterColumns"]
    )
    tables = "".join(f"\n### {part}\n\n{_COLUMNS}{''.join(_rows(schema[part], ''))}" for part in ("spec", "status"))
    names = ", ".join(f"`{name}`" for name in [spec["names"]["plural"], *spec["names"].get("shortNames", ())])
    shown = f"\n### Columns of `kubectl get`\n\n| column | field |\n|---|---|\n{columns}"
    return f"\n## {spec['names']['kind']}\n\nFor kubectl: {names}.\n{tables}{shown}"


def _rows(schema: Mapping[str, Any], before: str) -> Iterator[str]:
    """A row for each field, its own fields below it. A pod template is that of Kubernetes."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        path = f"{before}{name}"
        shown = f"**`{path}`**" if name in required else f"`{path}`"
        default = f"`{_written(field['default'])}`" if "default" in field else ""
        about = field.get("description", "").replace("|", r"\|").replace("\n", " ")
        yield f"| {shown} | {default} | {about} |\n"
        yield from _rows(field, f"{path}.")
        yield from _rows(field.get("items", {}), f"{path}[].")


def _written(default: object) -> str:
    return str(yaml.safe_dump(default, default_flow_style=True, width=1000)).removesuffix("...\n").strip()
