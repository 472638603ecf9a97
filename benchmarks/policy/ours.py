"""This project's decisions, called as in its loop: observe, allocate and reconcile of `elastic_operator.plan`.

No part of the policy is written again here. The operator's code reads jobs and pods as from Kubernetes, its plans are
carried out at once, and its statuses are kept as by the API server. Two parts of `loop/` are left out: dry runs before
reclaim, since no pod is refused here, and the turns of preemptors that wait for the limit for all teams (138).
kube-scheduler is simulated: it gives a plain pod the fullest node with room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from benchmarks.policy.model import Mode
from benchmarks.policy.packing import fullest
from benchmarks.policy.traces import GPUS_PER_NODE, JobTrace, Trace
from benchmarks.policy.training import Pod, Training
from benchmarks.policy.world import World
from elastic_api.job import JobSpec
from elastic_api.status import JobStatus
from elastic_operator.plan.allocation.allocate import Allocator
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.change_times import ChangeTimes
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs, AllocationSettings
from elastic_operator.plan.facts.decisions import Assignment, NewPods, Plan, Slot
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.eviction_limits import EvictionLimits, PreemptorKey
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.group_report import GroupReport
from elastic_operator.plan.facts.job import Job, JobContext, JobFeedback, MainContainer, OwnPod
from elastic_operator.plan.facts.job_shape import job_shape
from elastic_operator.plan.facts.node import Node, NodeUse, Unready, UnreadyNode
from elastic_operator.plan.facts.requirements import JobShape, PodShape
from elastic_operator.plan.facts.team import DEFAULT_FLAVOR, Flavor, Quota, Team, Teams
from elastic_operator.plan.job.demand import demand_of
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.observe import observe
from elastic_operator.plan.job.reconcile import reconcile
from elastic_operator.settings import Settings
from elastic_worker.contract import ROLE_MASTER

EPOCH = 1_800_000_000.0
"""The beginning of a trace, in seconds since the epoch."""
GPU = "nvidia.com/gpu"
MOST_ROUNDS = 40
"""The most rounds of decisions after a change. Each round sees the results of the one before."""
ROUNDS_WITHOUT_PODS = 6
MINUTE = 60.0
SETTINGS = Settings()
ALLOCATION_SETTINGS = AllocationSettings(gpu_resources=(GPU,), starvation_seconds=SETTINGS.starvation_seconds)


@dataclass(slots=True)
class _Known:
    """A job as last read. Its observation holds until `until`, and its plan until `again_at`."""

    job: Job
    made: dict[str, tuple[NewPods, Slot]]
    pods: dict[str, OwnPod]
    obs: Observation | None = None
    until: float = -inf
    demand: JobDemand | None = None
    settled: tuple[Observation, Assignment | None] | None = None
    again_at: float = inf
    generation: tuple[int, float] = (0, 0.0)


class Ours:
    """The operator in virtual time."""

    name = "ours"

    def __init__(self, trace: Trace) -> None:
        self.wake = inf
        self._allocator = Allocator()
        self._known: dict[str, _Known] = {}
        allocation = SETTINGS.allocation
        made = (_team(team.name, team.guaranteed, number) for number, team in enumerate(trace.teams))
        covered = {team.name: team.name for team in trace.teams}
        self._teams = Teams((*made, *allocation.default_parents), covered, allocation.default_team)
        self._gone: dict[str, tuple[float, PreemptorKey]] = {}
        self._reserved: dict[str, tuple[str, float]] = {}
        """Reservations of plain pods: the node, and until when."""
        self._nodes: dict[str, Node] = {}

    def least(self, job: JobTrace) -> int:
        """Its minimum."""
        return job.least

    def mode(self, job: JobTrace) -> Mode:
        """As it is written."""
        return job.mode

    def decide(self, world: World) -> None:
        """Make rounds of decisions until nothing is left to do.

        While pods leave, the plan for a job that does not run yet may differ in each round without any new pod
        (docs/limits.md). Such rounds end after a few, and the next ones follow a second later.
        """
        for name in self._known.keys() - world.jobs.keys():
            del self._known[name]
        without_pods = 0
        for _ in range(MOST_ROUNDS):
            self._schedule(world)
            inputs, pods = self._look(world), world.pod_changes
            allocation = self._allocator.allocate(inputs)
            self._reserve(allocation, inputs.now)
            if not self._carry_out(world, allocation, inputs.now):
                self.wake = self._next_look(inputs, allocation) - EPOCH
                return
            without_pods = without_pods + 1 if world.pod_changes == pods else 0
            if without_pods == ROUNDS_WITHOUT_PODS:
                self.wake = world.now + 1.0
                return
        raise AssertionError(f"decisions do not converge in {MOST_ROUNDS} rounds, {world.now:.0f} s")

    # -- reading -------------------------------------------------------------------------------------------------------

    def _look(self, world: World) -> AllocationInputs:
        now = EPOCH + world.now
        unready = {_node_name(number): UnreadyNode(EPOCH + since, EPOCH + since) for number, since in world.unready()}
        for name, job in world.jobs.items():
            known = self._known.get(name)
            if known is None:
                known = self._known[name] = _Known(_new_job(job.trace), {}, {})
            self._see(known, job, unready, now)
        self._gone = {uid: (at, preemptor) for uid, (at, preemptor) in self._gone.items() if now - at < MINUTE}
        gone = {uid: preemptor for uid, (_, preemptor) in self._gone.items()}
        return AllocationInputs(
            now=now,
            nodes=tuple(self._node(world, number) for number in range(len(world.places))),
            jobs=tuple(known.demand for known in self._known.values() if known.demand is not None),
            settings=ALLOCATION_SETTINGS,
            teams=self._teams,
            foreign_pods=tuple(self._requests(world)),
            eviction_limits=EvictionLimits(
                *SETTINGS.reclaim.most_evictions(world.trace.gpus), evicted_last_minute=gone, configured=frozenset()
            ),
        )

    def _see(self, known: _Known, job: Training, unready: Unready, now: float) -> None:
        """The observation of the job and its demand, renewed if anything in it may have changed."""
        self._read_pods(known, job, unready, now)
        if known.obs is not None and known.obs.job is known.job and now < known.until:
            return
        obs = known.obs = observe(known.job, now)
        undecided = obs.write_status_first or obs.status is not obs.job.status
        times = (time for time in (*obs.requeue_at, obs.no_pods_before) if time > now)
        known.until = -inf if undecided else min(times, default=inf)
        demand = demand_of(obs, _shape(job.trace)) if obs.wants_pods else None
        known.demand = known.demand if demand == known.demand else demand

    def _read_pods(self, known: _Known, job: Training, unready: Unready, now: float) -> None:
        """The job's pods as the stores have them. Pods on a lost node exist until they are deleted."""
        pods: dict[str, OwnPod] = {}
        for uid, made in known.made.items():
            pod, before = job.pods.get(uid), known.pods.get(uid)
            if pod is not None:
                pods[uid] = _own_pod(job.trace, pod, made, before, now)
            elif before is not None and before.node in unready and before.deleting_since is None:
                pods[uid] = before
        known.made = {uid: made for uid, made in known.made.items() if uid in pods}
        report = self._report(known, job, pods, now) if known.job.spec and known.job.spec.is_elastic else None
        same = pods.keys() == known.pods.keys() and all(pod is known.pods[uid] for uid, pod in pods.items())
        known.pods = pods
        here = {pod.node: unready[pod.node] for pod in pods.values() if pod.node and pod.node in unready}
        if not same or report != known.job.feedback.report or here != known.job.context.unready:
            known.job = replace(
                known.job,
                pods=tuple(pods.values()),
                feedback=JobFeedback(report=report),
                context=replace(known.job.context, unready=here),
            )

    def _report(self, known: _Known, job: Training, pods: Mapping[str, OwnPod], now: float) -> GroupReport | None:
        """The master's report on its group; a script with the library also reports how many samples it has seen."""
        master = next((pod for pod in pods.values() if pod.role == ROLE_MASTER and pod.deleting_since is None), None)
        if master is None or not master.ready:
            return None
        if known.generation[0] != job.generation:
            known.generation = job.generation, now
        members = tuple(pods[pod.uid].name for pod in sorted(job.group, key=lambda pod: pod.index) if pod.uid in pods)
        return GroupReport(
            master_uid=master.uid,
            read_at=known.generation[1],
            generation=job.generation,
            state="Running" if members else "Forming",
            members=members,
            world_size=sum(pod.gpus for pod in job.group),
            samples_seen=0 if job.mode is Mode.LIBRARY else None,
        )

    def _node(self, world: World, number: int) -> Node:
        """The node; the same object as before if it has not changed."""
        name, place = _node_name(number), world.places[number]
        used = Counter(pod.trace.team for pod in world.plain.values() if pod.node == number)
        leaving = Counter(dict(self._leaving(name)))
        node = Node(
            name=name,
            allocatable={GPU: GPUS_PER_NODE, "pods": 250},
            ready=place.away_since == inf,
            used=_use(used),
            leaving=_use(leaving),
        )
        if node != self._nodes.get(name):
            self._nodes[name] = node
        return self._nodes[name]

    def _leaving(self, node: str) -> Iterator[tuple[str, int]]:
        """The leaving pods on the node: their owners and their GPUs."""
        found = Counter[str]()
        for known in self._known.values():
            gone = {pod.uid for pod in known.obs.to_delete} if known.obs else set()
            for pod in known.pods.values():
                if pod.node == node and (pod.deleting_since is not None or pod.uid in gone):
                    found[known.job.namespace] += pod.gpus
        yield from found.items()

    def _requests(self, world: World) -> Iterator[ForeignPod]:
        shape = PodShape(requests={GPU: 1, "pods": 1}, gpus=1)
        for name, pod in world.plain.items():
            if pod.node is None:
                created, reserved = EPOCH + pod.trace.arrives, self._reserved.get(name, ("", 0.0))[0]
                demand = JobDemand(name, pod.trace.team, name, 0, created, (1,), JobShape(shape, shape))
                yield ForeignPod(demand, reserved=reserved)

    # -- acting --------------------------------------------------------------------------------------------------------

    def _schedule(self, world: World) -> None:
        """kube-scheduler: bind plain pods where there is room that is not reserved for another pod."""
        now = EPOCH + world.now
        waiting = {name: pod for name, pod in world.plain.items() if pod.node is None}
        held = {name: one for name, one in self._reserved.items() if name in waiting and now < one[1]}
        self._reserved = held
        for name, pod in waiting.items():
            others = Counter(node for other, (node, _) in self._reserved.items() if other != name)
            free = [room - others[_node_name(number)] for number, room in enumerate(world.free())]
            own = int(held[name][0].removeprefix("node-")) if name in held else None
            node = own if own is not None and free[own] > 0 else fullest(free, 1)
            if node is not None:
                world.place(pod, node)
                self._reserved.pop(name, None)

    def _reserve(self, allocation: Allocation, now: float) -> None:
        """Nominate foreign pods before pods of jobs are evicted for them."""
        for one in allocation.nominations:
            if one.is_new and (one.evicts_from or one.reserved):
                self._reserved[one.uid] = one.node, now + SETTINGS.reclaim.reservation_seconds + MINUTE

    def _carry_out(self, world: World, allocation: Allocation, now: float) -> bool:
        """Carry out each job's plan; returns whether there was anything to do."""
        moved, taken = False, dict(allocation.evicted_for)
        for name, known in self._known.items():
            obs = known.obs
            assert obs is not None, "all jobs were looked at"
            share = allocation.assignment(name) if known.demand is not None else None
            same = known.settled is not None and known.settled[0] is obs and known.settled[1] == share
            if same and now < known.again_at:
                continue
            grant = allocation[name] if share is not None else None
            plan = reconcile(obs, grant, now=now)
            known.settled = obs, share
            known.again_at = plan.requeue_at
            moved |= self._do(world, known, plan, taken, now)
        return moved

    def _do(self, world: World, known: _Known, plan: Plan, taken: Mapping[str, PreemptorKey], now: float) -> bool:
        job = world.jobs[known.job.name]
        going = [job.pods[one.uid] for one in plan.deletes if one.uid in job.pods and job.pods[one.uid].stays]
        if going:
            world.delete(job, going)
        for one in plan.deletes:
            if one.uid in taken:
                self._gone[one.uid] = now, taken[one.uid]
            if one.uid not in job.pods:
                known.made.pop(one.uid, None)
        for slot in plan.slots:
            assert plan.creates is not None
            assert slot.node is not None, "every pod here can be placed"
            index = 0 if slot.role == ROLE_MASTER else slot.index + 1
            known.made[world.create(job, index, int(slot.node.removeprefix("node-"))).uid] = plan.creates, slot
        if master := plan.membership:
            new, slot = known.made[master.uid]
            known.made[master.uid] = replace(new, membership=master.text), slot
        changed = bool(going or plan.creates or plan.membership) or plan.status != known.job.status
        if changed:
            known.job = replace(known.job, status=plan.status)
        return changed

    def _next_look(self, inputs: AllocationInputs, allocation: Allocation) -> float:
        """When a decision may change without an event."""
        times = [ChangeTimes().next(inputs)]
        times += [time for known in self._known.values() for time in (known.until, known.again_at)]
        times += [until for _, until in self._reserved.values()]
        if allocation.over_eviction_limit:
            times += [at + MINUTE for at, _ in self._gone.values()]
        return max(inputs.now + 1.0, min(times))


