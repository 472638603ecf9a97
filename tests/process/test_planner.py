"""A planner that remembers observes what a fresh one observes, whatever happened in between."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from math import inf
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elastic_api.pod_names import parse_pod_name
from elastic_api.status import ConditionType
from elastic_operator import quarantine
from elastic_operator.cluster import objects
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.errors import Unreachable
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.stores import Stores
from elastic_operator.loop.reclaim.dry_run import DryRunQuestion
from elastic_operator.loop.reclaim.dry_run_answers import DryRunAnswers
from elastic_operator.loop.store_view import StoreView
from elastic_operator.loop.writes.failed_writes import FailedWrites
from elastic_operator.memory import DirtyJobs, DirtySet
from elastic_operator.plan import observed_jobs
from elastic_operator.plan.allocation.allocate import Allocator
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_operator.plan.facts.demand import Bar, PreemptionBar
from elastic_operator.plan.facts.eviction_limits import EvictionLimits
from elastic_operator.plan.facts.job import FaultStage, JobFeedback
from elastic_operator.plan.facts.node import NodeUse
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.plan.facts.team import DEFAULT_POLICY, Flavor, Quota
from elastic_operator.plan.job.observation import NodeState, Observation
from elastic_operator.plan.job.reconcile import reconcile
from elastic_operator.plan.last_plans import LastPlan
from elastic_operator.plan.planner import PassDecisions, Planner
from elastic_operator.pods.failure_logs import FailureLogs
from elastic_operator.read.convert import OUT_OF_SERVICE
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.reader import Reader
from elastic_operator.read.terminating_pods import OVERDUE_SECONDS
from elastic_operator.settings import Settings
from elastic_operator.tools import snapshot_file
from elastic_operator.tools.cluster_snapshot import snapshot_of
from elastic_operator.tools.decisions import decide
from tests.api.jobs import make_job, make_template, with_gpus
from tests.api.policies import make_flavor, make_policy
from tests.build.objects import Owner
from tests.cluster_unit.build import node, owner, pod
from tests.kit.calls import calls_of
from tests.plan.elastic.jobs import is_pending, make_group, make_master
from tests.plan.jobs import group
from tests.plan.jobs import make_job as make_facts

START = 1_800_000_000.0
STARTED = "2027-01-15T08:00:00Z"
GPU = "nvidia.com/gpu"
JOBS = ("first", "second")


class Unlimited:
    """Everybody takes what it is entitled to."""

    stopped, is_report_only = None, False

    def eviction_limits(self, _gpus: int) -> EvictionLimits:
        return EvictionLimits()

    def seconds_until_capacity(self, _allocation: Allocation) -> float:
        return inf


def pinned_to(node_name: str) -> dict[str, Any]:
    """The part of a pod's spec that allows that node only."""
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
    return {"affinity": {"nodeAffinity": required}}


class Sight(NamedTuple):
    """What a planner observes."""

    obs: Mapping[str, Observation]
    inputs: AllocationInputs


