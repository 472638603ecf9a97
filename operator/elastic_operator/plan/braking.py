"""The brakes on reclaim: for no team do more pods of others go within a minute than may, nor for all together.

What would pass a brake is not done, and all others go on (138). So growth comes in slices, and so do many small jobs.
A minimum is taken as a whole: one for which too many would have to go waits until somebody raises the limit. A limit
that nobody has set keeps no team from its guarantee: it lets one of its takers pass in a minute, whatever that takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from elastic_operator.plan.accounts import Tier
from elastic_operator.plan.claim import Claim
from elastic_operator.plan.model import Brake, Brakes, Taker
from elastic_operator.plan.words import pods


@dataclass(frozen=True, slots=True)
class Braked:
    """What a taker was not given: `wanted` more pods of others would have gone for it.

    `limit` is how many the brake lets go within a minute, `left` how many of these were left.
    """

    brake: Brake
    wanted: int
    limit: int
    left: int
    waits_for_a_person: bool = False
    """Whether time alone changes nothing."""

    @property
    def text(self) -> str:
        """What was wanted, the limit, and one thing to do."""
        text = f"{pods(self.wanted)} of others would have to go for it at once"
        if self.waits_for_a_person:
            text = f"{text}, more than {self.brake} ({self.limit}) allows"
            return f"{text}. Have it raised in the operator's settings, if that is what is wanted."
        return f"{text}, and {self.brake} ({self.limit}) leaves {self.left} for this minute. Wait."


def taker_of(claim: Claim) -> Taker:
    """Who it is to the brakes. Namespaces without a policy are one team, as to all other teams (111)."""
    return Taker(claim.account.outward[0].team.name if claim.account else claim.team, claim.job.uid)


def braked(brakes: Brakes, taker: Claim, going: Mapping[str, Taker], step: Set[str], *, waits: bool) -> Braked | None:
    """Which brake keeps a taker from this `step` (pods by uid), if that is in the way; None if none does.

    `going` are all pods of others that go by this pass, the step's included, with who gets their room. A pod that was
    told to go in the last minute and is still decided on counts once. One that `waits` for another of its team to be
    served takes nothing more.
    """
    who, wanted = taker_of(taker), len(step & going.keys())
    total = {**brakes.gone, **going}
    own = {uid: other for uid, other in total.items() if other.team == who.team}
    entitled = taker.account is not None and taker.account.tier(0) is Tier.GUARANTEED
    first, going_on = all(other == who for other in own.values()), who in brakes.gone.values()
    for brake, limit, counted in (
        (Brake.FOR_ONE, brakes.for_one, len(own)),
        (Brake.IN_ALL, brakes.in_all, len(total)),
    ):
        lenient = entitled and brake not in brakes.firm
        if wanted and counted > limit and not (lenient and first):
            left = max(0, limit - counted + wanted)
            return Braked(brake, wanted, limit, left, waits_for_a_person=wanted > limit and not lenient)
    if wanted and waits and not going_on:
        return Braked(Brake.FOR_ONE, wanted, brakes.for_one, 0)
    return None
