"""Which team may take GPUs from which.

A preemptor is entitled to a pod of another team if that team, the pod included, uses more than its guarantee, and if
one of these conditions holds for the preemptor with all GPUs that it wants:
* It stays within its own guarantee.
* It stays within its fair share, and the other team's share value does not end up below its own.
* It wants its minimum and stays within its fair share, and the other team uses more than its fair share (33).

The conditions must hold at every level of the tree on which the two teams have different accounts. So two teams can
never preempt each other's pods back and forth. A namespace without a policy has a share of its own only against others
without one; to all other teams, these are one team (111).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

from elastic_operator.plan.allocation.accounts import Account, diverging_paths, share_value

Path = tuple[Account, ...]


class PreemptionCheck:
    """One preemptor's try: its account, the GPUs that it still needs, whether it grows, and the GPUs that it has taken
    so far. A preemptor without an account wants no GPUs, and takes none from other teams.

    An account has two figures: the GPUs that its pods hold, and the GPUs that are not yet held. The latter entitle
    another team to no pod (166).
    """

    def __init__(self, preemptor: Account | None, need: int, *, growing: bool = False) -> None:
        self.preemptor, self.need, self.growing = preemptor, need, growing
        self._path = preemptor.path if preemptor else ()
        self._pods: dict[Account, int] = {}
        self._not_yet_held: dict[Account, int] = {}

    def copy(self) -> PreemptionCheck:
        other = PreemptionCheck(self.preemptor, self.need, growing=self.growing)
        other._pods, other._not_yet_held = dict(self._pods), dict(self._not_yet_held)
        return other

    @property
    def use_after(self) -> tuple[int, ...]:
        """The use of the preemptor's account, and of the accounts above it, once the preemptor has all GPUs that it
        wants. The lower this use, the more the preemptor may take from other teams.
        """
        return tuple([self._used(account) + self.need for account in self._path])

    @property
    def is_within_guarantees(self) -> bool:
        """Whether the preemptor stays within the guarantees at all levels. Then a lower use would not entitle it to
        more GPUs.
        """
        return all(self._used(account) + self.need <= account.guaranteed for account in self._path)

    def count_victims(self, victim_account: Account | None, *, pods: int, not_yet_held: int) -> None:
        """Count that many GPUs of the victim account as taken: GPUs that pods hold, and GPUs that are not yet held."""
        for account in victim_account.path if victim_account else ():
            self._pods[account] = self._pods.get(account, 0) + pods
            self._not_yet_held[account] = self._not_yet_held.get(account, 0) + not_yet_held

    def victim_accounts(self, accounts: Iterable[Account]) -> frozenset[Account]:
        """The accounts from which the preemptor may take GPUs, now or after it has taken GPUs from other accounts."""
        if self._is_beyond_share():
            return frozenset()
        trial, found = self.copy(), set[Account]()
        rest = [account for account in accounts if account is not self.preemptor and account.used > account.guaranteed]
        while more := [account for account in rest if trial.allows(account, 1, not_yet_held=True)]:
            found.update(more)
            rest = [account for account in rest if account not in found]
            for account in more:
                trial.count_victims(account, pods=max(1, account.used - account.guaranteed), not_yet_held=0)
        return frozenset(found)

    def allows(self, victim_account: Account, gpus: int, *, not_yet_held: bool = False, ends_job: bool = False) -> bool:
        """Whether the preemptor may take a unit with that many GPUs from another team, beside the units that it has
        taken so far.

        GPUs that are only planned count as the team's use only if the unit is `not_yet_held` as a whole: taking such a
        unit deletes no pod (166).
        """
        assert self.preemptor is not None, "without an account, a preemptor takes no GPUs from other teams"
        ours, theirs = diverging_paths(self.preemptor, victim_account)
        beyond_share = True
        for account in theirs:
            used = self._used(account) if not_yet_held else self._held(account)
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
        return self._is_at_most_final_share(ours, theirs, gpus, not_yet_held=not_yet_held)

    def _is_at_most_final_share(self, ours: Path, theirs: Path, gpus: int, *, not_yet_held: bool) -> bool:
        """Whether, level by level, the victim account's share value does not end up below the preemptor's."""
        for own, other in zip_longest(ours, theirs):
            preemptor, victim_account = own or ours[-1], other or theirs[-1]
            left = (self._used(victim_account) if not_yet_held else self._held(victim_account)) - gpus
            if share_value(left, victim_account.share) < share_value(
                self._used(preemptor) + self.need, preemptor.share
            ):
                return False
        return True

    def share_value(self, victim_account: Account | None) -> float:
        """The victim account's share value where its path leaves the preemptor's; -1 if there are no such paths."""
        if not (self.preemptor and victim_account):
            return -1.0
        _, theirs = diverging_paths(self.preemptor, victim_account)
        return share_value(self._used(theirs[0]), theirs[0].share) if theirs else -1.0

    def _is_beyond_share(self) -> bool:
        """Whether the preemptor may take nothing from any other team, because it would be beyond its own fair share.

        A namespace without a policy has two shares: its own, and the one of all such namespaces. It is beyond its share
        only if it is beyond both (111).
        """
        if self.preemptor is None:
            return True
        nearest = {self.preemptor, self.preemptor.path_seen_by_others[0]}
        return all(self._used(one) + self.need > max(one.share, one.guaranteed) for one in nearest)

    def _used(self, account: Account) -> int:
        return self._held(account) + account.not_yet_held - self._not_yet_held.get(account, 0)

    def _held(self, account: Account) -> int:
        return account.used - account.not_yet_held - self._pods.get(account, 0)
