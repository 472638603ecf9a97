"""Runs the tools as a person does, and builds the manifests that they read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from elastic_operator.command_line import main
from elastic_operator.tools import snapshot_file
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot
from tests.api.jobs import make_job, make_template, with_gpus
from tests.api.policies import make_policy


class Desk:
    """Files in a folder, and what the tools say of them."""

    def __init__(self, folder: Path, capsys: Any) -> None:
        self.folder, self._capsys = folder, capsys

    def file(self, name: str, content: Any) -> str:
        """A file of JSON, or of the text itself; returns its path."""
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def snapshot(self, snapshot: ClusterSnapshot) -> str:
        """The file of a snapshot."""
        return self.file("snapshot.json", snapshot_file.encode(snapshot))

    def manifests(self, *bodies: dict[str, Any]) -> str:
        """A file of manifests."""
        return self.file("changes.yaml", yaml.safe_dump_all(bodies))

    def says(self, *arguments: str) -> str:
        """What a command that works prints."""
        assert main(list(arguments)) == 0, self._capsys.readouterr().err
        return self._capsys.readouterr().out

    def refuses(self, *arguments: str) -> list[str]:
        """The lines with which a command refuses its input; it prints nothing else."""
        assert main(list(arguments)) == 2
        said = self._capsys.readouterr()
        assert said.out == ""
        return said.err.replace(str(self.folder) + "/", "").splitlines()


def job(name: str, *, namespace: str = "team-a", low: int = 1, high: int = 1, gpus: int = 1, **spec: Any) -> dict:
    """A job's manifest."""
    body = make_job(name, minReplicas=low, maxReplicas=high, template=make_template(with_gpus(gpus)), **spec)
    body["metadata"]["namespace"] = namespace
    return body


def policy(name: str, *namespaces: str, **spec: Any) -> dict[str, Any]:
    """A quota policy's manifest."""
    return make_policy(name, namespaces=list(namespaces), **spec)
