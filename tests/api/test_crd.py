"""The CRD says everything that the models say, in the form that Kubernetes wants, and the file is current."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from elastic_operator.api import crd
from elastic_operator.api.job import JobSpec
from elastic_operator.api.status import JobStatus

FILE = Path(__file__).parents[2] / "crds" / f"{crd.GROUP}_{crd.PLURAL}.yaml"
SCHEMA = crd.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of the schema with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


NODES = dict(nodes(SCHEMA))


def test_the_file_is_what_the_models_generate():
    assert FILE.read_text() == crd.generate(), f"{FILE.name} is not current: run `make crds`"


def test_the_file_is_plain_yaml_that_reads_back_as_the_manifest():
    text = crd.generate()
    assert yaml.safe_load(text) == crd.manifest()
    assert "&id" not in text


def test_every_field_has_a_description_that_is_a_sentence():
    for path, node in NODES.items():
        if path.startswith(".metadata"):
            continue
        if not path.endswith("[]"):
            description = node.get("description", "")
            assert description.endswith("."), f"{path}: {description!r}"


def test_every_field_of_the_models_is_in_the_schema():
    assert NODES[".spec"]["properties"].keys() == JobSpec.model_json_schema()["properties"].keys()
    assert NODES[".status"]["properties"].keys() == JobStatus.model_json_schema()["properties"].keys()


def test_the_schema_is_structural():
    forbidden = {
        "$ref",
        "$defs",
        "anyOf",
        "allOf",
        "oneOf",
        "not",
        "title",
        "additionalProperties",
        "const",
        "nullable",
    }
    for path, node in NODES.items():
        assert not forbidden & node.keys(), path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert node.get("type") != "null", path
        assert node.get("default", "") is not None, path


def test_every_optional_field_of_the_spec_but_those_that_mean_something_by_absence_has_a_default():
    absent_means_none = {
        ".spec.allowedReplicas",
        ".spec.replicaStep",
        ".spec.master",
        ".spec.worker",
        ".spec.activeDeadlineSeconds",
        ".spec.ttlSecondsAfterFinished",
    }
    without = {
        f"{path}.{name}"
        for path, node in NODES.items()
        if path.startswith(".spec")
        for name, child in node.get("properties", {}).items()
        if name not in node.get("required", ()) and "default" not in child
    }
    assert without == absent_means_none


def test_the_status_has_no_defaults_so_that_it_reads_back_as_written():
    assert not [path for path, node in NODES.items() if path.startswith(".status") and "default" in node]


def test_the_templates_are_opaque():
    for path in (".spec.template", ".spec.master.template", ".spec.worker.template"):
        assert NODES[path]["x-kubernetes-preserve-unknown-fields"] is True
        assert NODES[path]["type"] == "object"


@pytest.mark.parametrize("rule", crd.RULES, ids=lambda rule: rule.message[:40])
def test_a_rule_says_what_to_write_and_points_at_a_field_of_the_schema(rule: crd.Rule):
    assert "must" in rule.message
    assert "\n" not in rule.message
    path = "".join(f".{name}" for name in (*rule.at, *filter(None, [rule.field])))
    assert path in NODES
    assert rule.manifest() in NODES["".join(f".{name}" for name in rule.at)]["x-kubernetes-validations"]
