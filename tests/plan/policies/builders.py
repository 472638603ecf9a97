"""Builders of policies and namespaces, as `resolve` takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from elastic_api.policy import PolicySpec
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.policies.resolve import Namespace, Policy, ResolvedPolicies, resolve


def make_policy(name: str = "a", *, created: float = 0.0, uid: str = "", invalid: str = "", **spec: Any) -> Policy:
    """A policy with these fields of its spec; one that is `invalid` has none that could be read."""
    known = PolicySpec.model_validate(spec) if not invalid else None
    return Policy(uid or f"uid-{name}", name, created, known, invalid)


def labelled(name: str, **labels: str) -> Namespace:
    return Namespace(name, labels)


def resolved_of(policies: Iterable[Policy], namespaces: Iterable[Namespace], **settings: Any) -> ResolvedPolicies:
    """The teams under these settings, which have no team for all namespaces without a policy unless one is named."""
    return resolve(policies, namespaces, AllocationSettings(**settings))


def parents(resolved: ResolvedPolicies) -> dict[str, str | None]:
    """The parent of each team."""
    return {team.name: team.parent for team in resolved.teams.listed}


def reasons(resolved: ResolvedPolicies) -> dict[str, list[str]]:
    """Reasons of what is wrong, by policy uid."""
    return {uid: [problem.code for problem in problems] for uid, problems in resolved.problems.items()}


def the_problem(resolved: ResolvedPolicies) -> Reason:
    """The only thing that is wrong."""
    ((problem,),) = resolved.problems.values()
    return problem
