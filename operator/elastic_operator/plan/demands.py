"""Makes the demands of jobs, remembered by their inputs."""

from __future__ import annotations

from dataclasses import replace

from elastic_operator.plan.cluster_view import ClusterView
from elastic_operator.plan.facts.demand import JobDemand, Member, PreemptionBar
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.requirements import JobShape
from elastic_operator.plan.job.demand import demand_of, with_members
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.quarantined import demand_in_quarantine
from elastic_operator.plan.job.remaining_pods import demand_of_pods, frozen_demand, unwanted_pods
from elastic_operator.plan.observed_jobs import JobMemory


def renew_demand(view: ClusterView, memory: JobMemory, obs: Observation) -> None:
    """Make the job's demand, and remember it. While its inputs do not change, the demand stays the same object.

    The inputs are compared by `==`, which takes no time if they are the same objects. A new observation is compared
    field by field, because a new demand would cost an allocation.
    """
    job = obs.job
    if not obs.wants_pods:
        pods = unwanted_pods(obs)
        flavor = view.flavor_in_use(pods)
        memory.demanded.get((obs, flavor), demand_of_pods, job, pods, flavor)
        memory.good = None
        return
    key = obs, view.shape(job), view.assumed(job.uid), view.preemption_bar(job)
    memory.good = memory.demanded.get(key, _demand_with, *key)


def demand_while_quarantined(view: ClusterView, memory: JobMemory, job: Job) -> JobDemand | None:
    """The job's last demand, or a demand made from its pods. None if neither can be made: then its pods count as
    foreign pods.

    An error in this function does not prolong the job's quarantine.
    """
    try:
        if memory.good is not None:
            return demand_in_quarantine(memory.good, job.pods)
        return demand_of_pods(job, job.active_pods, view.flavor_in_use(job.active_pods))
    except Exception as error:  # noqa: BLE001 - the view reports the error
        view.note_unknown_demand(job, error)
        return None


def _demand_with(
    obs: Observation, shape: JobShape, assumed: tuple[Member, ...], bar: PreemptionBar | None
) -> JobDemand:
    """The demand of a job that may have pods; pods that are being created count as its members."""
    demand = demand_of(obs, shape)
    if assumed:
        demand = with_members(demand, assumed)
    if obs.job.needs_edit or obs.status.held_until:
        demand = frozen_demand(demand)
    return demand if bar is None else replace(demand, preemption_bar=bar)
