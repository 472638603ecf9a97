"""Decides a whole pass again from a snapshot: the observation, the grant and the plan of each job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from elastic_operator.plan.facts.decisions import Grant, Nomination, Plan, Slot
from elastic_operator.plan.facts.demand import JobDemand, Member
from elastic_operator.plan.facts.job import FaultStage, Job, OwnPod
from elastic_operator.plan.facts.pod_order import master_first
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.quarantined import plan_in_quarantine
from elastic_operator.plan.job.reconcile import reconcile
from elastic_operator.plan.planner import PassDecisions, Planner
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot
from elastic_operator.tools.snapshot_view import SnapshotReclaim, SnapshotView
from elastic_worker.contract import ROLE_MASTER


@dataclass(frozen=True, slots=True)
class JobDecision:
    """The decisions about one job. `demand` and `grant` are None if it takes no part in the allocation."""

    obs: Observation
    team: str
    demand: JobDemand | None
    grant: Grant | None
    plan: Plan

    @property
    def job(self) -> Job:
        return self.obs.job

    @property
    def pods_before(self) -> Sequence[Member | OwnPod]:
        """The pods that it had: those of its demand; without a demand, the pods that are not leaving."""
        return self.demand.pods if self.demand else self.job.active_pods

    @property
    def pods(self) -> Sequence[Member | OwnPod | Slot]:
        """The pods that it gets or keeps."""
        if self.grant is None:
            deleted = {pod.uid for pod in self.plan.deletes}
            return [pod for pod in self.job.active_pods if pod.uid not in deleted]
        return (*self.moves["keep"], *self.moves["create"])

    def gpus(self, pods: Sequence[Member | OwnPod | Slot]) -> int:
        """The GPUs of these pods of the job."""
        return sum(self._shape_of(pod).gpus if isinstance(pod, Member | Slot) else pod.gpus for pod in pods)

    @property
    def limit(self) -> str:
        """The reason why it gets no more, in one word."""
        return str(self.grant.size_reason.code) if self.grant else ""

    @property
    def message(self) -> str:
        """The reason why it gets no more, as a sentence."""
        return self.grant.message if self.grant else ""

    @property
    def moves(self) -> Mapping[str, tuple[Member | Slot, ...]]:
        """The pods that its grant keeps, releases and creates; existing ones by node, the master first."""
        if self.grant is None:
            return {}
        known = {pod.uid: pod for pod in self.demand.pods} if self.demand else {}
        assignment = self.grant.assignment

        def placed(uids: Sequence[str]) -> tuple[Member, ...]:
            return tuple(sorted((known[uid] for uid in uids), key=_order))

        return {"keep": placed(assignment.keep), "release": placed(assignment.release), "create": assignment.create}

    def _shape_of(self, pod: Member | Slot) -> PodShape:
        assert self.demand is not None, "only a job with a demand has such pods"
        return self.demand.shape.of(pod.role)


@dataclass(frozen=True, slots=True)
class ReplayedPass:
    """All decisions of one pass: about jobs, by namespace and name, and about pods that are not ours."""

    jobs: tuple[JobDecision, ...]
    nominations: tuple[Nomination, ...]
    stopped: Reason | None


def decide(snapshot: ClusterSnapshot) -> ReplayedPass:
    """The decisions of a pass, in an order that does not depend on the order of the input.

    The plans are those after all dry runs have passed: all preemptors can use their room (139).
    """
    view, planner = SnapshotView(snapshot), Planner()
    decisions = planner.decide(view, SnapshotReclaim(snapshot))
    demands = {demand.uid: demand for demand in decisions.inputs.jobs}
    found = [_decision(planner, view, decisions, obs, demands.get(uid)) for uid, obs in decisions.obs.items()]
    return ReplayedPass(
        jobs=tuple(sorted(found, key=lambda d: (d.job.namespace, d.job.name, d.job.uid))),
        nominations=tuple(sorted(decisions.allocation.nominations, key=lambda r: (r.namespace, r.name, r.uid))),
        stopped=decisions.stopped,
    )


def has_room(pod: Member | Slot) -> bool:
    """Whether the pod has its room: an existing pod always has it."""
    return isinstance(pod, Member) or pod.ready


def in_words(pods: Iterable[Member | Slot]) -> str:
    """Pods by node: `master, worker 0-2 on n1; worker 3 on n2`."""
    by_node = groupby(sorted(pods, key=_order), key=lambda pod: (pod.node, has_room(pod)))
    return "; ".join(_on_node(tuple(group), node, ready) for (node, ready), group in by_node)


def _decision(
    planner: Planner, view: SnapshotView, decisions: PassDecisions, obs: Observation, demand: JobDemand | None
) -> JobDecision:
    uid, allocation = obs.job.uid, decisions.allocation
    grant = allocation.get(uid)
    if not obs.job.quarantine:
        try:
            plan = reconcile(obs, grant, now=view.now)
        except Exception as error:  # noqa: BLE001 - any error is handled as an error of this job only
            quarantined = planner.jobs.quarantine(view, uid, error, stage=FaultStage.GRANT)
            assert quarantined is not None, "the job is there"
            obs = quarantined
    if obs.job.quarantine:
        plan = plan_in_quarantine(obs.job, grant.assignment.release if grant else (), view.now)
    return JobDecision(obs, decisions.policies.teams.name_of(obs.job.namespace), demand, grant, plan)


def _order(pod: Member | Slot) -> tuple[str, bool, bool, int]:
    """The pods by node, the master first."""
    return pod.node or "", not has_room(pod), *master_first(pod)


def _on_node(pods: Sequence[Member | Slot], node: str | None, ready: bool) -> str:
    roles = [ROLE_MASTER] if any(pod.role == ROLE_MASTER for pod in pods) else []
    indices = sorted(pod.index for pod in pods if pod.role != ROLE_MASTER)
    roles += [f"worker {_ranges(indices)}"] if indices else []
    place = f"on {node}" if node else "where the scheduler finds room"
    return f"{', '.join(roles)} {place}{'' if ready else ' once its room is free'}"


def _ranges(numbers: Sequence[int]) -> str:
    """`0-2, 5` of ascending numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