def _team(name: str, guaranteed: int, number: int) -> Team:
    return Team(name, created=float(number), quotas={DEFAULT_FLAVOR: Quota(guaranteed=guaranteed)})


def _new_job(trace: JobTrace) -> Job:
    return Job(
        namespace=trace.team,
        name=trace.name,
        uid=trace.name,
        generation=1,
        created=EPOCH + trace.arrives,
        status=JobStatus(),
        spec=_spec(trace),
        context=JobContext(priority=trace.priority),
        start_seconds=SETTINGS.start_timeout_seconds,
    )


def _spec(trace: JobTrace) -> JobSpec:
    container = {"name": "pytorch", "image": "train", "args": ["train.py"], "resources": {"limits": {GPU: trace.gpus}}}
    spec: dict[str, Any] = {
        "minReplicas": trace.least,
        "maxReplicas": trace.most,
        "template": {"spec": {"containers": [container]}},
        "elasticity": {"scaleUpDelaySeconds": trace.delay},
    }
    if trace.mode in (Mode.LIBRARY, Mode.ELASTIC):
        spec["runtime"] = {"mode": "Elastic"}
    if trace.mode is Mode.ELASTIC:
        spec["elasticity"]["checkpointPath"] = "/checkpoints"
    return JobSpec.model_validate(spec)


