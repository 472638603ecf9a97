"""Fair share: how many GPUs of one flavor each of several siblings should have, in whole GPUs (31).

The division is that of KAI-Scheduler's proportion plugin without its use of history, so its published cases hold:
guarantees first, then the rest by priority tier and weight in rounds, then the GPUs that rounding left, one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from elastic_operator.plan.facts.team import by_age


@dataclass(frozen=True, slots=True)
class Claimant:
    """A team that wants GPUs: `requested` is all that it would use, `limit` the most that it may have (None = no
    limit).

    `not_lent` is the part of its idle guarantee that is not lent and stays out of the division. Ties end by age
    (`by_age`). All amounts are GPUs.
    """

    name: str
    requested: int
    guaranteed: int = 0
    limit: int | None = None
    weight: Fraction | int = 1
    priority: int = 0
    created: float = 0.0
    not_lent: int = 0

    @property
    def capped_request(self) -> int:
        """The team's request, up to its limit."""
        return max(0, self.requested if self.limit is None else min(self.requested, self.limit))


def divide(total: int, claimants: Sequence[Claimant]) -> tuple[dict[str, int], int]:
    """The share of each claimant by name, and the undivided GPUs.

    Guarantees are honoured as written, even if their sum exceeds `total`: the first team to use GPUs then has them.
    """
    shares = {c.name: min(max(0, c.guaranteed), c.capped_request) for c in claimants}
    left = max(0, total - sum(shares.values()) - sum(max(0, c.not_lent) for c in claimants))
    fractions: dict[str, Fraction] = {}
    in_order = sorted(claimants, key=lambda c: (-c.priority, *by_age(c)))
    tiers = [list(tier) for _, tier in groupby(in_order, key=lambda c: c.priority)]
    for tier in tiers:
        left = _divide_by_weight(left, tier, shares, fractions)
    for tier in tiers:
        left = _hand_out_rest(left, tier, shares, fractions)
    not_lent = sum(max(0, c.not_lent) for c in claimants)
    return shares, min(max(0, total - sum(shares.values())), left + not_lent)


def _divide_by_weight(
    amount: int, tier: Sequence[Claimant], shares: dict[str, int], fractions: dict[str, Fraction]
) -> int:
    """Offer by weight, in rounds; returns the rest. Remembers the fraction that rounding kept from a claimant."""
    again = True
    while amount and again:
        again = False
        hungry = [c for c in tier if c.weight > 0 and shares[c.name] < c.capped_request]
        weights, offered = sum(Fraction(c.weight) for c in hungry), amount
        for c in hungry:
            offer = offered * Fraction(c.weight) / weights
            missing = c.capped_request - shares[c.name]
            given = missing if missing <= offer else int(offer)
            shares[c.name] += given
            amount -= given
            again |= missing < offer
            if missing <= offer:
                fractions.pop(c.name, None)
            else:
                fractions[c.name] = offer - given
    return amount


def _hand_out_rest(
    amount: int, tier: Sequence[Claimant], shares: dict[str, int], fractions: Mapping[str, Fraction]
) -> int:
    """Give one GPU each to the largest fractions; returns the rest."""
    hungry = [c for c in tier if c.name in fractions and shares[c.name] < c.capped_request]
    for c in sorted(hungry, key=lambda c: (-fractions[c.name], *by_age(c)))[:amount]:
        shares[c.name] += 1
        amount -= 1
    return amount
