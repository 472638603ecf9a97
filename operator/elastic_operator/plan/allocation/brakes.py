"""The brakes on reclaim: for no team do more pods of others go within a minute than may, nor for all together.

What would pass a brake is not done, and all others go on (138). So growth comes in slices, and so do many small jobs.
A minimum is taken as a whole: one for which too many would have to go waits until somebody raises the limit. A limit
that nobody has set keeps no team from its guarantee: it lets one of its takers pass in a minute, whatever that takes.
Of those who could pass and have waited for longer than a minute, the limit for all is kept for the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from elastic_operator.plan.allocation.accounts import Tier
from elastic_operator.plan.allocation.entry import JobEntry
from elastic_operator.plan.facts.snapshot import Brake, Brakes, Taker
from elastic_operator.plan.facts.text import pods


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


def taker_of(entry: JobEntry) -> Taker:
    """Who it is to the brakes. Namespaces without a policy are one team, as to all other teams (111)."""
    return Taker(entry.account.outward[0].team.name if entry.account else entry.team, entry.taker)


class Tally:
    """The pods of others (uids) that were told to go in the last minute or go by this pass, each counted once.

    One of both counts for whoever gets its room now.
    """

    def __init__(self, gone: Mapping[str, Taker]) -> None:
        self.going: dict[str, Taker] = {}
        self.going_on = frozenset(gone.values())
        self._gone = gone
        self._of_team, self._of_taker = Counter[str](), Counter[Taker]()
        self.in_all = 0
        for taker in gone.values():
            self._count(taker, +1)

    def put(self, uid: str, taker: Taker | None) -> None:
        """That pod goes by this pass, for that taker; or it does not, after all."""
        before = self.going.get(uid)
        if before == taker:
            return
        self._count(before or self._gone.get(uid), -1)
        if taker is not None:
            self.going[uid] = taker
        else:
            del self.going[uid]
        self._count(taker or self._gone.get(uid), +1)

    def of_team(self, team: str) -> int:
        """How many go for that team."""
        return self._of_team[team]

    def of(self, taker: Taker) -> int:
        """How many go for that taker."""
        return self._of_taker[taker]

    def _count(self, taker: Taker | None, sign: int) -> None:
        if taker is not None:
            self._of_team[taker.team] += sign
            self._of_taker[taker] += sign
            self.in_all += sign


def braked(brakes: Brakes, taker: JobEntry, tally: Tally, wanted: int, *, waits: bool) -> Braked | None:
    """Which brake keeps a taker from a step for which so many pods are `wanted`; None if none does.

    These are in the tally. A pod that was told to go in the last minute and is still decided on counts once. One that
    `waits` for another of its team to be served takes nothing more.
    """
    who = taker_of(taker)
    entitled = taker.account is not None and taker.account.tier(0) is Tier.GUARANTEED
    first = tally.of_team(who.team) == tally.of(who)
    for brake, limit, counted in (
        (Brake.FOR_ONE, brakes.for_one, tally.of_team(who.team)),
        (Brake.IN_ALL, brakes.in_all - brakes.kept_from(who), tally.in_all),
    ):
        lenient = entitled and brake not in brakes.firm
        if wanted and counted > limit and not (lenient and first):
            most = brakes.in_all if brake is Brake.IN_ALL else limit
            left = max(0, limit - counted + wanted)
            return Braked(brake, wanted, most, left, waits_for_a_person=wanted > most and not lenient)
    if wanted and waits and who not in tally.going_on:
        return Braked(Brake.FOR_ONE, wanted, brakes.for_one, 0)
    return None
