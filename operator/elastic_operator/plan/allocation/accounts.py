"""The accounts of all teams in one pass: a team's use of a flavor, its guarantee, its limit and its fair share.

Teams form a forest. An account is one team's book for one flavor, and a charge to it is charged to all accounts above
it. To other teams, all namespaces without a policy are one team; their own shares count only among themselves (111).
`used` counts every GPU that a bound pod holds or a planned pod will hold. Pods of ours that leave count in
`terminating`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from math import inf

from elastic_operator.plan.allocation.fair_share import Claimant, divide
from elastic_operator.plan.allocation.node_board import NodeBoard
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.team import Quota, Team

UNLIMITED = 1 << 60


class Entitlement(IntEnum):
    """The right by which a team may use GPUs. The stronger right is served first (32)."""

    GUARANTEED = 0
    FAIR_SHARE = 1
    BORROWED = 2


class Account:
    """One team's book for one flavor, in GPUs. Now the team uses `used_with_terminating`; soon, once all leaving pods
    have left, it uses `used`.
    """

    def __init__(self, team: Team, flavor: str, parent: Account | None) -> None:
        self.team, self.flavor = team, flavor
        self.quota = team.quotas.get(flavor, Quota())
        self.guaranteed = self.quota.guaranteed
        self.limit = UNLIMITED if self.quota.limit is None else self.quota.limit
        self.parent = parent
        self.children: list[Account] = []
        if parent:
            parent.children.append(self)
        self.path: tuple[Account, ...] = (self, *parent.path) if parent else (self,)
        """From this account to the top."""
        self.path_seen_by_others = self.path[1:] if parent and not team.has_policy else self.path
        """The part of the path that counts for other teams (111)."""
        self.paths_to: dict[Account, tuple[tuple[Account, ...], tuple[Account, ...]]] = {}
        self.used_with_terminating = self.used = 0
        self.terminating = 0
        """GPUs of the pods that are leaving already."""
        self.not_yet_held = 0
        """The part of `used` that no pod holds yet (166)."""
        self.on_new_nodes = 0
        """GPUs for pods that request new nodes: they count under limits only, from the end of the pass on (49)."""
        self.non_preemptible = 0
        """GPUs that cannot be taken back: of foreign pods, and of jobs that are not preemptible."""
        self.foreign = 0
        """GPUs of pods that belong to none of our jobs."""
        self.requested_by_jobs = 0
        """The GPUs that our jobs want in all."""
        self.requested = 0
        """The team's use if all its wishes were granted."""
        self.share = 0
        """The fair share."""

    def add_usage(self, gpus: int, *, non_preemptible: bool = False, not_yet_held: bool = False) -> None:
        """Count that many GPUs more (negative: fewer) as used, here and in all accounts above."""
        for account in self.path:
            account.used += gpus
            if non_preemptible:
                account.non_preemptible += gpus
            if not_yet_held:
                account.not_yet_held += gpus

    def entitlement(self, need: int) -> Entitlement:
        """The right to `need` more GPUs, as other teams see it: the weakest right on the path."""
        entitlement = Entitlement.GUARANTEED
        for account in self.path_seen_by_others:
            after = account.used + need
            if after > account.share and after > account.guaranteed:
                return Entitlement.BORROWED
            if after > account.guaranteed:
                entitlement = Entitlement.FAIR_SHARE
        return entitlement

    @property
    def foreign_below(self) -> int:
        """GPUs of pods that are not our jobs', here and in all accounts below."""
        return self.foreign + sum(child.foreign_below for child in self.children)


def share_value(used: int, share: int) -> float:
    """Use relative to a fair share; infinite for a team without a share."""
    return used / share if share > 0 else inf


def diverging_paths(one: Account, other: Account) -> tuple[tuple[Account, ...], tuple[Account, ...]]:
    """Both paths, from the children of the lowest common ancestor down to the two accounts; empty for the same account.

    Two namespaces without a policy are compared by their own accounts, and with all other teams by their parent (111).
    """
    if one.parent is other.parent and one is not other:
        return (one,), (other,)
    known = one.paths_to.get(other)
    if known is None:
        ours, theirs = ((), ()) if one is other else (one.path_seen_by_others[::-1], other.path_seen_by_others[::-1])
        common = 0
        while common < min(len(ours), len(theirs)) and ours[common] is theirs[common]:
            common += 1
        known = one.paths_to[other] = ours[common:], theirs[common:]
    return known


