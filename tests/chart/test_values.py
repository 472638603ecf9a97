"""Each value of values.yaml does something, is described, and is refused with its name where it cannot work."""

import json
import re
from functools import cache
from tempfile import NamedTemporaryFile

import pytest
import yaml

from generate.values_table import VALUES, values
from tests.chart.rendering import CHART, WITH_PROMETHEUS, WITHOUT_CRDS, helm, render

pytestmark = pytest.mark.programs

DEFAULTS = {value.key: yaml.safe_load(value.default) for value in values(VALUES.read_text()) if value.default}

ALL_ON = {
    "settings.jobNetworkPolicy.enabled": True,
    "settings.plainPodQuota.enabled": True,
    "networkPolicy.enabled": True,
}
"""What must be on for other values to matter."""

INSTEAD = {
    "settings.reclaim.maxEvictionsPerDecision": 7,
    "settings.reclaim.maxEvictionsPerMinute": 7,
    "image.tag": "2",
    "image.digest": f"sha256:{'1' * 64}",
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "mirror"}],
    "workerImage.tag": "2",
    "workerImage.digest": f"sha256:{'1' * 64}",
    "workerImage.pullSecrets": ["mirror"],
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one-more"}}],
    "settings.flavors": [{"name": "h100", "resources": ["nvidia.com/gpu"]}],
    "settings.defaultPolicy.borrowing": {"weight": 2},
    "settings.defaultPolicy.perJob": {"maxGPUs": 8},
    "settings.defaultPolicy.priority": 1,
    "settings.reclaim.mode": "Off",
    "settings.jobPriorityClassNames": ["team-high"],
    "settings.nominateFor": ["another-scheduler"],
    "settings.provisioning": "PendingPods",
    "settings.watchNamespaces": ["team-a"],
    "settings.jobNetworkPolicy.ingress": [{}],
    "admission.preemptingClasses": ["notebooks"],
    "admission.exemptNamespaces": ["kube-system", "gpu-operator"],
    "settings.logging.format": "json",
    "settings.logging.level": "debug",
    "metrics.podMonitor.enabled": False,
    "metrics.prometheusRule.enabled": False,
    "metrics.prometheusRule.disabled": ["ElasticPyTorchApiErrors"],
    "metrics.dashboard.enabled": False,
    "networkPolicy.metricsFrom": [{"podSelector": {}}],
    "networkPolicy.apiServerPorts": [8443],
    "tolerations": [{"operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 2}],
    "securityContext.capabilities": {"add": ["NET_BIND_SERVICE"]},
    "podSecurityContext.seccompProfile": {"type": "Localhost"},
    "probes.readiness": {"periodSeconds": 77},
    "probes.liveness": {"periodSeconds": 77},
    "extraEnv": [{"name": "ONE_MORE"}],
    "extraVolumes": [{"name": "one-more"}],
    "extraVolumeMounts": [{"name": "one-more"}],
}
"""Another value, where none can be derived from the default."""

SERVICE_MONITOR = {"metrics.podMonitor.enabled": False, "metrics.serviceMonitor.enabled": True}


def base_of(key):
    """Values, by dotted keys, with which this one matters."""
    base = {"crds.enabled": key.startswith("crds."), **ALL_ON}
    base["settings.plainPodQuota.enabled"] = key != "admission.enabled"  # which it cannot be without
    return base | (SERVICE_MONITOR if key.startswith("metrics.serviceMonitor.") else {})


def another(key, value):
    """A value that is not this one, and fits."""
    if isinstance(value, bool):
        return not value
    if key in INSTEAD:
        return INSTEAD[key]
    if isinstance(value, int | float):
        return value + 1 if value >= 1 else 0.5
    if isinstance(value, dict):
        return value | {"other": "one"}
    return f"7{value}" if re.fullmatch(r"\d+[smh]", value) else "changed"


@cache
def rendered(given):
    """The manifests with some values, on a cluster with the Prometheus operator."""
    nested = {}
    for dotted, value in json.loads(given).items():
        *path, last = dotted.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(nested, file)
        file.flush()
        return render("--values", file.name, *WITH_PROMETHEUS)


@pytest.mark.parametrize("key", sorted(DEFAULTS))
def test_each_value_changes_what_is_installed(key):
    base = base_of(key)
    other = base | {key: another(key, base.get(key, DEFAULTS[key]))}
    assert rendered(json.dumps(base)) != rendered(json.dumps(other))


def test_templates_use_no_value_that_is_not_in_the_values_file():
    known = set(DEFAULTS) | {key.rpartition(".")[0] for key in DEFAULTS}
    known |= {key.rpartition(".")[0] for key in known}
    used = set()
    for path in (CHART / "templates").rglob("*"):
        if path.is_file():
            used |= set(re.findall(r"\.Values\.([A-Za-z.]+)", path.read_text()))
    assert used
    assert used - known == set()


def test_each_value_is_described_by_a_comment_of_its_own_or_above_it():
    described = {value.key for value in values(VALUES.read_text()) if value.description}

    def told(key):
        return bool(key) and (key in described or told(key.rpartition(".")[0]))

    obvious = {
        "resources",
        "priorityClassName",
        "nodeSelector",
        "tolerations",
        "affinity",
        "podAnnotations",
        "podLabels",
    }
    obvious |= {"terminationGracePeriodSeconds", "extraVolumes", "extraVolumeMounts", "serviceAccount.annotations"}
    assert {key for key in DEFAULTS if not told(key)} - obvious == set()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("settings.logging.level=loud", "/settings/logging/level"),
        ("settings.flavors[0].resources={gpu}", "/settings/flavors/0/resources/0"),
        ("settings.flavors[0].resource=nvidia.com/gpu", "resource"),
        ("settings.defaultPolicy.borrowing.limit=-1", "/settings/defaultPolicy/borrowing/limit"),
        ("settings.starvationSeconds=soon", "/settings/starvationSeconds"),
        ("settings.watchNamespaces={Team_A}", "/settings/watchNamespaces/0"),
        ("settings.jobNetworkPolicy.egress=all", "/settings/jobNetworkPolicy/egress"),
        ("admission.exemptNamespaces={Kube_System}", "/admission/exemptNamespaces/0"),
        ("admission.preemptingClasses=all", "/admission/preemptingClasses"),
        ("admission.enabled=false,settings.plainPodQuota.enabled=true", "asks for admission.enabled"),
        ("image.digest=sha256:short", "/image/digest"),
        ("workerImage.pullSecrets={A_Secret}", "/workerImage/pullSecrets/0"),
        ("replicaCount=two", "/replicaCount"),
        ("metrics.podMonitor.enabled=perhaps", "/metrics/podMonitor/enabled"),
        ("metrics.podMonitor.interval=often", "/metrics/podMonitor/interval"),
        ("metrics.prometheusRule.thresholds.apiErrorRatio=10", "/metrics/prometheusRule/thresholds/apiErrorRatio"),
        ("networkPolicy.apiServerPorts={0}", "/networkPolicy/apiServerPorts/0"),
        ("podDisruptionBudget.maxUnavailable=half", "/podDisruptionBudget/maxUnavailable"),
        ("probes.liveness.successThreshold=2", "/probes/liveness/successThreshold"),
        ("serviceAccount.name=No Name", "/serviceAccount/name"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_name(wrong, named):
    result = helm("template", CHART, *WITHOUT_CRDS, "--set", wrong)
    assert result.returncode != 0
    assert named in result.stderr


def test_each_alert_that_can_be_left_out_is_named_as_in_the_rules():
    pattern = json.loads((CHART / "values.schema.json").read_text())["properties"]["metrics"]["properties"][
        "prometheusRule"
    ]["properties"]["disabled"]["items"]["pattern"]
    rules = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    assert all(re.search(pattern, rule["alert"]) for group in rules for rule in group["rules"])
