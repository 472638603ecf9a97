"""The generated files, each with the function that makes its content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elastic_api import crd
from elastic_client import documents
from generate import (
    alert_rules,
    dashboard,
    fields_reference,
    install_manifest,
    llms_text,
    metrics_reference,
    protocol_reference,
    values_table,
)
from generate.helm import ROOT

CHART_CRDS = Path("charts/elastic-pytorch/files/crds")
CLIENT_SCHEMA = Path("client/elastic_client/schema.json")


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file, by its path from the repository's root."""

    path: Path
    text: Callable[[], str]
    needs_helm: bool = False

    def is_current(self) -> bool:
        """Whether the file holds what it should."""
        file = ROOT / self.path
        return file.exists() and file.read_text() == self.text()

    def write(self) -> None:
        """Renews the file."""
        file = ROOT / self.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.text())


# In this order: the last one is rendered from what the others wrote into the chart.
ALL = (
    *(Artifact(Path("crds") / definition.file_name, definition.text) for definition in crd.ALL),
    *(Artifact(CHART_CRDS / definition.file_name, definition.text) for definition in crd.ALL),
    Artifact(values_table.PATH, values_table.text),
    Artifact(dashboard.PATH, dashboard.text),
    Artifact(alert_rules.PATH, alert_rules.text),
    Artifact(metrics_reference.PATH, metrics_reference.text),
    Artifact(fields_reference.PATH, fields_reference.text),
    Artifact(protocol_reference.PATH, protocol_reference.text),
    Artifact(CLIENT_SCHEMA, documents.schema),
    Artifact(llms_text.PATH, llms_text.text),
    Artifact(install_manifest.PATH, install_manifest.text, needs_helm=True),
)
