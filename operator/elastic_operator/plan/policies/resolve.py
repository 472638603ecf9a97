"""Makes the allocator's teams from a cluster's quota policies: the owner of each namespace, the parent of each
team.

If policies contradict each other, the older one wins; at equal age, the first by name (177). Their statuses say so. A
policy with an impossible parent stands at the top, so that no guarantee is lost by a mistake.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from elastic_api.policy import LabelExpression, NamespaceSelector, Operator, PolicySpec
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.team import Quota, Team, Teams, by_age
from elastic_operator.plan.facts.text import Reason, listed


@dataclass(frozen=True, slots=True)
class Policy:
    """A quota policy as stored. `invalid` says in words why its spec is unreadable (99), `fault` why it is quarantined
    after an error of the operator's own (88). With either, `spec` is the last good one; None if there is none.
    `generation` is that of the stored spec.
    """

    uid: str
    name: str
    created: float
    spec: PolicySpec | None
    invalid: str = ""
    fault: str = ""
    generation: int = 0

    @property
    def known_spec(self) -> PolicySpec:
        """The spec; asked of policies whose spec could be read."""
        assert self.spec is not None
        return self.spec


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace that exists."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResolvedPolicies:
    """The teams that the policies and the settings make. A policy's team has its name; these teams are ordered by age.

    By policy uid: `problems` say which parts are not in effect as written, and what to do; `generations` are those that
    were read.
    """

    teams: Teams
    problems: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)
    generations: Mapping[str, int] = field(default_factory=dict)

    @property
    def in_effect(self) -> tuple[Teams, Mapping[str, tuple[Reason, ...]]]:
        """The teams and problems. An edit that changes neither has no effect."""
        return self.teams, self.problems


_Problems: TypeAlias = defaultdict[str, list[Reason]]
"""The parts of policies that are not in effect as written, by the policy's uid."""


def resolve(
    policies: Iterable[Policy], namespaces: Iterable[Namespace], settings: AllocationSettings
) -> ResolvedPolicies:
    """Teams from policies, in whatever order they come."""
    problems: _Problems = defaultdict(list)
    stored = sorted(policies, key=by_age)
    readable = tuple(_readable(stored, problems))
    parents = _parents(readable, {policy.name for policy in stored}, problems)
    covered = _owners(readable, frozenset(parents.values()), sorted(namespaces, key=lambda n: n.name), problems)
    flavors = [flavor.name for flavor in settings.flavors]
    made = (_team(policy, parents.get(policy.name), flavors, problems) for policy in readable)
    teams = Teams((*made, *settings.default_parents), covered, settings.default_team)
    generations = {policy.uid: policy.generation for policy in stored}
    return ResolvedPolicies(teams, {uid: tuple(found) for uid, found in problems.items()}, generations)


def selects(selector: NamespaceSelector, labels: Mapping[str, str]) -> bool:
    """Whether a namespace with these labels is selected, by the rules of Kubernetes' label selectors."""
    exact = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return exact and all(_meets(expression, labels) for expression in selector.match_expressions)


