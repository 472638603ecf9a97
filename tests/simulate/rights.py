"""The rules by which a team may take GPUs from another team, computed without the operator's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import inf
from typing import Protocol

from tests.simulate.policies import Policies, Rule

Used = Mapping[str, int]


class Right(Protocol):
    """Whether a team may have more by it, and what another must give for that; `used` is GPUs per team."""

    name: str

    def covers(self, team: str, need: int, used: Used) -> bool:
        """Whether the team may use `need` more."""
        ...

    def takes(self, team: str, need: int, victim: str, gpus: int, used: Used) -> bool:
        """Whether the victim's team must give a pod of so many GPUs to a team that still lacks `need`."""
        ...


class ByGuarantee:
    """Use within the guarantee, at every level; who uses more than its guarantee must give."""

    name = "the guarantee"

    def __init__(self, policies: Policies, flavor: str) -> None:
        self.policies, self.flavor = policies, flavor

    def covers(self, team: str, need: int, used: Used) -> bool:
        """At every level."""
        return all(used[one] + need <= self._guaranteed(one) for one in self.policies.path(team))

    def takes(self, team: str, need: int, victim: str, gpus: int, used: Used) -> bool:  # noqa: ARG002 - as the others
        """At every level that the two do not share."""
        ours = set(self.policies.path(team))
        return all(used[one] > self._guaranteed(one) for one in self.policies.path(victim) if one not in ours)

    def _guaranteed(self, team: str) -> int:
        return self.policies.rule(team, self.flavor).guaranteed


class ByFairShare:
    """Use within the fair share; who stays no lower than the preemptor must give. Both at every level.

    What flooring leaves over is not handed out here: a share may be one more than this, so one is left open.
    """

    name = "the fair share"

    def __init__(self, policies: Policies, flavor: str, capacity: int, requested: Used) -> None:
        """`requested` is what each team without others under it would use."""
        self.policies, self.flavor = policies, flavor
        self.wanted = self._wanted(requested)
        self.shares: dict[str, int] = {}
        self._divide(capacity, [team for team in self.wanted if team not in policies.parents])

    def covers(self, team: str, need: int, used: Used) -> bool:
        """Surely within it where all other teams judge it, and within the limit."""
        judged = self.policies.apart(team, "")
        return all(used[one] + need <= min(self.shares[one], self._limit(one)) for one in judged)

    def takes(self, team: str, need: int, victim: str, gpus: int, used: Used) -> bool:
        """Beyond its guarantee, and surely no lower than the preemptor afterwards, wherever the two are apart."""
        ours, theirs = self.policies.apart(team, victim), self.policies.apart(victim, team)
        if any(used[one] <= self._rule(one).guaranteed for one in theirs):
            return False
        if any(used[one] + need > self.shares[one] for one in ours):
            return False
        lowest = min(Fraction(used[one] - gpus, self.shares[one] + 1) for one in theirs)
        return lowest >= max(Fraction(used[one] + need, self.shares[one]) for one in ours)

    def _rule(self, team: str) -> Rule:
        return self.policies.rule(team, self.flavor)

    def _limit(self, team: str) -> float:
        limit = self._rule(team).limit
        return inf if limit is None else limit

    def _wanted(self, requested: Used) -> dict[str, float]:
        """What each team asks for, up to its limit; a parent asks for what those under it do."""
        wanted = {team: min(amount, self._limit(team)) for team, amount in requested.items()}
        for parent in set(self.policies.parents.values()):
            under = [team for team, above in self.policies.parents.items() if above == parent]
            wanted[parent] = min(sum(wanted.get(team, 0) for team in under), self._limit(parent))
        return wanted

    def _divide(self, capacity: int, teams: Sequence[str]) -> None:
        """Guarantees first, then the rest by tier and weight; then each parent's share among those under it."""
        tiers = {team: self.policies.priorities.get(team, 0) for team in teams}
        self.shares |= {team: int(min(self._rule(team).guaranteed, self.wanted[team])) for team in teams}
        rest = max(0, capacity - sum(self.shares[team] for team in teams))
        for tier in sorted(set(tiers.values()), reverse=True):
            weights = {team: self._rule(team).weight for team in teams if tiers[team] == tier}
            rest = _hand_out(rest, self.shares, self.wanted, {team: n for team, n in weights.items() if n})
        for parent in teams:
            under = [team for team, above in self.policies.parents.items() if above == parent and team in self.wanted]
            if under:
                self._divide(self.shares[parent], under)


def _hand_out(rest: int, shares: dict[str, int], wanted: Mapping[str, float], weights: Mapping[str, int]) -> int:
    """One tier's rounds; returns what is left."""
    hungry = [team for team in weights if shares[team] < wanted[team]]
    while hungry and rest > 0:
        offers = {team: Fraction(rest * weights[team], sum(weights[one] for one in hungry)) for team in hungry}
        lacks = {team: wanted[team] - shares[team] for team in hungry}
        for team in hungry:
            given = int(min(lacks[team], offers[team]))
            shares[team] += given
            rest -= given
        if not any(lacks[team] < offers[team] for team in hungry):
            break
        hungry = [team for team in hungry if lacks[team] > offers[team]]
    return rest