class Accounts:
    """The accounts of all teams, and the number of GPUs of each flavor."""

    def __init__(self, inputs: AllocationInputs, board: NodeBoard) -> None:
        self.teams = inputs.teams
        self._flavors = tuple(flavor.name for flavor in inputs.settings.flavors)
        self._known: dict[str, dict[str, Account]] = {name: {} for name in self._flavors}
        every = (*self.teams.listed, self.teams.default)
        self._lends_all = {
            name: all(team.quotas.get(name, Quota()).lend_limit is None for team in every) for name in self._flavors
        }
        self.capacity = dict.fromkeys(self._flavors, 0)
        self.flavor_of = list[dict[str, str]]()
        """The flavor of each GPU resource, by node. Nodes with the same flavors share one dict."""
        shared: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        for node in board.nodes:
            covering = (flavor for flavor in inputs.settings.flavors if flavor.covers(node.labels))
            of = {resource: flavor.name for flavor in covering for resource in flavor.resources}
            self.flavor_of.append(shared.setdefault(tuple(of.items()), of))
        for team in self.teams.listed:
            for flavor in self._flavors:
                self._account(team.name, flavor)
        self._without_jobs = dict(self.capacity)
        for number, node in enumerate(board.nodes):
            self._count_node(number, node, +1)

    def account_of(self, namespace: str, flavor: str) -> Account:
        """The account that pods of that namespace are charged to."""
        return self._account(self.teams.name_of(namespace), flavor)

    def all(self, flavor: str) -> list[Account]:
        return list(self._known[flavor].values())

    def tops(self, flavor: str) -> list[Account]:
        """The accounts of that flavor without a parent."""
        return [account for account in self._known[flavor].values() if account.parent is None]

    def _account(self, name: str, flavor: str) -> Account:
        known = self._known[flavor].get(name)
        if known is None:
            team = self.teams.named(name)
            parent = self._account(team.parent, flavor) if team.parent and team.parent in self.teams.by_name else None
            known = self._known[flavor][name] = Account(team, flavor, parent)
        return known

    def _count_node(self, number: int, node: Node, sign: int) -> None:
        """Count the node's capacity, and the GPUs that pods on the node use, without the members of our jobs.

        If a node takes no new pods, only its GPUs in use count as capacity (35); `AllocationState.divide` adds the GPUs
        of our members.
        """
        is_open = not node.why_closed
        for resource, flavor in self.flavor_of[number].items():
            self._without_jobs[flavor] += sign * node.allocatable.get(resource, 0) if is_open else 0
            for namespace, gpus in node.used.gpus_of(resource):
                account = self.account_of(namespace, flavor)
                account.add_usage(sign * gpus, non_preemptible=True)
                account.foreign += sign * gpus
                self._without_jobs[flavor] += 0 if is_open else sign * gpus
            for namespace, gpus in node.leaving.gpus_of(resource):
                for account in self.account_of(namespace, flavor).path:
                    account.terminating += sign * gpus

    def renew_node(self, number: int, before: Node, after: Node) -> None:
        """Count a node again whose use has changed, and nothing else."""
        self._count_node(number, before, -1)
        self._count_node(number, after, +1)

    def note_use(self) -> None:
        """Record the use at the beginning of a pass, before the first decision."""
        for account in self._everybody():
            account.used_with_terminating = account.used + account.terminating

    def divide(self, held_on_closed: Counter[str]) -> None:
        """Compute the fair shares (31). `held_on_closed` are the GPUs of each flavor that members of our jobs hold on
        nodes that take no new pods.
        """
        self.capacity = {flavor: gpus + held_on_closed[flavor] for flavor, gpus in self._without_jobs.items()}
        for account in self._everybody():
            account.requested = account.foreign + account.requested_by_jobs
        for flavor in self._flavors:
            tops = self.tops(flavor)
            _sum_up(tops)
            _divide(self.capacity[flavor], tops)

    def may_borrow(self, account: Account, need: int) -> bool:
        """Whether every team keeps the GPUs that it does not lend if this account uses `need` more."""
        if self._lends_all[account.flavor] or account.entitlement(need) is Entitlement.GUARANTEED:
            return True
        promised = sum(_promised(top, account.path, need) for top in self.tops(account.flavor))
        return promised <= self.capacity[account.flavor]

    def _everybody(self) -> Iterator[Account]:
        return (account for accounts in self._known.values() for account in accounts.values())


def _promised(account: Account, path: Sequence[Account], more: int) -> int:
    """The largest of: GPUs used, GPUs withheld from lending (guarantee - lend limit), and the sum over the children."""
    kept = account.guaranteed - account.quota.lend_limit if account.quota.lend_limit is not None else 0
    used = account.used + (more if account in path else 0)
    return max(used, kept, sum(_promised(child, path, more) for child in account.children))


def _sum_up(accounts: Iterable[Account]) -> None:
    for account in accounts:
        if account.children:
            _sum_up(account.children)
            account.requested = sum(min(child.requested, child.limit) for child in account.children)


def _divide(total: int, accounts: Sequence[Account]) -> None:
    shares, _ = divide(total, [_claimant(account) for account in accounts])
    for account in accounts:
        account.share = shares[account.team.name]
        if account.children:
            _divide(account.share, account.children)


def _claimant(account: Account) -> Claimant:
    quota, team = account.quota, account.team
    idle = quota.guaranteed - min(quota.guaranteed, account.requested)
    return Claimant(
        name=team.name,
        requested=account.requested,
        guaranteed=quota.guaranteed,
        limit=quota.limit,
        weight=quota.weight,
        priority=team.priority,
        created=team.created,
        not_lent=max(0, idle - quota.lend_limit) if quota.lend_limit is not None else 0,
    )
