"""Policies that make the operator raise: one counts by its last good version, several together change nothing (88)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.plan.policies.resolve import Policy
from elastic_operator.quarantine import Quarantine
from elastic_operator.read import policies


def policy(name: str, **spec: Any) -> objects.CustomObject:
    meta = {"name": name, "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1"}
    return objects.decode({"metadata": meta, "spec": {"namespaces": [name], **spec}}, objects.CustomObject)


def read(*bodies: objects.CustomObject) -> tuple[policies.Policies, list[str]]:
    counted: list[str] = []
    known: Store[objects.CustomObject] = Store()
    for body in bodies:
        known.observe(body)
    return policies.Policies(known, Store(), flavors=("default",), quarantine=Quarantine(counted.append)), counted


def raises_at_two(some: tuple[Policy, ...], *more: Any, **settings: Any) -> Any:
    """Stands in for `resolve`, with an error that no single policy has."""
    if len(some) > 1:
        raise KeyError("made up")
    return real(some, *more, **settings)


real = policies.resolve


def test_policies_that_raise_only_together_leave_all_teams_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    reader, counted = read(policy("a"))
    before = reader.refresh()
    reader._policies.observe(policy("b"))
    with patch.object(policies, "resolve", raises_at_two):
        assert reader.refresh() is before
        assert reader.refresh() is before
    assert counted == ["policy"]
    assert "no single policy is to blame" in caplog.text


def test_a_new_leader_grants_nothing_by_policies_that_it_never_could_read_together() -> None:
    reader, _ = read(policy("a"), policy("b"))
    with patch.object(policies, "resolve", raises_at_two), pytest.raises(KeyError):
        reader.refresh()
