"""What the chart grants, read from what it renders; tests/apiserver/rights tells what of it the operator needs."""

import json
import re

import pytest

from elastic_api.template import GPU_RESOURCES
from elastic_operator.build.resource_quota import QUOTA_NAME, build_resource_quota
from elastic_operator.process import LEASE
from tests.chart.rendering import ROOT, WITHOUT_CRDS, objects

pytestmark = pytest.mark.programs

TWO = ("--set", "settings.watchNamespaces={team-a,team-b}")


def rendered(kind, *flags):
    return objects(*WITHOUT_CRDS, *flags, kind=kind)


def named(kind, *flags):
    """By the last word of their names."""
    return {one["metadata"]["name"].removeprefix("elastic-pytorch-"): one for one in rendered(kind, *flags)}


def verbs(roles, resource):
    return {
        verb
        for role in roles
        for rule in role["rules"]
        if resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }


QUOTAS = ("--set", "settings.plainPodQuota.enabled=true")


@pytest.mark.parametrize("flags", [(), TWO, ("--set", "settings.jobNetworkPolicy.enabled=true"), QUOTAS])
def test_no_role_has_a_wildcard_or_a_verb_that_leads_to_more(flags):
    roles = rendered("ClusterRole", *flags) + rendered("Role", *flags)
    told = json.dumps([role["rules"] for role in roles])
    assert '"*"' not in told
    assert not {"escalate", "bind", "impersonate"} & {
        v for role in roles for rule in role["rules"] for v in rule["verbs"]
    }
    assert not any("nonResourceURLs" in rule for role in roles for rule in role["rules"])


def test_what_is_written_in_served_namespaces_is_granted_by_a_role_in_each():
    roles = [role for role in rendered("Role", *TWO) if role["metadata"]["name"].endswith("-serve")]
    bindings = [one for one in rendered("RoleBinding", *TWO) if one["metadata"]["name"].endswith("-serve")]
    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    assert [one["metadata"]["namespace"] for one in bindings] == ["team-a", "team-b"]
    assert {one["roleRef"]["kind"] for one in bindings} == {"Role"}
    assert "operator-serve" not in named("ClusterRole", *TWO)


def bound_cluster_wide(*flags):
    """The operator's roles that are."""
    names = {binding["roleRef"]["name"] for binding in rendered("ClusterRoleBinding", *flags)}
    return {name.removeprefix("elastic-pytorch-operator-") for name in names}


def test_cluster_wide_it_then_reads_only_what_is_needed_to_count_gpus():
    assert bound_cluster_wide(*TWO) == {"observe", "tell", "nominate"}
    roles = named("ClusterRole", *TWO)
    assert [rule["resources"] for rule in roles["operator-tell"]["rules"]] == [["gpuquotapolicies/status"]]
    assert [rule["resources"] for rule in roles["operator-nominate"]["rules"]] == [["pods/status"], ["events"]]
    observe = roles["operator-observe"]
    resources = {resource for rule in observe["rules"] for resource in rule["resources"]}
    claims = {"persistentvolumes", "persistentvolumeclaims"}
    assert resources == claims | {"nodes", "namespaces", "priorityclasses", "deviceclasses", "pods", "gpuquotapolicies"}
    assert {verb for rule in observe["rules"] for verb in rule["verbs"]} == {"list", "watch"}


def test_foreign_pods_have_a_rule_and_a_switch_of_their_own():
    nominate = named("ClusterRole")["operator-nominate"]
    assert [(rule["resources"], rule["verbs"]) for rule in nominate["rules"]] == [(["pods/status"], ["patch"])]
    off = ("--set", "rbac.reclaimForForeignPods=false")
    assert verbs(rendered("ClusterRole", *off), "pods/status") == set()
    assert verbs(rendered("Role", *TWO, *off), "events") == {"create", "patch"}
    assert bound_cluster_wide(*TWO, *off) == {"observe", "tell"}


