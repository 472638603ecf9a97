"""Why a team's quota, or the right of other teams, keeps a job from being bigger: the reason and the sentence.

Each sentence says the wish, the limit and the use, and one thing to do.
"""

from __future__ import annotations

from elastic_api.status import SizeReason
from elastic_operator.plan.allocation.accounts import Account
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.queues import over_per_job_limit
from elastic_operator.plan.allocation.quota_refusal import Rule
from elastic_operator.plan.allocation.state import AllocationState
from elastic_operator.plan.facts.team import DEFAULT_POLICY
from elastic_operator.plan.facts.text import Reason, gpus


def why_excluded(entry: Entry, size: int, wanted: str) -> Reason | None:
    """The reason if the kind of GPU is not clear, or that size has more GPUs than a job of the team may have."""
    if problem := entry.demand.shape.flavor_problem:
        return Reason(SizeReason.FLAVOR_AMBIGUOUS, problem)
    if entry.account is None or not over_per_job_limit(entry, size):
        return None
    most, name = entry.account.team.max_gpus_per_job, policy(entry.account)
    text = f"{wanted}; {name} allows one job at most {most}. Raise perJob.maxGPUs there, or ask for less."
    return Reason(SizeReason.QUOTA_EXHAUSTED, text)


def why_quota(state: AllocationState, entry: Entry, size: int, wanted: str) -> Reason | None:
    """A limit of its team or of a team above it, or the guarantee of a team for a job that is not preemptible."""
    refused = state.quota_refusal(entry, entry.gpus_missing(size))
    if refused is None:
        return None
    over = refused.account
    match refused.rule:
        case Rule.GUARANTEE:
            text = (
                f"{wanted}; a job that is not preemptible may use only guaranteed GPUs. The guarantee of"
                f" {policy(over)} is {gpus(over.guaranteed)}; pods that cannot be reclaimed use {over.non_preemptible}."
                " Set preemptible to true, or raise the guarantee."
            )
            return Reason(SizeReason.QUOTA_EXHAUSTED, text)
        case Rule.LIMIT:
            return _over_quota(entry, over, wanted, entry.gpus_missing(size))
        case Rule.LENDING:
            text = (
                f"{wanted}; the idle GPUs belong to teams that do not lend them (lending.limit)."
                " Wait, or raise lending.limit of such a team."
            )
            return Reason(SizeReason.QUOTA_EXHAUSTED, text)


def _over_quota(entry: Entry, over: Account, wanted: str, need: int) -> Reason:
    """The team would use more than the limit, alone or with the pods that wait for new nodes (49)."""
    borrow, name, uses = over.quota.borrow_limit, policy(over), f"uses {_used(over)}"
    if over.on_new_nodes:
        uses += f", and {over.on_new_nodes} more are for pods that wait for new nodes"
    is_outranked = over is entry.account and over.used + need <= over.limit and not entry.admitted
    action = "Wait, or give the job a higher priority." if is_outranked else ""
    if not over.team.has_policy:
        text = f"{wanted}; {name} may use {gpus(over.limit)} and {uses}. {action or no_policy(entry)}"
        return Reason(SizeReason.NO_QUOTA_POLICY, text)
    if not borrow:
        text = (
            f"{wanted}; {name} may use only its guarantee of {gpus(over.guaranteed)} and {uses}; borrowing is"
            " off."
            f" {action or 'Raise borrowing.limit or the guarantee there, or wait.'}"
        )
        return Reason(SizeReason.BORROWING_DISABLED, text)
    text = f"{wanted}; {name} may use {gpus(over.limit)} ({over.guaranteed} guaranteed + {borrow} borrowed) and {uses}."
    return Reason(SizeReason.BORROWING_LIMIT_REACHED, f"{text} {action or 'Raise borrowing.limit there, or wait.'}")


def used_by_others(entry: Entry, size: int, wanted: str, usable: str, *, reclaim_stopped: Reason | None) -> Reason:
    """The reason if only pods of other teams stand in the way of that size.

    The sentence names the team whose fair share it would pass: the first one on the path that other teams judge by. If
    it would pass none, it could take GPUs from these teams, unless reclaim is stopped or their pods are protected.
    """
    account = entry.account
    if account is None:
        text = f"{wanted}; {usable}, and pods of other teams use the rest. Wait."
        return Reason(SizeReason.HIGHER_PRIORITY_JOBS, text)
    need, judged = entry.gpus_missing(size), (*account.path_seen_by_others, account)
    beyond = next((one for one in judged if one.used + need > max(one.share, one.guaranteed)), None)
    team = beyond or account
    use = f"uses {_used(team)}; its fair share is {team.share} ({team.guaranteed} guaranteed)"
    text = f"{wanted}; {usable}, and pods of other teams use the rest; {policy(team)} {use}."
    if beyond is None and reclaim_stopped is not None:
        return Reason(SizeReason.QUOTA_EXHAUSTED, f"{text} {reclaim_stopped.message}")
    if not account.team.has_policy:
        return Reason(SizeReason.NO_QUOTA_POLICY, f"{text} {no_policy(entry)}")
    return Reason(SizeReason.QUOTA_EXHAUSTED, f"{text} Raise its guarantee or weight, or wait until GPUs are idle.")


def _used(account: Account) -> str:
    """The team's use. For all namespaces without a policy together, also the part of plain pods."""
    foreign = account.foreign_below if account.children and not account.team.has_policy else 0
    return f"{account.used}, {foreign} of them by pods that belong to no job" if foreign else str(account.used)


def no_policy(entry: Entry) -> str:
    """What to do where no policy covers the namespace."""
    return f"No GPUQuotaPolicy covers namespace '{entry.demand.namespace}'. Ask an administrator for one, or wait."


def policy(account: Account) -> str:
    """The team's name in a sentence."""
    if account.team.has_policy:
        return f"policy '{account.team.name}'"
    if account.team.name == DEFAULT_POLICY:
        return "the default policy (of all namespaces without one)"
    return account.team.name
