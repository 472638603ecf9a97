"""The chart's README: what can be set, from values.yaml, where a comment above a key is its description."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from generate.helm import CHART, ROOT

PATH = (CHART / "README.md").relative_to(ROOT)
VALUES = CHART / "values.yaml"

_HEAD = """\
<!-- Made from values.yaml by `make generated`; do not edit. -->
# elastic-pytorch

The operator of elastic PyTorch jobs, its custom resources and its settings. One release per cluster.

```
helm upgrade --install elastic-pytorch charts/elastic-pytorch --namespace elastic-system --create-namespace \\
  --set image.registry=$REGISTRY
helm test elastic-pytorch --namespace elastic-system
```

`$REGISTRY` is the registry to which you push the images: [docs/release.md](../../docs/release.md).
Upgrade, rollback, uninstallation, and the requirements of a cluster: [docs/install.md](../../docs/install.md).
The chart refuses a key that is not in this table.

| key | default | what it is |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Value:
    """One key. `default` is "" for a key that only holds others."""

    key: str
    default: str
    description: str


def text() -> str:
    """The whole README."""
    rows = (f"| `{v.key}` | {_code(v.default)} | {_cell(v.description)} |" for v in values(VALUES.read_text()))
    return _HEAD + "\n".join(rows) + "\n"


def values(source: str) -> list[Value]:
    """All keys of a values file with a default, and those above them that have a description, in the file's order."""
    root = yaml.compose(source, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    return list(_below(root, source, source.splitlines(), path=""))


def _below(node: yaml.MappingNode, source: str, lines: list[str], *, path: str) -> Iterator[Value]:
    for key, value in node.value:
        name = f"{path}.{key.value}".lstrip(".")
        description = _comment_above(lines, key.start_mark.line)
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            if description:
                yield Value(name, "", description)
            yield from _below(value, source, lines, path=name)
        else:
            yield Value(name, _default(value, source), description)


def _default(node: yaml.Node, source: str) -> str:
    """A value on one line, as it stands in the file where that is one line."""
    written = source[node.start_mark.index : node.end_mark.index].strip()
    if "\n" not in written and "#" not in written:
        return written
    data = yaml.safe_load(yaml.serialize(node))
    return yaml.safe_dump(data, default_flow_style=True, sort_keys=False, width=1000).strip()


def _comment_above(lines: list[str], line: int) -> str:
    """The sentences of the comment that ends right above a line; "" where there is none."""
    first = line
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(text.strip().removeprefix("#").strip() for text in lines[first:line])


def _code(default: str) -> str:
    return f"`{default}`" if default else ""


def _cell(description: str) -> str:
    return description.replace("|", "\\|")