def test_network_policies_are_written_only_where_jobs_have_some():
    assert verbs(rendered("ClusterRole"), "networkpolicies") == set()
    on = ("--set", "settings.jobNetworkPolicy.enabled=true")
    assert verbs(rendered("ClusterRole", *on), "networkpolicies") == {"get", "create", "update"}
    assert verbs(rendered("Role", *TWO, *on), "networkpolicies") == {"get", "create", "update"}


READERS = ("--set", "metrics.authorization=true")


def test_who_may_read_metrics_is_asked_only_where_not_everybody_may():
    reviews = ("tokenreviews", "subjectaccessreviews")
    for flags, wanted in (((), set()), (READERS, {"create"}), ((*READERS, *TWO), {"create"})):
        assert [verbs(rendered("ClusterRole", *flags), review) for review in reviews] == [wanted] * 2
    assert "metrics-reader" not in named("ClusterRole") | named("Secret") | named("ServiceAccount")


def test_the_account_that_reads_metrics_may_do_nothing_else():
    [rule] = named("ClusterRole", *READERS)["metrics-reader"]["rules"]
    assert rule == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    bindings = [*rendered("ClusterRoleBinding", *READERS), *rendered("RoleBinding", *READERS)]
    theirs = [one["roleRef"]["name"] for one in bindings for who in one["subjects"] if who["name"].endswith("-reader")]
    assert theirs == ["elastic-pytorch-metrics-reader"]
    [secret] = rendered("Secret", *READERS)
    assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "elastic-pytorch-metrics-reader"}
    assert named("ServiceAccount", *READERS)["metrics-reader"]["metadata"]["namespace"] == "elastic-system"


@pytest.mark.parametrize("monitor", ["podMonitor", "serviceMonitor"])
def test_whoever_scrapes_shows_the_token_of_that_account(monitor):
    other = {"podMonitor": "serviceMonitor", "serviceMonitor": "podMonitor"}[monitor]
    which = ("--set", f"metrics.{monitor}.enabled=true", "--set", f"metrics.{other}.enabled=false")
    kind, key = monitor[0].upper() + monitor[1:], {"podMonitor": "podMetricsEndpoints", "serviceMonitor": "endpoints"}
    [told] = rendered(kind, *which, *READERS)
    credentials = {"name": "elastic-pytorch-metrics-reader", "key": "token"}
    assert told["spec"][key[monitor]][0]["authorization"] == {"type": "Bearer", "credentials": credentials}
    [untold] = rendered(kind, *which)
    assert "authorization" not in untold["spec"][key[monitor]][0]


def test_quotas_are_written_only_where_plain_pods_have_some_and_only_under_the_operators_name():
    assert verbs(rendered("ClusterRole"), "resourcequotas") == set()
    for roles in (rendered("ClusterRole", *QUOTAS), rendered("Role", *TWO, *QUOTAS)):
        rules = [rule for role in roles for rule in role["rules"] if "resourcequotas" in rule["resources"]]
        assert {name for rule in rules for name in rule.get("resourceNames", ["any"])} == {"any", QUOTA_NAME}
        assert {verb for rule in rules if "resourceNames" not in rule for verb in rule["verbs"]} == {"create"}
        assert verbs(roles, "resourcequotas") == {"create", "list", "watch", "update", "delete"}
    assert verbs(rendered("ClusterRole", *TWO, *QUOTAS), "resourcequotas") == set()


def test_the_lease_is_the_operators_own():
    [create, rest] = named("Role")["operator-elect"]["rules"]
    assert create["verbs"] == ["create"]
    assert rest["resourceNames"] == [LEASE]


def test_who_writes_policies_has_a_role_that_is_part_of_no_other():
    role = named("ClusterRole")["quota-admin"]
    assert not [label for label in role["metadata"]["labels"] if "aggregate" in label]
    writes = {"create", "update", "patch", "delete", "deletecollection"}
    assert writes < verbs([role], "gpuquotapolicies")
    others = [one for name, one in named("ClusterRole").items() if name != "quota-admin"]
    assert not verbs(others, "gpuquotapolicies") & writes
    assert "quota-admin" not in named("ClusterRole", "--set", "rbac.quotaAdmin=false")
    assert "quota-admin" not in [one["roleRef"]["name"] for one in rendered("ClusterRoleBinding")]


