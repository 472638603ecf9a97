"""All CustomResourceDefinitions, as YAML or as files: `python -m elastic_api.crd FOLDER` writes the files."""

from __future__ import annotations

import sys
from pathlib import Path

from elastic_api.job_crd import JOB
from elastic_api.policy_crd import POLICY

ALL = (JOB, POLICY)


def generate() -> str:
    """All definitions as one YAML stream, ready for `kubectl apply -f -`."""
    return "---\n".join(definition.text() for definition in ALL)


def write(folder: Path) -> None:
    """Write each definition to a file of its own."""
    for definition in ALL:
        (folder / definition.file_name).write_text(definition.text())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