def _shape(trace: JobTrace) -> JobShape:
    shape = PodShape(requests={GPU: trace.gpus, "pods": 1}, gpus=trace.gpus)
    return job_shape(shape, shape, flavors=(Flavor(),))


def _own_pod(trace: JobTrace, pod: Pod, made: tuple[NewPods, Slot], before: OwnPod | None, now: float) -> OwnPod:
    """The pod as in the store; the same object as before if it has not changed."""
    new, slot = made
    runs = pod.ready <= now - EPOCH + 1e-6 or (before is not None and before.ready)
    known = before or OwnPod(
        namespace=trace.team,
        name=slot.pod_name(trace.name),
        uid=pod.uid,
        role=slot.role,
        index=slot.index,
        incarnation=new.incarnation,
        phase="Pending",
        created=now,
        node=_node_name(pod.node),
        bound=True,
        bound_since=now,
        requests={GPU: pod.gpus, "pods": 1},
        gpus=pod.gpus,
        nnodes=new.nnodes,
        pod_ip="10.0.0.1",
        master_epoch=new.master_epoch if slot.role == ROLE_MASTER and new.master_epoch else None,
        membership=new.membership,
    )
    if runs and not known.ready:
        known = replace(known, phase="Running", ready=True, main=MainContainer(running_since=now))
    if not pod.stays and known.deleting_since is None:
        known = replace(known, deleting_since=now)
    return known if known.membership == new.membership else replace(known, membership=new.membership)


def _node_name(number: int) -> str:
    return f"node-{number}"


def _use(gpus: Counter[str]) -> NodeUse:
    """The use of a node by pods with one GPU each; `gpus` by namespace."""
    total = gpus.total()
    requests = {GPU: total, "pods": total} if total else {}
    return NodeUse(requests, gpus_by_namespace={team: {GPU: count} for team, count in gpus.items()})