def test_an_installation_may_bring_its_own_rights():
    off = ("--set", "rbac.create=false")
    assert not [name for name in named("ClusterRole", *off) if name.startswith("operator")]
    assert rendered("ClusterRoleBinding", *off) == rendered("RoleBinding", *off) == rendered("Role", *off) == []


def test_admission_is_switched_by_one_value_and_each_policy_is_bound():
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        assert set(named(kind)) == {"jobs", "operator", "pods"}
        assert rendered(kind, "--set", "admission.enabled=false") == []
    bindings = named("ValidatingAdmissionPolicyBinding", *TWO)
    [where] = bindings["jobs"]["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert where["values"] == ["team-a", "team-b"]
    assert "matchResources" not in bindings["operator"]["spec"]


def test_pods_that_evict_are_refused_only_with_the_quotas_and_not_where_the_administrator_says():
    flags = (*QUOTAS, "--set", "admission.preemptingClasses={notebooks}")
    assert "preemption" not in named("ValidatingAdmissionPolicy")
    [rule] = named("ValidatingAdmissionPolicy", *flags)["preemption"]["spec"]["validations"]
    assert '["elastic-pytorch-worker","elastic-pytorch-master","notebooks"]' in rule["expression"]
    binding = named("ValidatingAdmissionPolicyBinding", *flags)["preemption"]["spec"]
    [where] = binding["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert (where["operator"], where["values"]) == ("NotIn", ["kube-system", "elastic-system"])


def test_a_quota_of_the_operators_names_nothing_but_gpus_of_pods_of_no_job():
    rules = named("ValidatingAdmissionPolicy")["operator"]["spec"]["validations"]
    [rule] = [one["expression"] for one in rules if "requests." in one["expression"]]
    made = build_resource_quota("a", {GPU_RESOURCES[0]: 1}, classes=["x"])
    assert json.dumps(made["metadata"]["name"]) in rule
    assert json.dumps(list(made["spec"]["hard"])) in rule


def test_admission_knows_the_gpus_of_all_flavors():
    given = [
        {"name": "a", "resources": ["nvidia.com/gpu"]},
        {"name": "b", "resources": ["amd.com/gpu", "nvidia.com/gpu"], "nodeSelector": {"k": "v"}},
    ]
    flavors = ("--set-json", f"settings.flavors={json.dumps(given)}")
    variables = named("ValidatingAdmissionPolicy", *flavors)["jobs"]["spec"]["variables"]
    assert json.loads(variables[0]["expression"]) == ["nvidia.com/gpu", "amd.com/gpu"]


def test_the_limit_is_for_the_account_under_which_the_operator_runs():
    policy = named("ValidatingAdmissionPolicy", "--set", "serviceAccount.name=mine")["operator"]
    assert '"system:serviceaccount:elastic-system:mine"' in policy["spec"]["matchConditions"][0]["expression"]
    pods = named("ValidatingAdmissionPolicy", "--set", "serviceAccount.name=mine")["pods"]
    assert '"system:serviceaccount:elastic-system:mine"' in pods["spec"]["matchConditions"][0]["expression"]


def test_each_rule_is_explained_with_its_verbs():
    rows = [line for line in (ROOT / "docs" / "security.md").read_text().splitlines() if line.startswith("| ")]
    on = ("--set", "settings.jobNetworkPolicy.enabled=true", *READERS, *QUOTAS)
    operator = [one for name, one in named("ClusterRole", *on).items() if name.startswith("operator")]
    for rule in (rule for role in (*operator, *rendered("Role", *on)) for rule in role["rules"]):
        for resource in rule["resources"]:
            told = [set(re.findall(r"[\w/]+", row.split("|")[1])) for row in rows]
            assert set(rule["verbs"]) <= set().union(*(words for words in told if resource in words)), resource