class World:
    """Stores that things happen to, with a planner that remembers."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.stores = Stores(**{field.name: Store() for field in fields(Stores)})
        self.now, self.revision = START, 100
        self.dirty_jobs: DirtyJobs = DirtySet()
        self.ledger = Ledger(
            job_of=self.stores.jobs.get, parse=parse_pod_name, dirty_jobs=self.dirty_jobs, now=lambda: self.now
        )
        self.stores.jobs.subscribe(self._job_comes_or_goes)
        self.stores.pods.subscribe(self.ledger.pod_changed)
        self.failed_writes = FailedWrites(self.dirty_jobs)
        self.answers = DryRunAnswers(self.dirty_jobs, lambda: self.stored.reader.external_changes.note_change())
        self.begin_anew()

    def begin_anew(self) -> None:
        """Another process leads."""
        self.stored, self.planner = self.new_world(), Planner()

    def new_world(self) -> StoreView:
        clock = self.clock = ServerClock(monotonic=lambda: self.now)
        clock.offset = 0.0
        faults = quarantine.Quarantine(dirty_jobs=self.dirty_jobs)
        reader = Reader(self.stores, self.ledger, self.settings, clock=clock, quarantine=faults)
        logs = FailureLogs(None, lambda _: "pytorch", self.dirty_jobs, lambda: None)
        return StoreView(reader, self.dirty_jobs, logs.with_logs, self.failed_writes.feedback, self.answers)

    def look(self) -> Sight:
        sight = Sight(*self.planner.observe(self.stored.refresh(self.now)))
        self._forget_absent(sight.obs)
        return sight

    def look_anew(self) -> Sight:
        """As a process that has just started sees it."""
        return Sight(*Planner().observe(self._new_with_specs().refresh(self.now)))

    def decide(self) -> PassDecisions:
        decisions = self.planner.decide(self.stored.refresh(self.now), Unlimited())
        self._forget_absent(decisions.obs)
        return decisions

    def write_statuses(self) -> None:
        """Write the observed statuses, as the operator does. Until then they keep the times of their observation."""
        for obs in self.look().obs.values():
            if obs.status is not obs.job.status:
                body = self.stores.jobs.get(obs.job.uid)
                meta = msgspec.structs.replace(body.metadata, resource_version=self._next())
                status = objects.Packed(obs.status.model_dump(mode="json", by_alias=True, exclude_none=True))
                self.stores.jobs.observe(msgspec.structs.replace(body, metadata=meta, status=status))
        self.look()

    def _forget_absent(self, obs: Mapping[str, Observation]) -> None:
        """As each pass does."""
        for memory in (self.stored.reader.specs, self.stored.reader.shapes, self.answers):
            memory.forget_deleted(obs.keys())

    def decide_anew(self) -> PassDecisions:
        """As a process that has just started decides."""
        return Planner().decide(self._new_with_specs().refresh(self.now), Unlimited())

    def _new_with_specs(self) -> StoreView:
        """A new world that knows the last good specs of policies, as this leader does (99)."""
        view = self.new_world()
        view.reader.policies._good = dict(self.stored.reader.policies._good)
        return view

    def _job_comes_or_goes(self, old: objects.CustomObject | None, new: objects.CustomObject | None) -> None:
        if old is None or new is None:
            self.ledger.job_changed((new or old).metadata.uid)

    def _next(self) -> str:
        self.revision += 1
        return str(self.revision)

    def _meta(self, name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "uid": f"uid-{name}", "resourceVersion": self._next(), **more}

    # -- what happens ------------------------------------------------------------------------------------------------

    def job(self, name: str, most: int, status: dict[str, Any], claim: str, **spec: Any) -> None:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
        priority = {"priorityClassName": "other"} if most == 4 else {}
        template = make_template(with_gpus(1), volumes=volumes, **priority)
        body = make_job(name, **{"maxReplicas": most, "template": template, **spec})
        known = self.stores.jobs.get(f"uid-{name}")
        generation = known.metadata.generation + 1 if known else 1
        body["metadata"] |= self._meta(name, generation=generation, creationTimestamp=STARTED)
        self.stores.jobs.observe(objects.decode(body | {"status": status}, objects.CustomObject))

    def pod(self, job: str, place: str, where: str, phase: str, deleting: bool, ours: bool) -> None:
        """A pod appears or changes. `where` is its node, "" without one; "@n1" if it is pinned to n1, and not bound."""
        _, pinned, pin = where.partition("@")
        where, spec = ("", pinned_to(pin)) if pinned else (where, {})
        known = self.stores.pods.get(f"uid-{job}-{place}")
        written = datetime.fromtimestamp(self.now, UTC).isoformat()
        created = known.metadata.creation_timestamp if known is not None else written
        meta = {"labels": {"elastic-pytorch.dev/incarnation": "1"}, "creationTimestamp": created}
        if deleting:
            meta |= {"deletionTimestamp": STARTED, "deletionGracePeriodSeconds": 30}
        if known is not None and known.status.phase != "Pending" == phase:
            phase = known.status.phase  # no pod becomes Pending again
        scheduled = {"type": "PodScheduled", "status": "True" if where else "False", "lastTransitionTime": written}
        scheduled |= {} if where else {"reason": "Unschedulable", "message": "0/2 nodes are available"}
        self.stores.pods.observe(
            pod(
                f"{job}-{place}",
                namespace="default",
                rv=int(self._next()),
                node=where,
                gpus=1,
                phase=phase,
                owners=(owner(f"uid-{job}", name=job),) if ours else (),
                spec=spec,
                status={"conditions": [scheduled]},
                **meta,
            )
        )

    def goes(self, kind: str, name: str) -> None:
        getattr(self.stores, kind).observe_deleted(f"uid-{name}", self._next())

    def node(
        self,
        name: str,
        gpus: int,
        ready: bool,
        cordoned: bool,
        since: float | None = None,
        made: float | None = None,
        taints: Sequence[dict[str, str]] = (),
    ) -> None:
        written = datetime.fromtimestamp(since or self.now, UTC).isoformat()
        created = datetime.fromtimestamp(made or START - 86_400, UTC).isoformat()
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": written}
        body = node(name, gpus=gpus, spec={"unschedulable": cordoned, "taints": taints})
        status = msgspec.convert(
            {"allocatable": {GPU: str(gpus), "cpu": "8", "pods": "110"}, "conditions": [condition]}, objects.NodeStatus
        )
        meta = msgspec.structs.replace(body.metadata, resource_version=self._next(), creation_timestamp=created)
        self.stores.nodes.observe(msgspec.structs.replace(body, metadata=meta, status=status))

    def creation(self, job: str, place: str, where: str) -> None:
        role, _, index = place.partition("-")
        slot = Slot(role, int(index), where or None, ready=True)
        self.ledger.assumed.add(Owner("default", job, f"uid-{job}"), slot, PodShape({GPU: 1}, gpus=1))

    def creation_ends(self, job: str, place: str) -> None:
        self.ledger.assumed.await_seen("default", f"{job}-{place}")

    def creation_fails(self, job: str, place: str) -> None:
        self.ledger.assumed.forget("default", f"{job}-{place}")

    def trouble(self, job: str) -> None:
        obs = self.look().obs.get(f"uid-{job}")
        if obs is not None:
            self.failed_writes.add(obs.job, Unreachable("no answer in time"), self.now)

    def trouble_ends(self, job: str) -> None:
        obs = self.look().obs.get(f"uid-{job}")
        if obs is not None:
            self.failed_writes.clear(obs.job)

    def is_refused(self, job: str, refused: bool) -> None:
        one_pod = NewPods((Slot("worker", 0, None, ready=True),), 1, (1, 1))
        question = DryRunQuestion(make_facts(uid=f"uid-{job}", namespace="default"), one_pod)
        (self.answers.note_refused if refused else self.answers.note_accepted)(question)

    def claim(self, name: str, bound: bool) -> None:
        status = {"phase": "Bound" if bound else "Pending"}
        body = {"metadata": self._meta(name, namespace="default"), "spec": {"volumeName": "v"}, "status": status}
        self.stores.claims.observe(objects.decode(body, objects.PersistentVolumeClaim))

    def priority_class(self, name: str, value: int, default: bool) -> None:
        policy = "Never" if value % 2 else "PreemptLowerPriority"
        body = {"metadata": self._meta(name), "value": value, "globalDefault": default, "preemptionPolicy": policy}
        self.stores.priority_classes.observe(objects.decode(body, objects.PriorityClass))

    def volume(self, name: str, zonal: bool) -> None:
        body = {"metadata": self._meta(name), "spec": {"nodeAffinity": {}} if zonal else {}}
        self.stores.volumes.observe(objects.decode(body, objects.PersistentVolume))

    def policy(self, name: str, spec: dict[str, Any], created: float = START) -> None:
        known = self.stores.policies.get(f"uid-{name}")
        written = datetime.fromtimestamp(created, UTC).isoformat()
        generation = known.metadata.generation + 1 if known else 1
        body = make_policy(name, **spec)
        body["metadata"] |= self._meta(name, generation=generation, creationTimestamp=written)
        self.stores.policies.observe(objects.decode(body, objects.CustomObject))

    def namespace(self, name: str, team: str) -> None:
        body = {"metadata": self._meta(name, labels={"team": team})}
        self.stores.namespaces.observe(objects.decode(body, objects.Namespace))

    def time_passes(self, seconds: float) -> None:
        self.now += seconds


STATUSES = (
    {},
    {"incarnation": 1, "targetReplicas": 2, "replicas": 2, "startTime": STARTED},
    {
        "incarnation": 1,
        "targetReplicas": 1,
        "replicas": 1,
        "startTime": STARTED,
        "runningSince": STARTED,
        "failures": 1,
    },
    {
        "incarnation": 1,
        "targetReplicas": 1,
        "replicas": 1,
        "retry": {"reason": "x", "notBefore": "2027-01-15T08:01:00Z", "attempt": 1, "size": 2},
    },
    {"incarnation": 2, "targetReplicas": 0, "replicas": 0},
)
POLICY_SPECS = (
    {},
    {"namespaces": ["default"], "flavors": [make_flavor(guaranteed=2)]},
    {"namespaces": ["default"], "reclaim": {"gracePeriodSeconds": 30}},
    {"namespaceSelector": {"matchLabels": {"team": "a"}}, "perJob": {"maxGPUs": 1}},
    {"parent": "p", "namespaces": ["other"]},
    {"namespaces": "unreadable"},
)
policies, namespaces = st.sampled_from(("p", "q")), st.sampled_from(("default", "other"))
classes = st.sampled_from(("elastic-pytorch-worker", "elastic-pytorch-master", "other"))
jobs, places = st.sampled_from(JOBS), st.sampled_from(("master-0", "worker-0", "worker-1"))
nodes, where = st.sampled_from(("n1", "n2")), st.sampled_from(("", "n1", "n2"))
phases, flags = st.sampled_from(("Pending", "Running", "Succeeded", "Failed")), st.booleans()
happenings = st.one_of(
    st.tuples(st.just("job"), jobs, st.integers(1, 4), st.sampled_from(STATUSES), st.sampled_from(("", "c1"))),
    st.tuples(st.just("goes"), st.just("jobs"), jobs),
    st.tuples(st.just("pod"), jobs, places, st.one_of(where, st.sampled_from(("@n1", "@n2"))), phases, flags, flags),
    st.tuples(st.just("goes"), st.just("pods"), st.builds("{}-{}".format, jobs, places)),
    st.tuples(st.just("node"), nodes, st.integers(0, 4), flags, flags),
    st.tuples(st.just("goes"), st.just("nodes"), nodes),
    st.tuples(st.just("creation"), jobs, places, where),
    st.tuples(st.just("creation_ends"), jobs, places),
    st.tuples(st.just("creation_fails"), jobs, places),
    st.tuples(st.just("trouble"), jobs),
    st.tuples(st.just("trouble_ends"), jobs),
    st.tuples(st.just("is_refused"), jobs, flags),
    st.tuples(st.just("claim"), st.just("c1"), flags),
    st.tuples(st.just("volume"), st.just("v"), flags),
    st.tuples(st.just("priority_class"), classes, st.integers(0, 3), flags),
    st.tuples(st.just("policy"), policies, st.sampled_from(POLICY_SPECS), st.sampled_from((START, START + 1))),
    st.tuples(st.just("goes"), st.just("policies"), policies),
    st.tuples(st.just("namespace"), namespaces, st.sampled_from(("a", "b"))),
    st.tuples(st.just("goes"), st.just("namespaces"), namespaces),
    st.tuples(st.just("time_passes"), st.sampled_from((1.0, 15.0, 61.0, 700.0))),
)


def two_jobs(*, masters: bool) -> World:
    """A world with a node for each of two jobs, and their masters there or not."""
    world = World()
    for name, where in zip(JOBS, ("n1", "n2"), strict=True):
        world.node(where, 4, True, False)
        world.job(name, 3, STATUSES[2], "")
        if masters:
            world.pod(name, "master-0", where, "Running", False, True)
    return world


@given(st.lists(happenings, max_size=30))
@example([("is_refused", "first", True), ("is_refused", "first", False)])
@example([("creation", "first", "worker-0", "n1"), ("creation_fails", "first", "worker-0")])
@example([("creation", "first", "worker-0", "n1"), ("creation_ends", "first", "worker-0"), ("time_passes", 61.0)])
@example([("trouble", "first"), ("trouble_ends", "first")])
@example([("pod", "first", "worker-0", "@n2", "Pending", False, True), ("node", "n2", 1, True, False)])
@example([("policy", "p", {}, START), ("policy", "p", {"namespaces": "unreadable"}, START)])
def test_a_look_that_remembers_sees_what_a_fresh_look_sees(history):
    world = two_jobs(masters=True)
    for what, *how in history:
        getattr(world, what)(*how)
        remembered, fresh = world.look(), world.look_anew()
        assert remembered.obs == fresh.obs
        assert by_name(remembered.inputs.jobs) == by_name(fresh.inputs.jobs)
        assert by_name(remembered.inputs.nodes) == by_name(fresh.inputs.nodes)
        assert remembered.inputs.teams == fresh.inputs.teams
        for obs in remembered.inputs.nodes:
            for held in (obs.used, obs.leaving):
                assert sum(gpus for _, gpus in held.gpus_of(GPU)) == held.requests.get(GPU, 0)
        world.write_statuses()


@given(st.lists(happenings, max_size=30))
def test_a_planner_that_remembers_decides_what_a_fresh_one_decides(history):
    world = two_jobs(masters=False)
    for what, *how in history:
        getattr(world, what)(*how)
        remembered, fresh = world.decide(), world.decide_anew()
        assert dict(remembered.allocation) == dict(fresh.allocation)
        assert not remembered.is_new or remembered.until_epoch == fresh.until_epoch
        for uid, obs in remembered.obs.items():
            plans = [reconcile(obs, found.allocation.get(uid), now=world.now) for found in (remembered, fresh)]
            assert plans[0] == plans[1]
        world.write_statuses()


@given(st.lists(st.tuples(happenings, st.sampled_from((0.0, 1.0, 20.0, inf))), max_size=30))
def test_only_jobs_with_another_observation_or_assignment_or_a_due_plan_need_plans(history):
    """Each pass makes one plan, which is due again after that time; the clock of plans is the world's here. The plans
    for which a pass had no time come first in the next one.
    """
    world, postponed = two_jobs(masters=True), list[str]()
    for (what, *how), lasts in history:
        getattr(world, what)(*how)
        decisions = world.decide()
        all_obs = decisions.obs
        plans = {uid: world.planner.plans.last_plan(uid) for uid in all_obs}
        needed = {
            uid
            for uid, plan in plans.items()
            if plan is None
            or not plan.is_current(all_obs[uid], world.now)
            or plan.assignment != decisions.allocation.find_assignment(uid)
        }
        first = [uid for uid in postponed if uid in needed]
        found = list(world.planner.may_need_plans(decisions, world.now))
        assert (set(found), found[: len(first)]) == (needed, first)
        dues = [plan.due_monotonic for plan in world.planner.plans.all() if plan.due_monotonic > -inf]
        assert world.planner.plans.next_due_monotonic() == min(dues, default=inf)
        for uid in found[:1]:
            obs, assignment = all_obs[uid], decisions.allocation.find_assignment(uid)
            world.planner.plans.note(LastPlan(obs, assignment, world.now + lasts, obs.status))
        postponed = found[1:]
        world.planner.plans.postpone(postponed)


def with_masters(jobs: int, *, size: int) -> World:
    """A world with that many jobs of up to `size` pods, each with its master on one node with room for all."""
    world = World()
    world.node("n1", 1000, True, False)
    for index in range(jobs):
        world.job(f"job-{index}", size, STATUSES[2], "")
        world.pod(f"job-{index}", "master-0", "n1", "Running", False, True)
    return world


def test_a_deleted_job_has_no_last_plan_and_is_not_planned_for_again():
    world = with_masters(2, size=1)
    first, planner = world.decide(), world.planner
    planner.plans.requeue("uid-job-1")  # it has no plan yet, and gets one in any case
    assert list(planner.may_need_plans(first, world.now)) == ["uid-job-0", "uid-job-1"]
    for obs in first.obs.values():
        planner.plans.note(LastPlan(obs, first.allocation.find_assignment(obs.job.uid), inf, obs.status))
    world.goes("jobs", "job-0")
    decisions = world.decide()
    assert [plan.obs.job.uid for plan in planner.plans.all()] == ["uid-job-1"]
    planner.plans.requeue("uid-job-0")
    planner.plans.requeue("uid-job-1")
    assert list(planner.may_need_plans(decisions, world.now)) == ["uid-job-1"]


def test_a_pass_in_which_nothing_changes_looks_at_no_job():
    def calls(jobs: int) -> int:
        world = with_masters(jobs, size=3)
        for obs in world.decide().obs.values():
            world.planner.plans.note(LastPlan(obs, None, inf, obs.status))
        return calls_of(lambda: list(world.planner.may_need_plans(world.decide(), world.now)))

    assert calls(40) == calls(10)


def test_a_pass_in_which_one_job_changes_calls_no_function_for_any_other_job():
    def calls(jobs: int) -> int:
        world = with_masters(jobs, size=1)
        first = world.decide()
        for obs in first.obs.values():
            assignment = first.allocation.find_assignment(obs.job.uid)
            world.planner.plans.note(LastPlan(obs, assignment, inf, obs.status))
        world.job("job-0", 2, STATUSES[2], "")
        return calls_of(lambda: list(world.planner.may_need_plans(world.decide(), world.now)))

    assert calls(80) == calls(20)


@given(st.lists(happenings, max_size=30))
def test_a_pass_is_decided_again_from_its_file_as_it_was_decided(history):
    world = two_jobs(masters=True)
    for what, *how in history:
        getattr(world, what)(*how)
        decided, recorded = (
            world.decide(),
            snapshot_of(world.stored, Unlimited(), world.stored.reader.policies.made),
        )
        read = snapshot_file.decode(json.loads(snapshot_file.encode(recorded)), source="f")
        assert read == recorded
        replayed = {decision.job.uid: decision for decision in decide(read).jobs}
        assert replayed.keys() == decided.obs.keys()
        for uid, obs in decided.obs.items():
            grant = decided.allocation.get(uid)
            assert replayed[uid].grant == grant
            assert replayed[uid].plan == reconcile(obs, grant, now=world.now)


def test_what_nothing_changed_of_is_the_same_object_as_before():
    world = World()
    world.node("n1", 4, True, False)
    world.job("first", 3, {}, "")
    world.job("second", 3, STATUSES[2], "")
    world.pod("second", "master-0", "n1", "Running", False, True)
    before = world.decide()
    world.node("n1", 4, True, False)
    world.pod("notebook", "x", "", "Running", False, False)
    world.namespace("other", "b")
    world.policy("p", {"namespaces": ["elsewhere"]})
    before = world.decide()
    world.namespace("other", "c")
    world.policy("p", {"namespaces": ["elsewhere"]})
    world.time_passes(1.0)
    after = world.decide()
    assert after.inputs is before.inputs
    assert after.obs["uid-second"] is before.obs["uid-second"]
    world.goes("pods", "second-master-0")
    assert world.decide().inputs is not before.inputs


def test_a_job_is_not_observed_again_while_the_write_of_its_status_is_queued():
    world = World()
    world.job("first", 3, {}, "")
    seen = []
    for seconds in (0.0, 0.4, 1.0, 40.0):
        world.time_passes(seconds)
        seen.append(world.look().obs["uid-first"])
    assert seen[0].status is not seen[0].job.status, "nothing writes the status here"
    assert all(one is seen[0] for one in seen)


def test_all_jobs_are_read_again_when_the_api_server_drops_other_fields_of_statuses():
    """The definition is upgraded: a job beside the written one wrote its status for the old one until its next news."""
    world = World()
    world.job("a", 4, {}, "")
    world.job("b", 4, {}, "")
    pruned_fields = world.stored.reader.pruned_fields
    pruned_fields.compare({"failedSize": {"size": 2}}, {})
    assert {obs.job.context.pruned_status_fields for obs in world.look().obs.values()} == {
        frozenset({"failedSize", "failedSize.size"})
    }
    pruned_fields.compare({"failedSize": {"size": 2}}, {"failedSize": {"size": 2}})
    assert {obs.job.context.pruned_status_fields for obs in world.look().obs.values()} == {frozenset()}


def test_a_job_whose_object_is_another_one_but_says_the_same_is_not_observed_again():
    world = World()
    world.node("n1", 4, True, False)
    world.job("first", 3, STATUSES[2], "")
    world.pod("first", "master-0", "n1", "Running", False, True)
    world.decide()
    before, body = world.decide(), world.stores.jobs.get("uid-first")
    metadata = msgspec.structs.replace(body.metadata, resource_version=world._next())
    world.stores.jobs.observe(msgspec.structs.replace(body, metadata=metadata))
    after = world.decide()
    assert after.obs["uid-first"] is before.obs["uid-first"]
    assert after.inputs is before.inputs


def test_a_job_whose_pods_are_refused_and_that_has_ended_changes_nothing_from_pass_to_pass():
    world = World()
    world.node("n1", 4, True, False)
    ended = {"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": STARTED}
    world.job("first", 3, {**STATUSES[1], "completionTime": STARTED, "conditions": [ended]}, "", cleanPodPolicy="None")
    world.pod("first", "worker-0", "n1", "Running", False, True)
    world.is_refused("first", True)
    (demand,) = world.decide().inputs.jobs
    assert demand.bar.why is PreemptionBar.GETS_NO_PODS
    world.time_passes(1.0)
    before, since = world.decide(), world.stored.reader.external_changes.since
    world.time_passes(1.0)
    assert world.decide().inputs is before.inputs
    assert world.stored.reader.external_changes.since == since


def test_an_edit_of_a_policy_that_changes_no_team_is_no_change_from_outside():
    """Otherwise tools that rewrite a policy in turn would keep the operator from detecting that a size flaps (143)."""
    world = World()
    spec = {"namespaces": ["team"], "flavors": [{"name": "default", "guaranteed": 1}]}
    world.policy("first", spec)
    world.decide()
    world.time_passes(1.0)
    since = world.stored.reader.external_changes.since
    world.policy("first", spec)
    decided = world.decide()
    assert world.stored.reader.external_changes.since == since
    (policy,) = world.stores.policies
    assert decided.policies.generations == {policy.metadata.uid: policy.metadata.generation}
    world.policy("first", {**spec, "flavors": [{"name": "default", "guaranteed": 2}]})
    world.decide()
    assert world.stored.reader.external_changes.since > since


def test_a_job_that_raised_preempts_again_as_soon_as_its_time_is_over(monkeypatch):
    time = SimpleNamespace(passed=0.0)
    monkeypatch.setattr(quarantine, "time", SimpleNamespace(monotonic=lambda: time.passed))
    world, no_bar = two_jobs(masters=True), Bar(PreemptionBar.NOT_PLACED, -inf)
    world.look()
    world.stored.quarantine("uid-first", ValueError("no"), stage=FaultStage.GRANT)
    time.passed += quarantine.FIRST_FAULT_SECONDS
    assert [demand.bar for demand in world.look().inputs.jobs] == [Bar(PreemptionBar.INTERNAL_ERROR), no_bar]
    time.passed += quarantine.NO_PREEMPTION_SECONDS
    assert [demand.bar for demand in world.look().inputs.jobs] == [no_bar, no_bar]


def test_pods_of_a_quarantined_job_without_demand_count_as_used(monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise LookupError("no demand of these pods")

    caplog.set_level("DEBUG")
    world = two_jobs(masters=True)
    world.look()
    world.stored.quarantine("uid-first", ValueError("no"))
    monkeypatch.setattr(observed_jobs, "demand_in_quarantine", fail)
    caplog.clear()
    assert [demand.uid for demand in world.look().inputs.jobs] == ["uid-second"]
    assert "job=default/first" in caplog.text
    assert "LookupError: no demand of these pods" in caplog.text


def test_unchanged_job_whose_allocation_raises_is_quarantined_in_that_pass(
    monkeypatch,
):
    world = two_jobs(masters=True)
    world.decide()
    allocate = Allocator.allocate

    def raises_at_the_first(self, inputs):
        assert "uid-first" not in [job.uid for job in inputs.jobs if job.members]
        return allocate(self, inputs)

    monkeypatch.setattr(Allocator, "allocate", raises_at_the_first)
    world.planner.forget_allocation()
    assert [obs.job.name for obs in world.decide().obs.values() if obs.job.quarantine] == ["first"]


def by_name(things):
    return {thing.name: thing for thing in things}


def test_not_ready_age_ignores_the_clock_that_wrote_it():
    world = World()
    world.node("n1", 4, True, False)
    world.job("second", 3, STATUSES[2], "")
    world.pod("second", "master-0", "n1", "Running", False, True)
    world.time_passes(3600.0)
    world.look()
    world.node("n1", 4, False, False, since=START)
    assert world.look().obs["uid-second"].nodes_in(NodeState.LOST) == []
    world.time_passes(39.0)
    assert world.look().obs["uid-second"].nodes_in(NodeState.LOST) == []
    world.time_passes(1.0)
    assert world.look().obs["uid-second"].nodes_in(NodeState.LOST) == ["n1"]


def test_a_node_that_was_away_before_the_first_look_is_away_since_then():
    world = World()
    world.node("n1", 4, False, False)
    world.job("second", 3, STATUSES[2], "")
    world.pod("second", "master-0", "n1", "Running", False, True)
    world.time_passes(3600.0)
    assert world.look().obs["uid-second"].nodes_in(NodeState.LOST) == ["n1"]


def cut_off(nodes: int) -> World:
    """A job on the first node, and so many nodes that are not Ready any more."""
    world = World()
    for index in range(nodes):
        world.node(f"n{index}", 4, True, False)
    world.job("second", 3, STATUSES[2], "")
    world.pod("second", "master-0", "n0", "Running", False, True)
    world.time_passes(3600.0)
    world.look()
    for index in range(nodes):
        world.node(f"n{index}", 4, False, False)
    world.look()
    return world


def lost_and_kept(world: World) -> tuple[set[str], set[str]]:
    obs = world.look().obs["uid-second"]
    return set(obs.nodes_in(NodeState.LOST)), set(obs.nodes_in(NodeState.KEPT))


@pytest.mark.parametrize("another_leads", [False, True])
def test_node_outage_ends_five_minutes_after_most_nodes_are_ready(another_leads):
    world = cut_off(6)
    world.time_passes(40.0)
    assert lost_and_kept(world) == (set(), {"n0"})
    world.time_passes(3600.0)
    if another_leads:
        world.begin_anew()
    assert lost_and_kept(world) == (set(), {"n0"})
    for index in range(1, 6):
        world.node(f"n{index}", 4, True, False)
    assert lost_and_kept(world) == (set(), {"n0"})
    world.time_passes(299.0)
    if another_leads:
        world.begin_anew()
    assert lost_and_kept(world) == (set(), {"n0"})
    world.time_passes(1.0)
    assert lost_and_kept(world) == ({"n0"}, set())


def test_a_node_that_is_tainted_out_of_service_is_lost_all_the_same():
    world = cut_off(6)
    world.time_passes(40.0)
    world.node("n0", 4, False, False, since=world.now - 40, taints=[{"key": OUT_OF_SERVICE, "effect": "NoExecute"}])
    assert lost_and_kept(world) == ({"n0"}, set())


def test_nodes_that_are_made_are_none_that_went_or_came_back():
    world = cut_off(1)
    for index in range(1, 6):
        world.node(f"n{index}", 4, False, False, made=world.now)
    world.time_passes(20.0)
    world.look()
    for index in range(1, 6):
        world.node(f"n{index}", 4, True, False, made=world.now - 20)
    world.time_passes(20.0)
    assert lost_and_kept(world) == ({"n0"}, set())
    world.begin_anew()
    assert lost_and_kept(world) == ({"n0"}, set())


def world_with_a_job(**settings: Any) -> World:
    world = World(Settings.model_validate(settings))
    world.node("n1", 4, True, False)
    world.job("first", 3, {}, "")
    return world


def test_policies_reach_the_snapshot_as_teams_and_settings_as_they_are():
    world = world_with_a_job(defaultPolicy={"priority": -1}, starvationSeconds=60)
    world.policy("p", {"namespaces": ["default"], "flavors": [make_flavor(guaranteed=2)]})
    inputs = world.look().inputs
    assert [(team.name, team.quotas.get("default", Quota()).guaranteed) for team in inputs.teams.listed] == [
        ("p", 2),
        (DEFAULT_POLICY, 0),
    ]
    assert inputs.teams.covered == {"default": "p"}
    assert (inputs.teams.default.priority, inputs.settings.starvation_seconds) == (-1, 60)
    assert inputs.settings.flavors == (Flavor(),)


def test_the_selector_of_a_policy_follows_the_labels_of_namespaces():
    world = world_with_a_job()
    world.policy("p", {"namespaceSelector": {"matchLabels": {"team": "a"}}})
    world.namespace("default", "b")
    assert world.look().inputs.teams.covered == {}
    world.namespace("default", "a")
    assert world.look().inputs.teams.covered == {"default": "p"}


def test_a_policys_ceiling_shortens_the_grace_of_its_jobs_pods():
    world = world_with_a_job()
    assert grace_of_first(world) == 120
    world.policy("p", {"namespaces": ["default"], "reclaim": {"gracePeriodSeconds": 30}})
    assert grace_of_first(world) == 30
    world.policy("p", {"namespaces": ["default"], "reclaim": {"gracePeriodSeconds": 3600}})
    assert grace_of_first(world) == 120


def grace_of_first(world: World) -> int:
    return world.look().obs["uid-first"].job.spec.elasticity.grace_period_seconds


def test_a_jobs_pods_are_kept_to_the_nodes_of_its_flavor():
    flavors = [{"name": "a100", "resources": [GPU], "nodeSelector": {"gpu": "a100"}}]
    (demand,) = world_with_a_job(flavors=flavors).look().inputs.jobs
    assert (demand.shape.flavor, demand.shape.worker.node_selector) == ("a100", {"gpu": "a100"})


def test_known_classes_set_the_lowest_priority_of_pods():
    world = world_with_a_job()
    assert world.look().inputs.jobs[0].shape.lowest_priority == 0
    for name, value in (("elastic-pytorch-worker", 5), ("elastic-pytorch-master", 6)):
        world.priority_class(name, value, default=False)
    assert world.look().inputs.jobs[0].shape.lowest_priority == 5


def test_a_pod_that_does_not_go_is_used_in_the_next_look_after_its_time():
    world = world_with_a_job()
    world.pod("first", "master-0", "n1", "Running", True, True)
    assert world.look().inputs.nodes[0].leaving.requests[GPU] == 1
    world.time_passes(30 + OVERDUE_SECONDS)
    (node,) = world.look().inputs.nodes
    assert (node.leaving, node.used.requests[GPU], node.used.gpus_by_namespace) == (NodeUse(), 1, {"default": {GPU: 1}})


def node_loses_a_gpu(world: World) -> None:
    world.node("n2", 2, True, False)


def plain_pod_is_bound(world: World) -> None:
    world.pod("plain", "worker-0", "n2", "Running", False, False)


def pod_of_another_job_is_bound(world: World) -> None:
    world.pod("second", "worker-1", "n2", "Running", False, True)


def leaving_pod_is_overdue(world: World) -> None:
    world.time_passes(30)


@pytest.mark.parametrize(
    "fill",
    [node_loses_a_gpu, plain_pod_is_bound, pod_of_another_job_is_bound, leaving_pod_is_overdue],
    ids=lambda fill: fill.__name__,
)
def test_a_refused_pod_is_misplaced_as_soon_as_its_node_is_full(fill):
    """Also if kube-scheduler has refused the pod before, for another reason (142)."""
    world = two_jobs(masters=True)
    world.node("n2", 2 if fill is leaving_pod_is_overdue else 3, True, False)
    world.pod("second", "worker-0", "n2", "Running", fill is leaving_pod_is_overdue, True)
    world.time_passes(OVERDUE_SECONDS)
    world.pod("first", "worker-0", "@n2", "Pending", False, True)
    for _ in range(2):
        assert world.look().obs["uid-first"].job.context.misplaced == {}
        world.time_passes(0.01)
    fill(world)
    assert world.look().obs["uid-first"].job.context.misplaced == {
        "uid-first-worker-0": f"other pods use the {GPU} of node n2"
    }


def test_the_claim_and_the_volume_of_a_job_are_looked_at_anew_when_they_change():
    world = world_with_a_job()
    world.job("first", 3, STATUSES[2], "c1")
    world.pod("first", "master-0", "n1", "Running", False, True)
    assert because(world) == "PersistentVolumeClaim c1 is not bound"
    world.claim("c1", True)
    assert because(world) == "the volume of PersistentVolumeClaim c1 is reachable from some nodes only"
    world.volume("v", False)
    assert because(world) == ""


def test_only_the_jobs_are_looked_at_whose_claim_or_volume_changes_or_whose_pods_are_refused(monkeypatch):
    world = world_with_a_job()
    for name, claim in (("first", "c1"), ("second", "c2"), ("third", "")):
        world.job(name, 3, STATUSES[2], claim)
        world.pod(name, "master-0", "n1", "Running", False, True)
    world.look()
    reader, looks = world.stored.reader, set()
    read, shape = reader.jobs.job, reader.shapes.shape_of
    monkeypatch.setattr(reader.jobs, "job", lambda body, *how: looks.add(body.metadata.name) or read(body, *how))
    monkeypatch.setattr(reader.shapes, "shape_of", lambda job: looks.add(job.name) or shape(job))

    def looked_at():
        looks.clear()
        world.look()
        return sorted(looks)

    for _ in range(2):
        world.claim("of-somebody-else", True)
        world.volume("theirs", False)
        assert looked_at() == []
    world.claim("c1", True)
    assert looked_at() == ["first"]
    world.claim("c1", True)
    assert looked_at() == []
    world.volume("v", False)
    assert looked_at() == ["first"]
    world.claim("c2", True)
    assert looked_at() == ["second"]
    world.goes("volumes", "v")
    assert looked_at() == ["first", "second"]
    for refused in (True, False):
        world.is_refused("third", refused)
        assert looked_at() == ["third"]


@pytest.mark.parametrize(
    ("pods", "pending"),
    [((), False), (group(), False), ((is_pending(make_master()),), False), (make_group(), True)],
    ids=["no pods", "Torchrun mode", "a master that does not run", "a master that runs"],
)
def test_a_report_is_pending_only_of_a_master_that_runs(pods, pending):
    world = world_with_a_job()
    world.look()
    (body,) = world.stores.jobs.values()
    job = world.stored.reader.jobs.job(body, pods, JobFeedback(report_pending=True))
    assert job.feedback == JobFeedback(report_pending=pending)


def test_a_job_whose_size_is_held_is_observed_after_a_change_from_outside_and_in_no_other_pass(monkeypatch):
    world = world_with_a_job()
    held = STATUSES[2] | {"heldUntil": datetime.fromtimestamp(world.now + 500, UTC).isoformat()}
    for name, status in (("first", held), ("second", STATUSES[2])):
        world.job(name, 3, status, "")
        world.pod(name, "master-0", "n1", "Running", False, True)
    world.look()
    reader, looks = world.stored.reader, []
    read = reader.jobs.job
    monkeypatch.setattr(reader.jobs, "job", lambda body, *how: looks.append(body.metadata.name) or read(body, *how))

    def looked_at():
        looks.clear()
        world.now += 0.01  # a status that is not written is looked at again in each second
        world.look()
        return sorted({*looks})

    looked_at()
    assert looked_at() == []
    world.job("third", 3, {}, "")
    assert looked_at() == ["first", "third"]
    world.is_refused("third", True)
    assert looked_at() == ["first", "third"], "the answer is a change from outside"
    assert looked_at() == []


def test_the_stores_keep_nothing_of_a_leader_that_leads_no_more():
    world = two_jobs(masters=True)
    former = weakref.ref(world.stored)
    world.stored.close()
    world.begin_anew()
    gc.collect()
    assert former() is None


def because(world: World) -> str:
    return world.look().inputs.jobs[0].shape.worker.unpinned_because


def test_pods_of_a_job_that_may_have_none_any_more_are_counted_on_their_node_in_the_next_look():
    world = world_with_a_job()
    world.job("first", 3, STATUSES[2], "")
    world.pod("first", "master-0", "n1", "Running", False, True)
    assert [len(job.members) for job in world.look().inputs.jobs] == [1]
    world.job("first", 3, STATUSES[2], "", suspend=True)
    (node,) = world.look().inputs.nodes
    assert (node.used.requests.get(GPU, 0), node.leaving.requests.get(GPU, 0)) == (0, 1)


def test_a_job_that_cannot_be_read_any_more_has_its_pods_as_members_and_asks_for_none():
    world = world_with_a_job()
    world.job("first", 3, STATUSES[2], "")
    world.pod("first", "master-0", "n1", "Running", False, True)
    world.look()
    world.job("first", 3, STATUSES[2], "", minReplicas=9)
    inputs = world.look().inputs
    assert [(len(job.members), job.sizes, job.bar.why) for job in inputs.jobs] == [
        (1, (1,), PreemptionBar.GETS_NO_PODS)
    ]
    assert not inputs.nodes[0].used.requests.get(GPU, 0)


def test_a_class_that_jobs_may_not_name_neither_orders_a_job_nor_stops_it():
    world = World(Settings.model_validate({"jobPriorityClassNames": ["high"]}))
    world.node("n1", 4, True, False)
    for name, value in (("high", 10), ("higher", 1000)):
        world.priority_class(name, value, default=False)
    world.job("first", 3, {}, "", priorityClassName="high")
    world.job("second", 3, {}, "", priorityClassName="higher")
    sight = world.look()
    assert [(demand.name, demand.priority) for demand in sight.inputs.jobs] == [("first", 10), ("second", 0)]
    first, second = (obs.job.context.warnings for obs in sight.obs.values())
    assert (first, second[ConditionType.PRIORITY_IGNORED].code) == ({}, "PriorityClassNotAllowed")
