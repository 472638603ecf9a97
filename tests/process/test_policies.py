"""Policies that are unreadable (99), or make the operator raise (88): one counts by its last good spec, several
together change nothing.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.policies.resolve import Policy, ResolvedPolicies
from elastic_operator.quarantine import Quarantine
from elastic_operator.read import policies


def policy(name: str, generation: int = 1, **spec: Any) -> objects.CustomObject:
    meta = {"name": name, "uid": f"uid-{name}", "generation": generation, "resourceVersion": str(generation)}
    return objects.decode({"metadata": meta, "spec": {"namespaces": [name], **spec}}, objects.CustomObject)


def read(*bodies: objects.CustomObject) -> tuple[policies.Policies, list[str]]:
    counted: list[str] = []
    known: Store[objects.CustomObject] = Store()
    for body in bodies:
        known.observe(body)
    return policies.Policies(known, Store(), AllocationSettings(), Quarantine(counted.append)), counted


def problems(found: ResolvedPolicies) -> list[str]:
    """Each problem of a policy: its code, and its message."""
    return [f"{one.code}: {one.message}" for reasons in found.problems.values() for one in reasons]


def raises_at_two(some: tuple[Policy, ...], *more: Any, **settings: Any) -> Any:
    """Stands in for `resolve`, with an error that no single policy has."""
    if len(some) > 1:
        raise KeyError("made up")
    return real(some, *more, **settings)


def raises_at_b(some: tuple[Policy, ...], *more: Any) -> Any:
    """Stands in for `resolve`, with an error at any spec of the policy b."""
    if any(one.name == "b" and one.spec is not None for one in some):
        raise KeyError("made up")
    return real(some, *more)


real = policies.resolve


def test_policies_that_raise_only_together_leave_all_teams_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    reader, counted = read(policy("a"))
    before = reader.refresh()
    reader._policies.observe(policy("b"))
    with patch.object(policies, "resolve", raises_at_two):
        assert reader.refresh() is before
        assert reader.refresh() is before
    assert counted == ["policy"]
    assert [known.name for known in reader.made.policies] == ["a"]
    assert "no single policy is to blame" in caplog.text


def test_a_policy_that_raises_at_its_good_spec_is_tried_again_only_after_its_quarantine() -> None:
    reader, counted = read(policy("a"), policy("b"))
    reader.refresh()
    reader._policies.observe(policy("c"))
    with patch.object(policies, "resolve", raises_at_b):
        for _ in range(3):
            assert reader.refresh().teams.covered == {"a": "a", "c": "c"}
    assert counted == ["policy"]


def test_a_policy_that_was_new_beside_a_faulty_one_counts_by_its_last_good_spec() -> None:
    reader, _ = read(policy("a"), policy("b"))
    with patch.object(policies, "resolve", raises_at_b):
        reader.refresh()
        reader._policies.observe(policy("a", 2, namespaces=7))
        assert reader.refresh().teams.covered == {"a": "a"}


def test_a_policy_that_raised_at_its_good_spec_still_has_it_after_an_unreadable_edit() -> None:
    reader, _ = read(policy("a"), policy("b"))
    reader.refresh()
    reader._policies.observe(policy("c"))
    with patch.object(policies, "resolve", raises_at_b):
        assert reader.refresh().teams.covered == {"a": "a", "c": "c"}
    reader._policies.observe(policy("b", 2, namespaces=7))
    assert reader.refresh().teams.covered == {"a": "a", "b": "b", "c": "c"}


def test_a_new_leader_grants_nothing_by_policies_that_it_never_could_read_together() -> None:
    reader, _ = read(policy("a"), policy("b"))
    with patch.object(policies, "resolve", raises_at_two), pytest.raises(KeyError):
        reader.refresh()


def test_an_unreadable_policy_counts_by_its_last_readable_spec_and_says_so() -> None:
    reader, _ = read(policy("a", priority=3))
    before = reader.refresh()
    for generation in (2, 3):
        reader._policies.observe(policy("a", generation, namespaces=7))
        found = reader.refresh()
        assert (found.teams, found.teams.covered) == (before.teams, {"a": "a"})
        (problem,) = problems(found)
        assert problem.startswith("InvalidSpec: spec.namespaces: 7: must be a list")
        assert problem.endswith(". Until then its last readable spec counts.")
    reader._policies.observe(policy("a", 4, namespaces=["b"]))
    assert (reader.refresh().teams.covered, problems(reader.made.resolved)) == ({"b": "a"}, [])


def test_a_new_leader_knows_no_earlier_spec_of_an_unreadable_policy() -> None:
    reader, _ = read(policy("a", namespaces=7))
    assert reader.refresh().teams.covered == {}
    (problem,) = problems(reader.made.resolved)
    assert problem.endswith("Until then its namespaces are without a policy.")
