"""Who may take GPUs from whom.

A taker is entitled to a pod of another team if the other uses more than its guarantee before that pod goes, and the
taker, with all it asks for, stays within its own guarantee. Or it stays within its fair share, and the other does not
end up lower than the taker relative to their fair shares; or, for a minimum, uses more than its fair share before. All
this at every level on which the two are apart. So no two can take from each other in turn. Growth beyond the guarantee
ends a job that runs only where its team is not brought below its own fair share (150). A namespace without a policy has
a share of its own only against others without one; to all other teams, these are one (111).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from elastic_operator.plan.accounts import Account, apart, saturation

Path = tuple[Account, ...]


class Taking:
    """One taker's try: what it still needs in GPUs, whether to grow, and what it has chosen to take so far."""

    def __init__(self, taker: Account, need: int, *, growing: bool = False) -> None:
        self.taker, self.need, self.growing = taker, need, growing
        self._taken: dict[Account, int] = {}

    def copy(self) -> Taking:
        """The same try, to go on from separately."""
        other = Taking(self.taker, self.need, growing=self.growing)
        other._taken = dict(self._taken)
        return other

    def take(self, victim: Account, gpus: int) -> None:
        """Count so many GPUs of the victim's as taken."""
        for account in victim.path:
            self._taken[account] = self._taken.get(account, 0) + gpus

    def givers(self, accounts: Iterable[Account]) -> frozenset[Account]:
        """Those from which it may come to take something, at once or after it has taken from others."""
        if self._hopeless():
            return frozenset()
        trial, found = self.copy(), set[Account]()
        rest = [account for account in accounts if account is not self.taker and account.used > account.guaranteed]
        while more := [account for account in rest if trial.may(account, 1, held=True)]:
            found.update(more)
            rest = [account for account in rest if account not in found]
            for account in more:
                trial.take(account, max(1, account.used - account.guaranteed))
        return frozenset(found)

    def may(self, victim: Account, gpus: int, *, held: bool = False, ends_job: bool = False) -> bool:
        """Whether it may take a unit of so many GPUs from another team, after what it has taken so far.

        What the team only holds makes nobody lose a pod: it counts as its use where the unit is `held` itself. A unit
        that `ends_job` is a whole job that runs.
        """
        ours, theirs = apart(self.taker, victim)
        beyond_share = True
        for account in theirs:
            used = self._used(account) - (0 if held else account.held)
            if used <= account.guaranteed:
                return False
            beyond_share &= used > account.share
        within_guarantee = True
        for account in ours:
            after = self._used(account) + self.need
            if after > account.guaranteed:
                within_guarantee = False
                if after > account.share:
                    return False
        if within_guarantee or (beyond_share and not self.growing):
            return True
        if self.growing and ends_job and any(self._used(account) - gpus < account.share for account in theirs):
            return False
        return self._stays_no_lower(ours, theirs, gpus, held=held)

    def _stays_no_lower(self, ours: Path, theirs: Path, gpus: int, *, held: bool) -> bool:
        """Whether the victim, without so many GPUs, stands at least where the taker will, level by level."""
        for own, other in zip_longest(ours, theirs):
            taker, victim = own or ours[-1], other or theirs[-1]
            left = self._used(victim) - gpus - (0 if held else victim.held)
            if saturation(left, victim.share) < saturation(self._used(taker) + self.need, taker.share):
                return False
        return True

    def excess(self, victim: Account) -> float:
        """How far the victim stands beyond its fair share, where it and the taker are apart; -1 within one team."""
        _, theirs = apart(self.taker, victim)
        return saturation(self._used(theirs[0]), theirs[0].share) if theirs else -1.0

    def _hopeless(self) -> bool:
        """Whether it may take nothing from any other team: it would stand beyond its own fair share.

        It may be within one share of two: of its own, against the next namespace, or of all namespaces like it.
        """
        nearest = {self.taker, self.taker.outward[0]}
        return all(self._used(one) + self.need > max(one.share, one.guaranteed) for one in nearest)

    def _used(self, account: Account) -> int:
        return account.used - self._taken.get(account, 0) if self._taken else account.used
