"""The brakes on reclaim: for no taker do more pods of others go within a minute than may, nor for all together.

What would pass a brake is not done, and all others go on (138). So growth comes in slices. A minimum is taken as a
whole, so one for which too many would have to go waits until somebody raises the limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from elastic_operator.plan.claim import Claim
from elastic_operator.plan.model import Brakes
from elastic_operator.plan.words import pods


class Brake(StrEnum):
    """The limits, by the names of their settings."""

    FOR_ONE = "reclaim.maxEvictionsPerDecision"
    IN_ALL = "reclaim.maxEvictionsPerMinute"


@dataclass(frozen=True, slots=True)
class Braked:
    """What a taker was not given: `wanted` more pods of others would have gone for it.

    `limit` is how many the brake lets go within a minute, `left` how many of these were left.
    """

    brake: Brake
    wanted: int
    limit: int
    left: int

    @property
    def waits_for_a_person(self) -> bool:
        """Whether time alone changes nothing."""
        return self.wanted > self.limit

    @property
    def text(self) -> str:
        """What was wanted, the limit, and one thing to do."""
        text = f"{pods(self.wanted)} of others would have to go for it at once"
        if self.waits_for_a_person:
            text = f"{text}, more than {self.brake} ({self.limit}) allows"
            return f"{text}. Have it raised in the operator's settings, if that is what is wanted."
        return f"{text}, and {self.brake} ({self.limit}) leaves {self.left} for this minute. Wait."


def evicted_for(taker: Claim, *, since: int = 0) -> frozenset[str]:
    """The pods (uids) that go for a taker and count: those of other teams, for a foreign pod also its own team's.

    Of those that it took, the first `since` are left out.
    """
    kept: dict[Claim, frozenset[str]] = {}
    gone = set[str]()
    for owner, member in taker.took[since:]:
        if owner.team == taker.team and taker.request is None:
            continue
        if owner not in kept:
            kept[owner] = frozenset(one.uid for one in owner.kept)
        if member.uid not in kept[owner]:
            gone.add(member.uid)
    return frozenset(gone)


def braked(brakes: Brakes, taker: Claim, takers: Iterable[Claim], *, since: int, took: int) -> Braked | None:
    """Which brake keeps that taker from what it took after the first `since` pods; None if none does.

    All `takers` together took at most `took` pods in this pass.
    """
    for_one = brakes.for_one - brakes.gone_for.get(taker.job.uid, 0)
    in_all = brakes.in_all - brakes.gone
    if len(taker.took) <= for_one and took <= in_all:
        return None
    wanted, own = len(evicted_for(taker, since=since)), len(evicted_for(taker))
    if not wanted:
        return None
    if own > for_one:
        return Braked(Brake.FOR_ONE, wanted, brakes.for_one, max(0, for_one - own + wanted))
    total = own + sum(len(evicted_for(other)) for other in takers if other is not taker)
    if total > in_all:
        return Braked(Brake.IN_ALL, wanted, brakes.in_all, max(0, in_all - total + wanted))
    return None
