"""The CRDs say everything that the models say, in the form that Kubernetes wants."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from elastic_api import crd
from elastic_api.crd import JOB, POLICY
from elastic_api.definition import Definition, Rule

FOLDER = Path(__file__).parents[2] / "crds"


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of the schema with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


def nodes_of(definition: Definition) -> dict[str, dict[str, Any]]:
    return dict(nodes(definition.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))


NODES = {definition.kind: nodes_of(definition) for definition in crd.ALL}

each_definition = pytest.mark.parametrize("definition", crd.ALL, ids=lambda definition: definition.kind)


def test_each_has_a_file_and_there_is_no_other():
    assert {path.name for path in FOLDER.glob("*.yaml")} == {definition.file_name for definition in crd.ALL}


def test_all_definitions_together_are_one_stream_of_yaml():
    assert list(yaml.safe_load_all(crd.generate())) == [definition.manifest() for definition in crd.ALL]


def test_each_is_written_to_a_file_of_its_own(tmp_path: Path):
    crd.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {definition.file_name for definition in crd.ALL}


@each_definition
def test_the_file_is_plain_yaml_that_reads_back_as_the_manifest(definition: Definition):
    assert yaml.safe_load(definition.text()) == definition.manifest()
    assert "&id" not in definition.text()


@each_definition
def test_every_field_has_a_description_that_is_a_sentence(definition: Definition):
    for path, node in NODES[definition.kind].items():
        if path.startswith(".metadata"):
            continue
        if not path.endswith("[]"):
            description = node.get("description", "")
            assert description.endswith("."), f"{path}: {description!r}"


@each_definition
def test_every_field_of_the_models_is_in_the_schema(definition: Definition):
    for section, model in ((".spec", definition.spec), (".status", definition.status)):
        properties = NODES[definition.kind][section]["properties"]
        assert properties.keys() == model.model_json_schema(by_alias=True)["properties"].keys()


@each_definition
def test_the_schema_is_structural(definition: Definition):
    forbidden = {"$ref", "$defs", "anyOf", "allOf", "oneOf", "not", "title", "const", "nullable"}
    for path, node in NODES[definition.kind].items():
        assert not forbidden & node.keys(), path
        assert not {"properties", "additionalProperties"} <= node.keys(), path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert node.get("type") != "null", path
        assert node.get("default", "") is not None, path


ABSENT_MEANS_NONE = {
    JOB.kind: {
        ".spec.allowedReplicas",
        ".spec.replicaStep",
        ".spec.master",
        ".spec.worker",
        ".spec.recovery.maxRestarts",
        ".spec.recovery.finalExitCodes",
        ".spec.activeDeadlineSeconds",
        ".spec.ttlSecondsAfterFinished",
    },
    POLICY.kind: {
        ".spec.namespaces",
        ".spec.namespaceSelector",
        ".spec.namespaceSelector.matchLabels",
        ".spec.namespaceSelector.matchExpressions",
        ".spec.namespaceSelector.matchExpressions[].values",
        ".spec.parent",
        ".spec.flavors",
        ".spec.flavors[].borrowing.limit",
        ".spec.flavors[].lending.limit",
        ".spec.perJob.maxGPUs",
        ".spec.reclaim.gracePeriodSeconds",
        ".spec.timeSharing",
    },
}


@each_definition
def test_each_optional_field_of_the_spec_has_a_default_unless_its_absence_has_a_meaning(
    definition: Definition,
):
    without = {
        f"{path}.{name}"
        for path, node in NODES[definition.kind].items()
        if path.startswith(".spec")
        for name, child in node.get("properties", {}).items()
        if name not in node.get("required", ()) and "default" not in child
    }
    assert without == ABSENT_MEANS_NONE[definition.kind]


@each_definition
def test_the_status_has_no_defaults_so_that_it_reads_back_as_written(definition: Definition):
    found = NODES[definition.kind].items()
    assert not [path for path, node in found if path.startswith(".status") and "default" in node]


@each_definition
def test_lists_and_numbers_of_the_spec_have_bounds(definition: Definition):
    for path, node in NODES[definition.kind].items():
        if path.startswith(".spec") and node.get("type") == "array":
            assert "maxItems" in node, path
        if path.startswith(".spec") and node.get("type") == "integer":
            assert {"minimum", "maximum"} <= node.keys(), path


def test_the_templates_are_opaque():
    for path in (".spec.template", ".spec.master.template", ".spec.worker.template"):
        assert NODES[JOB.kind][path]["x-kubernetes-preserve-unknown-fields"] is True
        assert NODES[JOB.kind][path]["type"] == "object"


RULES = [(definition, rule) for definition in crd.ALL for rule in definition.rules]


@pytest.mark.parametrize(("definition", "rule"), RULES, ids=lambda of: of.kind if isinstance(of, Definition) else "")
def test_a_rule_says_what_to_write_and_points_at_a_field_of_the_schema(definition: Definition, rule: Rule):
    assert "must" in rule.message
    assert "\n" not in rule.message
    at = "".join(name if name == "[]" else f".{name}" for name in rule.at)
    found = NODES[definition.kind]
    assert f"{at}.{rule.field}" in found if rule.field else at in found
    assert rule.manifest() in found[at]["x-kubernetes-validations"]
