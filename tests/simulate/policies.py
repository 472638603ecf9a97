"""The quota policies as the checker reads them: from the manifests, without the operator's code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulate.facts import FLAVORS
from tests.simulate.server import POLICIES, Server

PARENT = "org"
OWNERS = ("red", "blue", "green", "gold")
"""Policies that own the namespace of their name; `PARENT` may be their parent, and owns none."""
NAMESPACES = (*OWNERS, "free")
UNCOVERED = "all namespaces without a policy"
"""They are one team to the others where they are not teams of their own, without a guarantee."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a policy says of one flavor; `limit` None is no limit."""

    guaranteed: int = 0
    limit: int | None = None
    weight: int = 1
    lend: int | None = None


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies of a moment: rules by name and flavor, who is whose parent (namespaces without a policy have one,
    too), tiers, the most GPUs that one job may have, and the teams whose jobs take turns.
    """

    rules: Mapping[str, Mapping[str, Rule]] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)

    per_job: Mapping[str, int] = field(default_factory=dict)
    in_turns: frozenset[str] = frozenset()

    def largest(self, team: str, sizes: Sequence[int], gpus: int, has: int) -> tuple[int, ...]:
        """The sizes, of pods of so many GPUs each, that the team allows a job which has so many pods."""
        most = self.per_job.get(team)
        return tuple(size for size in sizes if most is None or size <= has or size * gpus <= most)

    def keeps_back(self, flavor: str) -> bool:
        """Whether any team keeps part of its idle guarantee to itself."""
        return any(self.rule(team, flavor).lend is not None for team in self.rules)

    def team(self, namespace: str) -> str:
        """The policy of a namespace, else a name of its own for it."""
        return namespace if namespace in self.rules else _uncovered(namespace)

    def path(self, team: str) -> Iterator[str]:
        """The team and those above it."""
        yield team
        if team in self.parents:
            yield self.parents[team]

    def apart(self, team: str, other: str) -> list[str]:
        """The team and those above it, as far as `other` is not among them or under them.

        Namespaces without a policy are one to all others.
        """
        ours = [one for one in self.path(team) if one not in self.path(other)]
        return ours[1:] if UNCOVERED in ours else ours

    def rule(self, team: str, flavor: str) -> Rule:
        """What holds for the team."""
        return self.rules.get(team, {}).get(flavor, Rule())

    def members(self, team: str) -> set[str]:
        """The namespaces under a team."""
        return {n for n in NAMESPACES if team in self.path(self.team(n))}


def drawn_default_policy(rng: Random) -> dict[str, Any]:
    """The operators' setting for namespaces without a policy."""
    borrowing = {"weight": rng.choice((1, 1, 2))} | ({"limit": rng.randrange(7)} if rng.random() < 0.5 else {})
    return {"perNamespace": rng.random() < 0.25, "borrowing": borrowing}


def read_policies(server: Server) -> Policies:
    """The policies that hold."""
    stored = (body["metadata"] | {"spec": body["spec"]} for body in server.all(POLICIES))
    holding = ((one["name"], server.in_force.get(one["uid"], one["spec"])) for one in stored)
    bodies = {name: spec for name, spec in holding if spec is not None}
    parents = {name: spec["parent"] for name, spec in bodies.items() if spec.get("parent") in bodies}
    uncovered = [_uncovered(namespace) for namespace in NAMESPACES if namespace not in bodies]
    if not server.default_policy["perNamespace"]:
        parents |= dict.fromkeys(uncovered, UNCOVERED)
        uncovered = [UNCOVERED]
    default = _rule({"guaranteed": 0, "borrowing": server.default_policy["borrowing"]})
    return Policies(
        {name: {f["name"]: _rule(f) for f in spec["flavors"]} for name, spec in bodies.items()}
        | dict.fromkeys(uncovered, dict.fromkeys(FLAVORS, default)),
        parents,
        {name: spec.get("priority", 0) for name, spec in bodies.items()},
        {name: spec["perJob"]["maxGPUs"] for name, spec in bodies.items() if "maxGPUs" in spec.get("perJob", {})},
        frozenset(name for name, spec in bodies.items() if "timeSharing" in spec),
    )


def _uncovered(namespace: str) -> str:
    return f"namespace {namespace}"


def _rule(entry: Mapping[str, Any]) -> Rule:
    guaranteed, borrowing = entry["guaranteed"], entry.get("borrowing", {})
    limit = guaranteed + borrowing["limit"] if "limit" in borrowing else None
    return Rule(guaranteed, limit, borrowing.get("weight", 1), entry.get("lending", {}).get("limit"))