def _meets(expression: LabelExpression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case Operator.IN:
            return value is not None and value in expression.values
        case Operator.NOT_IN:
            return value not in expression.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None


def _readable(policies: Iterable[Policy], problems: _Problems) -> Iterator[Policy]:
    for policy in policies:
        if policy.fault:
            problems[policy.uid].append(Reason("InternalError", policy.fault))
        if policy.invalid:
            meanwhile = "its last readable spec counts" if policy.spec else "its namespaces are without a policy"
            problems[policy.uid].append(Reason("InvalidSpec", f"{policy.invalid} Until then {meanwhile}."))
        if policy.spec is not None:
            yield policy


def _parents(policies: Sequence[Policy], stored: Collection[str], problems: _Problems) -> dict[str, str]:
    """The parent of each policy that has one, without circles. `policies` are ordered by age."""
    names = {policy.name for policy in policies}
    parents: dict[str, str] = {}
    for policy in policies:
        wanted = policy.known_spec.parent
        if wanted is None:
            continue
        if wanted in names:
            parents[policy.name] = wanted
            continue
        because = "cannot be read; correct its spec" if wanted in stored else "does not exist; create it"
        code = "ParentInvalid" if wanted in stored else "ParentMissing"
        text = (
            f"spec.parent: {wanted!r}: that policy {because}, or remove the field."
            " Until then this policy is part of none."
        )
        problems[policy.uid].append(Reason(code, text))
    for policy in policies:
        _cut(policy, policies, parents, problems)
    return parents


def _cut(oldest: Policy, policies: Sequence[Policy], parents: dict[str, str], problems: _Problems) -> None:
    """If the policy is the oldest of a circle, put it at the top, and note the problem for all its policies."""
    circle = _circle(oldest.name, parents)
    if not circle:
        return
    del parents[oldest.name]
    chain = " -> ".join((*circle, oldest.name))
    members = [policy for policy in policies if policy.name in circle]
    is_alone = sum(policy.created == oldest.created for policy in members) == 1
    which = "the oldest" if is_alone else "of the oldest the first by name"
    for policy in members:
        text = (
            f"spec.parent: {policy.known_spec.parent!r}: must not lead back to this policy ({chain}); remove the parent"
            f" of one of them. Until then {oldest.name!r}, {which}, is taken to have none."
        )
        problems[policy.uid].append(Reason("CircularParents", text))


def _circle(start: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    """The policies on the path from `start` up to itself; empty if there is no such path."""
    way, name = [start], parents.get(start)
    while name is not None and name not in way:
        way.append(name)
        name = parents.get(name)
    return tuple(way) if name == start else ()


def _owners(
    policies: Sequence[Policy], parents: Collection[str], namespaces: Sequence[Namespace], problems: _Problems
) -> dict[str, str]:
    """The policy of each covered namespace."""
    owners: dict[str, Policy] = {}
    for policy in policies:
        if policy.name in parents:
            _refuse_namespaces(policy, problems)
            continue
        wanted = _wanted(policy.known_spec, namespaces)
        taken: dict[str, list[str]] = {}
        for namespace in wanted:
            owner = owners.setdefault(namespace, policy)
            if owner is not policy:
                taken.setdefault(owner.name, []).append(namespace)
        for name, lost in taken.items():
            is_older = owners[lost[0]].created < policy.created
            problems[policy.uid].append(Reason("Conflict", _conflict(name, lost, is_older=is_older)))
    return {namespace: owner.name for namespace, owner in owners.items()}


def _refuse_namespaces(policy: Policy, problems: _Problems) -> None:
    spec = policy.known_spec
    if not spec.namespaces and spec.namespace_selector is None:
        return
    what = "spec.namespaces" if spec.namespaces else "spec.namespaceSelector"
    text = (
        f"{what}: must be absent: other policies name {policy.name!r} as their parent, and a parent owns no namespaces;"
        " move them to a policy of their own with this parent. Until then they are without this policy."
    )
    problems[policy.uid].append(Reason("ParentOwnsNamespaces", text))


def _wanted(spec: PolicySpec, namespaces: Sequence[Namespace]) -> list[str]:
    """The namespaces that the policy claims, in order. A named namespace need not exist yet."""
    selector = spec.namespace_selector
    chosen = {n.name for n in namespaces if selects(selector, n.labels)} if selector is not None else set()
    return sorted(chosen.union(spec.namespaces))


def _conflict(owner: str, namespaces: Sequence[str], *, is_older: bool) -> str:
    single = len(namespaces) == 1
    whose = f"the older policy {owner!r}"
    if not is_older:
        whose = f"policy {owner!r}, which is as old as this one and the first by name"
    return (
        f"{'Namespace' if single else 'Namespaces'} {listed(namespaces)}"
        f" {'belongs' if single else 'belong'} to {whose}."
        f" A namespace has one policy: remove {'it' if single else 'them'} from spec.namespaces or"
        " spec.namespaceSelector of one of the two."
    )


def _team(policy: Policy, parent: str | None, flavors: Collection[str], problems: _Problems) -> Team:
    spec = policy.known_spec
    unknown = [quota.name for quota in spec.flavors if quota.name not in flavors]
    if unknown:
        text = (
            f"spec.flavors: {listed(unknown)}: must be among the flavors in the operator's settings"
            f" ({listed(sorted(flavors))}); correct the name, or add the flavor there. Until then the entry is"
            " ignored."
        )
        problems[policy.uid].append(Reason("UnknownFlavor", text))
    return Team(
        name=policy.name,
        created=policy.created,
        parent=parent,
        quotas={
            one.name: Quota(one.guaranteed, one.borrowing.limit, one.borrowing.weight, one.lending.limit)
            for one in spec.flavors
            if one.name in flavors
        },
        priority=spec.priority,
        max_gpus_per_job=spec.per_job.max_gpus,
        min_runtime_seconds=spec.reclaim.min_runtime_seconds,
        quantum_seconds=spec.time_sharing.quantum_seconds if spec.time_sharing else None,
        grace_seconds=spec.reclaim.grace_period_seconds,
    )
