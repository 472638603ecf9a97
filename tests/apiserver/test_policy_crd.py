"""What the API server makes of the policies' CRD: defaults, refusals, rules, columns, status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from elastic_api.crd import POLICY
from elastic_api.job import GROUP, VERSION
from elastic_api.parse import parse_policy
from elastic_api.policy import COLLECTION, Amounts, FlavorAmounts, JobCounts, PolicyStatus
from elastic_api.status import Condition
from tests.api.policies import full_policy, make_flavor, make_policy
from tests.apiserver.jobs_api import accepted, refused
from tests.apiserver.policies_api import TABLE, Policies

pytestmark = pytest.mark.apiserver

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EXPRESSION = "spec.namespaceSelector.matchExpressions[0].values"


# --- defaults and what is stored


def test_an_empty_policy_gets_the_defaults(policies: Policies):
    stored = accepted(policies.post(make_policy()))["spec"]
    assert stored == {"priority": 0, "perJob": {}, "reclaim": {"minRuntimeSeconds": 0}}


def test_a_flavor_that_is_written_in_part_gets_the_rest_of_its_defaults(policies: Policies):
    stored = accepted(policies.post(make_policy(flavors=[make_flavor(), make_flavor("b", borrowing={"limit": 0})])))
    assert stored["spec"]["flavors"] == [
        {"name": "default", "guaranteed": 0, "borrowing": {"weight": 1}, "lending": {}},
        {"name": "b", "guaranteed": 0, "borrowing": {"weight": 1, "limit": 0}, "lending": {}},
    ]


def test_a_policy_with_every_field_is_stored_as_written(policies: Policies):
    assert accepted(policies.post(full_policy()))["spec"] == full_policy()["spec"]


@pytest.mark.parametrize("policy", [make_policy(), full_policy(), make_policy(flavors=[make_flavor()])])
def test_the_api_servers_defaults_are_the_models(policies: Policies, policy: dict[str, Any]):
    assert parse_policy(accepted(policies.post(policy))) == parse_policy(policy)


def test_null_is_refused_by_server_side_apply(policies: Policies):
    path, options = f"{COLLECTION}/{policies.name('team-a')}", {"fieldManager": "tests", "fieldValidation": "Strict"}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    policy = policies.named(make_policy(parent=None))
    answer = policies.api.patch(path, params=options, headers=headers, json=policy)
    assert "must be of type string" in refused(answer)["spec.parent"]


def test_an_unknown_field_is_refused_where_the_client_asks_for_strictness(policies: Policies):
    answer = policies.post(make_policy(namespace="a"))
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert 'unknown field "spec.namespace"' in answer.json()["message"]


# --- refusals


def selector(operator: str, *values: str) -> dict[str, Any]:
    expression = {"key": "team", "operator": operator, **({"values": list(values)} if values else {})}
    return {"matchExpressions": [expression]}


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"flavors": [make_flavor(guaranteed=-1)]}, "spec.flavors[0].guaranteed", "greater than or equal to 0"),
        ({"flavors": [make_flavor(guaranteed=1.5)]}, "spec.flavors[0].guaranteed", "must be of type integer"),
        ({"flavors": [make_flavor(guaranteed="2")]}, "spec.flavors[0].guaranteed", "must be of type integer"),
        ({"flavors": [make_flavor(guaranteed=10**7)]}, "spec.flavors[0].guaranteed", "less than or equal to 1000000"),
        (
            {"flavors": [make_flavor(borrowing={"limit": -1})]},
            "spec.flavors[0].borrowing.limit",
            "greater than or equal to 0",
        ),
        (
            {"flavors": [make_flavor(borrowing={"weight": -1})]},
            "spec.flavors[0].borrowing.weight",
            "greater than or equal to 0",
        ),
        ({"flavors": [make_flavor(), make_flavor()]}, "spec.flavors[1]", "Duplicate value"),
        ({"flavors": [{"guaranteed": 1}]}, "spec.flavors[0].name", "Required value"),
        ({"flavors": [make_flavor(str(n)) for n in range(65)]}, "spec.flavors", "at most 64 items"),
        ({"namespaces": ["a", "a"]}, "spec.namespaces[1]", "Duplicate value"),
        ({"namespaces": [""]}, "spec.namespaces[0]", "at least 1 chars long"),
        ({"namespaces": "a"}, "spec.namespaces", "must be of type array"),
        ({"parent": ""}, "spec.parent", "at least 1 chars long"),
        ({"perJob": {"maxGPUs": 0}}, "spec.perJob.maxGPUs", "greater than or equal to 1"),
        ({"timeSharing": {}}, "spec.timeSharing.quantumSeconds", "Required value"),
        ({"timeSharing": {"quantumSeconds": 0}}, "spec.timeSharing.quantumSeconds", "greater than or equal to 1"),
        ({"reclaim": {"minRuntimeSeconds": -1}}, "spec.reclaim.minRuntimeSeconds", "greater than or equal to 0"),
        (
            {"namespaceSelector": selector("Is", "a")},
            "spec.namespaceSelector.matchExpressions[0].operator",
            'supported values: "In", "NotIn", "Exists", "DoesNotExist"',
        ),
        (
            {"namespaceSelector": {"matchLabels": {"a": 1}}},
            "spec.namespaceSelector.matchLabels.a",
            "must be of type string",
        ),
    ],
)
def test_a_value_out_of_bounds_is_refused(policies: Policies, spec: dict[str, Any], field: str, message: str):
    assert message in refused(policies.post(make_policy(**spec)))[field]


NEEDS_VALUES = "must name at least one value for the operators In and NotIn"
NEEDS_NONE = "must be absent for the operators Exists and DoesNotExist"
OWN_PARENT = "must be the name of another policy, or absent for a policy that is part of none"


def test_no_rule_is_without_a_test():
    tested = (NEEDS_VALUES, NEEDS_NONE, OWN_PARENT)
    assert [rule.message for rule in POLICY.rules if not rule.message.startswith(tested)] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (selector("In"), NEEDS_VALUES),
        (selector("NotIn"), NEEDS_VALUES),
        (selector("Exists", "a"), NEEDS_NONE),
        (selector("DoesNotExist", "a"), NEEDS_NONE),
    ],
)
def test_an_expression_whose_values_do_not_suit_its_operator_is_refused_with_what_to_write(
    policies: Policies, given: dict[str, Any], message: str
):
    causes = refused(policies.post(make_policy(namespaceSelector=given)))
    assert list(causes) == [EXPRESSION]
    assert message in causes[EXPRESSION]


@pytest.mark.parametrize(
    "given", [selector("In", "a", "b"), selector("NotIn", "a"), selector("Exists"), selector("DoesNotExist"), {}]
)
def test_a_selector_that_says_what_it_means_is_accepted(policies: Policies, given: dict[str, Any]):
    accepted(policies.post(make_policy(namespaceSelector=given)))


def test_a_policy_that_is_its_own_parent_is_refused_with_what_to_write(policies: Policies):
    name = policies.name("team-a")
    causes = refused(policies.post(make_policy(parent=name)))
    assert causes.keys() == {"spec.parent"}
    assert causes["spec.parent"].endswith(f": {OWN_PARENT}")  # before it: the API server's words, others in 1.30


def test_a_policy_may_name_a_parent_that_does_not_exist_yet(policies: Policies):
    accepted(policies.post(make_policy(parent="research")))


# --- status, columns, discovery


def make_status() -> PolicyStatus:
    ready = Condition(type="Ready", status="True", reason="Ready", message="Why.", last_transition_time=NOW)
    return PolicyStatus(
        observed_generation=1,
        total=Amounts(guaranteed=10, used=12, borrowed=2, lent=0, pending=4, limit=14),
        flavors=[FlavorAmounts(name="default", guaranteed=10, used=12, borrowed=2, fair_share=12)],
        jobs=JobCounts(running=3, queued=1),
        conditions=[ready],
    )


def test_the_status_reads_back_as_it_was_written(policies: Policies):
    accepted(policies.post(make_policy()))
    written = make_status().model_dump(mode="json", by_alias=True, exclude_none=True)
    accepted(policies.patch("team-a", {"status": written}, subresource="/status"))
    stored = policies.get("team-a")["status"]
    assert stored == written
    assert PolicyStatus.model_validate(stored) == make_status()


def test_a_write_of_the_spec_leaves_the_status_alone(policies: Policies):
    accepted(policies.post(make_policy()))
    accepted(policies.patch("team-a", {"status": {"jobs": {"running": 7}}}))
    assert "status" not in policies.get("team-a")


def test_columns_show_what_is_guaranteed_and_used(policies: Policies):
    accepted(policies.post(make_policy()))
    status = make_status().model_dump(mode="json", by_alias=True, exclude_none=True)
    accepted(policies.patch("team-a", {"status": status}, subresource="/status"))
    table = policies.get("team-a", accept=TABLE)
    names = [column["name"].upper() for column in table["columnDefinitions"]]
    row = dict(zip(names, table["rows"][0]["cells"], strict=True))
    assert row.pop("AGE").endswith("s")
    assert list(row.items()) == [
        ("NAME", policies.name("team-a")),
        ("GUARANTEED", 10),
        ("USED", 12),
        ("BORROWED", 2),
        ("LENT", 0),
        ("LIMIT", 14),
        ("PENDING", 4),
        ("READY", "True"),
    ]


def test_the_short_name_and_the_category_are_served(policies: Policies):
    resources = policies.api.get(f"/apis/{GROUP}/{VERSION}").json()["resources"]
    found = {resource["name"]: resource for resource in resources if resource["name"].startswith(POLICY.plural)}
    assert found.keys() == {POLICY.plural, f"{POLICY.plural}/status"}
    policy = found[POLICY.plural]
    assert (policy["namespaced"], policy["shortNames"], policy["categories"]) == (False, ["gpuq"], ["ml"])
