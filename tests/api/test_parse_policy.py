"""What a stored policy is read as, and what is said where it cannot be read."""

from typing import Any

import pytest

from elastic_api.invalid import InvalidSpecError
from elastic_api.parse import parse_policy
from elastic_api.policy import Operator
from tests.api.policies import full_policy, make_flavor, make_policy


def refusal(policy: dict[str, Any]) -> str:
    with pytest.raises(InvalidSpecError) as error:
        parse_policy(policy)
    return str(error.value)


def test_an_empty_policy_is_one_that_guarantees_nothing_to_nobody():
    spec = parse_policy(make_policy())
    assert (spec.namespaces, spec.namespace_selector, spec.parent, spec.flavors) == ([], None, None, [])
    assert (spec.priority, spec.per_job.max_gpus, spec.time_sharing) == (0, None, None)


def test_every_field_is_read():
    spec = parse_policy(full_policy())
    quota = spec.flavors[0]
    assert (quota.guaranteed, quota.borrowing.limit, quota.borrowing.weight, quota.lending.limit) == (2, 4, 3, 1)
    assert spec.flavors[1].borrowing.limit is None
    assert spec.namespace_selector is not None
    assert spec.namespace_selector.match_expressions[0].operator is Operator.NOT_IN
    assert (spec.per_job.max_gpus, spec.reclaim.min_runtime_seconds, spec.reclaim.grace_period_seconds) == (
        64,
        600,
        120,
    )


def test_null_means_absent():
    policy = make_policy(parent=None, flavors=[make_flavor(borrowing=None)], timeSharing=None)
    assert parse_policy(policy) == parse_policy(make_policy(flavors=[make_flavor()]))


def test_what_is_written_is_what_is_read():
    assert parse_policy(full_policy()).model_dump(mode="json", by_alias=True, exclude_none=True)["flavors"][0] == {
        "name": "default",
        "guaranteed": 2,
        "borrowing": {"limit": 4, "weight": 3},
        "lending": {"limit": 1},
    }


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"namespace": "a"}, "spec.namespace: 'a': must be absent: there is no such field"),
        ({"namespaces": "a"}, "spec.namespaces: 'a': must be a list"),
        ({"flavors": [make_flavor(guaranteed=-1)]}, "spec.flavors[0].guaranteed: -1: must be at least 0"),
        ({"flavors": [make_flavor(guaranteed=0.5)]}, "spec.flavors[0].guaranteed: 0.5: must be an integer"),
        ({"flavors": [{"guaranteed": 1}]}, "spec.flavors[0].name: must be present"),
        ({"perJob": {"maxGPUs": 0}}, "spec.perJob.maxGPUs: 0: must be at least 1"),
        ({"timeSharing": {}}, "spec.timeSharing.quantumSeconds: must be present"),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            "spec.namespaceSelector.matchExpressions[0].operator: 'Is': must be 'In', 'NotIn', 'Exists' or",
        ),
    ],
)
def test_a_policy_that_cannot_be_read_is_told_with_field_value_and_remedy(spec: dict[str, Any], told: str):
    assert told in refusal(make_policy(**spec))


def test_a_spec_of_absurd_depth_is_refused_and_breaks_nothing():
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    policy = make_policy()
    policy["spec"]["namespaces"] = deep
    assert "must not be nested deeper than 64 levels" in refusal(policy)


@pytest.mark.parametrize("spec", ["text", 7, [], None])
def test_a_spec_that_is_no_mapping_is_refused(spec: Any):
    assert refusal({"spec": spec}).startswith("spec")
