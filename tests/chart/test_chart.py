"""What the chart promises: it lints, renders what is checked in, refuses what it does not know, and grants little."""

import json

import pytest
import yaml

from elastic_operator import settings
from tests.chart.rendering import (
    CASES,
    CHART,
    CRDS,
    WITHOUT_CRDS,
    case_file,
    golden_file,
    helm,
    objects,
    render_case,
    run,
)
from tests.chart.renew import COMMAND

pytestmark = pytest.mark.programs

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
WORKER_IMAGE = (
    f"registry.example.com/team/elastic-worker:{yaml.safe_load((CHART / 'Chart.yaml').read_text())['version']}"
)

ABSENT_MEANS_NONE = {
    "settings.defaultPolicy.borrowing.limit",
    "settings.defaultPolicy.perJob.maxGPUs",
    "settings.jobNetworkPolicy.egress",
}
"""Limits: keys that the schema knows, and the defaults do not have."""


def resolved(schema: dict) -> dict:
    """The schema that is meant where one refers to a definition."""
    name = schema.get("$ref", "").removeprefix("#/definitions/")
    return SCHEMA["definitions"][name] if name else schema


def known_keys(schema: dict, path: str = "") -> set[str]:
    """Paths of all keys in the closed objects of a schema."""
    keys = set()
    for key, child in resolved(schema).get("properties", {}).items():
        here = f"{path}.{key}".lstrip(".")
        keys |= {here} | known_keys(child, here)
    return keys


def keys_of(values: dict, schema: dict, path: str = "") -> set[str]:
    """Paths of all keys in `values`, as deep as the schema lists keys."""
    keys = set()
    for key, child in values.items():
        here = f"{path}.{key}".lstrip(".")
        inner = resolved(schema.get("properties", {}).get(key, {}))
        keys |= {here} | (keys_of(child, inner, here) if "properties" in inner else set())
    return keys


@pytest.mark.parametrize("case", CASES)
def test_lint_finds_nothing_to_complain_about(case):
    result = helm("lint", "--strict", CHART, "--values", case_file(case))
    assert result.returncode == 0, result.stdout + result.stderr


def test_without_the_images_registry_nothing_is_rendered_and_helm_says_what_to_write():
    result = run("template", CHART)
    assert result.returncode != 0
    assert "image.registry is not set" in result.stderr
    assert "--set image.registry=registry.example.com/team" in result.stderr


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_those_checked_in(case):
    expected = golden_file(case).read_text() if golden_file(case).exists() else ""
    assert render_case(case) == expected, f"if the change is meant, run `{COMMAND}` and read the diff"


def test_every_golden_file_belongs_to_a_case():
    assert {path.stem for path in golden_file("any").parent.glob("*.yaml")} == set(CASES)


@pytest.mark.parametrize("path", sorted({key.rpartition(".")[0] for key in known_keys(SCHEMA)}))
def test_an_unknown_key_is_refused(path):
    key = f"{path}.typo".lstrip(".")
    result = helm("template", CHART, *WITHOUT_CRDS, "--set", f"{key}=1")
    assert result.returncode != 0
    assert "typo" in result.stderr


def test_values_file_and_schema_know_the_same_keys():
    # Of a probe, only what differs from Kubernetes' defaults stands there.
    known = {key for key in known_keys(SCHEMA) if not key.startswith("probes.")} - {"global"} - ABSENT_MEANS_NONE
    assert {key for key in keys_of(VALUES, SCHEMA) if not key.startswith("probes.")} == known


def test_definitions_pass_through_helm_unchanged_and_outlive_the_release():
    rendered = objects(kind="CustomResourceDefinition")
    for definition in rendered:
        assert definition["metadata"].pop("labels")
        assert definition["metadata"]["annotations"].pop("helm.sh/resource-policy") == "keep"
        if not definition["metadata"]["annotations"]:
            del definition["metadata"]["annotations"]
    assert rendered == [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]


def test_definitions_go_with_the_release_only_when_asked():
    for definition in objects("--set", "crds.keep=false", kind="CustomResourceDefinition"):
        assert "helm.sh/resource-policy" not in definition["metadata"].get("annotations", {})


def test_the_operator_cannot_write_the_spec_of_a_job_or_a_policy():
    for role in objects(*WITHOUT_CRDS, kind="ClusterRole"):
        if "-operator-" in role["metadata"]["name"]:
            specs = {"elasticpytorchjobs", "gpuquotapolicies"}
            verbs = [rule["verbs"] for rule in role["rules"] if specs & set(rule["resources"])]
            assert not {"create", "update", "patch", "*"} & {verb for verbs_ in verbs for verb in verbs_}


def test_everything_with_a_namespace_is_in_the_releases_own():
    kinds = ("Deployment", "ConfigMap", "Service", "ServiceAccount", "Role", "RoleBinding", "PodDisruptionBudget")
    for kind in kinds:
        rendered = objects(*WITHOUT_CRDS, kind=kind)
        assert [o["metadata"]["namespace"] for o in rendered] == ["elastic-system"], kind


def test_the_operators_pods_meet_the_restricted_standard():
    pod = objects(*WITHOUT_CRDS, kind="Deployment")[0]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] != 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all(volume.keys() <= {"name", "configMap"} for volume in pod["volumes"])
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True


def test_a_change_of_settings_replaces_the_pods():
    def annotations(*flags):
        template = objects(*WITHOUT_CRDS, *flags, kind="Deployment")[0]["spec"]["template"]
        return template["metadata"]["annotations"]

    assert annotations() == annotations("--set", "resources=null")
    assert annotations() != annotations("--set", "settings.logging.level=debug")


def test_a_single_replica_has_no_budget_that_would_block_drains():
    assert not objects(*WITHOUT_CRDS, "--set", "replicaCount=1", kind="PodDisruptionBudget")


def settings_file(*flags):
    """What the operator reads."""
    (file,) = [
        config_map["data"]["settings.yaml"]
        for config_map in objects(*WITHOUT_CRDS, *flags, kind="ConfigMap")
        if "settings.yaml" in config_map.get("data", {})
    ]
    return file


@pytest.mark.parametrize("case", CASES)
def test_the_operator_understands_its_settings(case, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(settings_file("--values", case_file(case)))
    given = yaml.safe_load(case_file(case).read_text())
    image = "other.example/mirror/elastic-worker:7" if "workerImage" in given else WORKER_IMAGE
    secrets = given.get("workerImage", {}).get("pullSecrets", [])
    images = {"workerImage": image, "workerImagePullSecrets": secrets}
    access = {"authorizeMetrics": given.get("metrics", {}).get("authorization", False)}
    wanted = VALUES["settings"] | (given.get("settings") or {}) | images | access

    assert settings.load({}, file) == settings.Settings.model_validate(wanted)


def test_the_charts_defaults_are_the_operators():
    assert settings.Settings.model_validate(VALUES["settings"]) == settings.Settings()


def test_the_worker_image_comes_from_where_the_operators_does_unless_it_is_said():
    def image(*flags):
        return yaml.safe_load(settings_file(*flags))["workerImage"]

    assert image() == WORKER_IMAGE
    assert image("--set", "image.registry=mirror.example").startswith("mirror.example/elastic-worker:")
    digest = f"sha256:{'0' * 64}"
    assert image("--set", f"workerImage.digest={digest}") == f"registry.example.com/team/elastic-worker@{digest}"


def test_secrets_are_only_ever_created():
    rules = [rule for role in objects(*WITHOUT_CRDS, kind="ClusterRole") for rule in role["rules"]]
    assert [rule["verbs"] for rule in rules if "secrets" in rule.get("resources", ())] == [["create"]]
