"""A real API server takes what the converters make: its schema, its rules and its pruning have no word against it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from elastic_api import crd
from elastic_api.job import GROUP, PLURAL, VERSION
from elastic_client.convert.manifest import as_written
from elastic_client.convert.pytorchjob import from_pytorchjob
from elastic_client.convert.run import RunFlags, from_flags
from elastic_client.convert.runai import from_runai
from elastic_client.convert.sbatch import from_sbatch
from tests.apiserver.administrator import client_of, install
from tests.apiserver.operators import eventually
from tests.docs.pages import REPOSITORY
from tests.workers import control_plane

pytestmark = pytest.mark.apiserver

FOLDER = Path(__file__).parent
JOBS = f"/apis/{GROUP}/{VERSION}/namespaces/default/{PLURAL}"
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}


def converted():
    """What each converter makes, by where it comes from."""
    for path in sorted((FOLDER / "pytorchjobs").glob("*.yaml")):
        yield path.name, from_pytorchjob(yaml.safe_load(path.read_text()), entrypoint=["python", "t.py"]).manifest
    for path in [*sorted((FOLDER / "scripts").glob("*.sh")), REPOSITORY / "examples" / "slurm" / "sbatch_run.sh"]:
        yield path.name, from_sbatch(path.read_text(), image="i").manifest
    line = "submit-dist pytorch --name x --workers=3 --max-replicas 4 --min-replicas 2 -g 1 -i i -- t.py"
    yield "runai", from_runai(line.split()).manifest
    flags = RunFlags(command=["t.py"], image="i", workers="2:8", gpus="1", mode="Elastic", nproc_per_node="2")
    yield "run", from_flags(flags).manifest
    for path in sorted(REPOSITORY.glob("examples/*/job.yaml")):
        yield f"yaml of {path.parent.name}", as_written(yaml.safe_load(path.read_text()))


def test_the_api_server_accepts_each_converted_manifest(pytestconfig):
    with client_of(control_plane(pytestconfig).kubeconfig) as api:
        install(api, crd.JOB).raise_for_status()
        eventually("jobs are served", lambda: api.get(JOBS).status_code == 200)
        refused = {}
        for name, manifest in converted():
            metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
            answer = api.post(JOBS, params=STRICT, json={**manifest, "metadata": metadata})
            if answer.status_code != 201 or answer.headers.get("Warning"):
                refused[name] = (answer.json().get("message"), answer.headers.get("Warning"))
        assert refused == {}
