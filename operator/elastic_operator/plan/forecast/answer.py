"""The answer to a job's question what it would get now: the allocator's decision on the input with that job in it
(160).

The answer names teams and amounts only. It does not name the jobs that would be evicted, because anybody who may create
a job may ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from elastic_api.status import MAX_LENDERS, SizeReason
from elastic_operator.plan.allocation.accounts import Account, Accounts
from elastic_operator.plan.allocation.lending import lendable, lent_gpus
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.forecast.positions import positions, queued_jobs
from elastic_operator.plan.forecast.starts import Steps, confidence, start_times
from elastic_operator.plan.job.demand import demand_of
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.lookahead import LookaheadAllocator

WOULD_NOT_LAST = "The job gets no pods now, because they would be evicted for others at once."


@dataclass(frozen=True, slots=True)
class Answer:
    """What the job would get: `replicas` pods with `gpus` in all, and the `reason` why not more.

    `reclaimed`: the GPUs of running pods that would be evicted for the job. `borrowed`: its GPUs beyond the guarantee.
    `lenders`: the teams that would lend them, each with the most GPUs that it would lend. If the job does not fit,
    `position` is its place in line. If a known end of other jobs lets it start, `starts_at` is when (epoch seconds),
    and `confidence` how sure that is.
    """

    reason: Reason
    fits: bool = False
    replicas: int = 0
    gpus: int = 0
    reclaimed: int = 0
    borrowed: int = 0
    lenders: tuple[tuple[str, int], ...] = ()
    position: int | None = None
    starts_at: float | None = None
    confidence: float | None = None


def demand_if_resumed(obs: Observation, shape: JobShape, now: float) -> JobDemand:
    """The demand of a suspended job as if it were resumed `now`."""
    spec = obs.spec.model_copy(update={"suspend": False})
    return replace(demand_of(replace(obs, job=replace(obs.job, spec=spec)), shape), waiting_since=now)


def answer_steps(inputs: AllocationInputs, job: JobDemand, ends: Mapping[str, float]) -> Steps[Answer]:
    """The answer for a job that asks: what it would get now; if nothing, when it would start."""
    resumed = with_job(inputs, job)
    yield
    allocation = LookaheadAllocator().allocate(resumed)
    found = answer(job, allocation)
    if found.fits:
        return found
    place = positions(queued_jobs(resumed.jobs, allocation), allocation).get(job.uid)
    sure = confidence(resumed, allocation, ends, job.shape.flavor)
    starts = yield from start_times(resumed, allocation, ends, [job.uid])
    at = starts.get(job.uid)
    return replace(found, position=place, starts_at=at, confidence=sure if at is not None else None)


def with_job(inputs: AllocationInputs, job: JobDemand) -> AllocationInputs:
    """The input with that demand of the job, instead of the job's present demand."""
    return replace(inputs, jobs=(*(demand for demand in inputs.jobs if demand.uid != job.uid), job))


def answer(job: JobDemand, allocation: Allocation) -> Answer:
    grant = allocation[job.uid]
    code = grant.size_reason.code
    size = 0 if code == SizeReason.WAITING_FOR_NODES else grant.assignment.replicas
    gpus = job.gpus_of_size(size) if size else 0
    own = allocation.accounts.account_of(job.namespace, job.shape.flavor) if gpus else None
    borrowed = min(gpus, max(0, own.used - own.guaranteed)) if own else 0
    return Answer(
        fits=size >= min(job.sizes, default=1),
        replicas=size,
        gpus=gpus,
        reason=Reason(code, WOULD_NOT_LAST if code == SizeReason.WOULD_NOT_LAST else grant.message),
        reclaimed=allocation.gpus_taken_for(job.uid),
        borrowed=borrowed,
        lenders=tuple(_lenders(allocation.accounts, own, borrowed))[:MAX_LENDERS] if own and borrowed else (),
    )


def _lenders(accounts: Accounts, own: Account, borrowed: int) -> Iterator[tuple[str, int]]:
    """The teams that would lend so many GPUs to a job of that account, the largest lender first, each with the most
    GPUs that it would lend.

    Which team lends them is not decided: any with idle GPUs may.
    """
    lent = lent_gpus(accounts, own.flavor, attrgetter("used"))
    leaves = [account for account in lent if not account.children]
    most = min(borrowed, sum(lent[account] for account in leaves))
    idle = {account.team.name: lendable(account, account.used) for account in leaves if account is not own}
    for name, gpus in sorted(idle.items(), key=lambda one: (-one[1], one[0])):
        if most > 0 and gpus > 0:
            yield name, min(gpus, most)
