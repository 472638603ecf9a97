"""The operator's stores, ledger and view, filled with a scenario's cluster, and possible changes of that cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from itertools import count
from typing import Any, TypeVar

from benchmarks.allocate import objects
from benchmarks.allocate.scenario import MOST_PODS, Scenario
from elastic_api.pod_names import parse_pod_name
from elastic_operator.cluster import objects as kinds
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.meta import Struct
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.stores import Stores
from elastic_operator.loop.reclaim.dry_run_answers import DryRunAnswers
from elastic_operator.loop.store_view import StoreView
from elastic_operator.loop.writes.failed_writes import FailedWrites
from elastic_operator.memory import DirtyJobs, DirtySet
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.lookahead import LookaheadAllocator
from elastic_operator.plan.planner import Planner
from elastic_operator.pods.failure_logs import FailureLogs
from elastic_operator.quarantine import Quarantine
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.reader import Reader
from elastic_operator.settings import Settings

NOW = datetime.fromisoformat(objects.STARTED).timestamp() + 86_400.0
MOST_ROUNDS = 20
"""The most rounds; a change is answered in one or two."""
T = TypeVar("T", bound=Struct)


class World:
    """One cluster as the operator knows it."""

    def __init__(self, plan: Scenario) -> None:
        self.plan, self.now = plan, NOW
        self.stores = empty_stores()
        self._revisions = count(100)
        dirty_jobs: DirtyJobs = DirtySet()
        ledger = Ledger(job_of=self.stores.jobs.get, parse=parse_pod_name, dirty_jobs=dirty_jobs)
        self.stores.pods.subscribe(ledger.pod_changed)
        self._fill()
        clock = ServerClock(monotonic=lambda: self.now)
        clock.offset = 0.0
        reader = Reader(self.stores, ledger, Settings(), clock=clock, quarantine=Quarantine())
        logs = FailureLogs(None, lambda _: "pytorch", dirty_jobs, lambda: None)  # type: ignore[arg-type] # no pod here fails
        answers = DryRunAnswers(dirty_jobs, reader.external_changes.note_change)
        self.world = StoreView(reader, dirty_jobs, logs.with_logs, FailedWrites(dirty_jobs).feedback, answers)
        self.planner = Planner()
        self._allocator = LookaheadAllocator()

    def forget(self) -> None:
        """Forget everything, as after a change of leader, so that the next pass decides all of it."""
        self.world.forget()
        self.planner.forget()
        self._allocator = LookaheadAllocator()

    def inputs(self) -> AllocationInputs:
        """The present inputs of an allocation."""
        return self.planner.observe(self.world.refresh(self.now))[1]

    def decide(self) -> Allocation:
        """One pass: look, inputs, allocation, and each job's grant."""
        self.now += 1.0
        allocation = self._allocator.allocate(self.inputs())
        for job in allocation:
            allocation.assignment(job)
        return allocation

    def carry_out(self, allocation: Allocation) -> bool:
        """Delete the pods to delete, and create and run the planned ones; returns whether there were any."""
        moved = False
        for uid in allocation:
            share, meta = allocation.assignment(uid), self._job(uid).metadata
            for pod in share.release:
                self.stores.pods.observe_deleted(pod)
            for slot in share.create:
                index = 0 if slot.role == "master" else slot.index + 1
                host = int((slot.node or "").removeprefix("node-"))
                body = objects.own_pod(meta.namespace, meta.name, index=index, host=host)
                body["metadata"]["uid"] += f"-{next(self._revisions)}"
                self.stores.pods.observe(self._anew(body, kinds.Pod))
            moved |= bool(share.release or share.create)
        return moved

    def settle(self) -> None:
        """Decide and carry out until nothing is left to do."""
        for _ in range(MOST_ROUNDS):
            if not self.carry_out(self.decide()):
                return
        raise AssertionError(f"the decisions do not converge in {MOST_ROUNDS} rounds")

    def changes(self) -> Iterator[str]:
        """Make changes without end, one at each step: a job's pod is lost, a foreign pod ends, a job is edited."""
        jobs = self.plan.job_names()
        for number in count():
            namespace, name = jobs[number * 7 % len(jobs)]
            match number % 3:
                case 0:
                    self._pod_goes(namespace, f"{name}-worker-0")
                    yield "pod deleted"
                case 1:
                    self._foreign_pod_ends(number)
                    yield "foreign pod ended"
                case _:
                    self._job_is_edited(namespace, name)
                    yield "job edited"

    def _fill(self) -> None:
        plan, sizes = self.plan, Counter(job for _, job in self.plan.gpu_holders())
        for number in range(plan.nodes):
            self.stores.nodes.observe(read(objects.node(number), kinds.Node))
        for number, (namespace, name) in enumerate(plan.job_names()):
            body = objects.job(namespace, name, replicas=sizes[number])
            self.stores.jobs.observe(read(body, kinds.CustomObject))
        for number in range(plan.teams):
            policy = objects.policy(number, guaranteed=plan.guarantee)
            self.stores.policies.observe(read(policy, kinds.CustomObject))
            self.stores.namespaces.observe(read(objects.namespace(f"team-{number}"), kinds.Namespace))
        for body in objects.pods(plan):
            self.stores.pods.observe(read(body, kinds.Pod))

    def _job(self, uid: str) -> kinds.CustomObject:
        job = self.stores.jobs.get(uid)
        assert job is not None, "jobs are never deleted here"
        return job

    def _pod_goes(self, namespace: str, name: str) -> None:
        pod = self.stores.pods.named(name, namespace)
        assert pod is not None, "each job has a worker"
        self.stores.pods.observe_deleted(pod.metadata.uid)

    def _foreign_pod_ends(self, number: int) -> None:
        gpu = number * 8 % self.plan.gpus + 7
        body = objects.foreign_pod(f"notebook-{gpu}", gpu // 8, gpus=1)
        body["status"]["phase"] = "Succeeded"
        self.stores.pods.observe(self._anew(body, kinds.Pod))

    def _job_is_edited(self, namespace: str, name: str) -> None:
        known = self._job(objects.uid(name, namespace))
        body = objects.job(
            namespace,
            name,
            replicas=known.status.unpack()["targetReplicas"],
            generation=known.metadata.generation + 1,
            most=MOST_PODS + known.metadata.generation,
        )
        self.stores.jobs.observe(self._anew(body, kinds.CustomObject))

    def _anew(self, body: dict[str, Any], kind: type[T]) -> T:
        body["metadata"]["resourceVersion"] = str(next(self._revisions))
        return read(body, kind)


def read(body: dict[str, Any], kind: type[T]) -> T:
    """The object as the stores keep it."""
    return kinds.decode(body, kind)


def empty_stores() -> Stores:
    """Stores with nothing in them."""
    return Stores(**{each.name: Store() for each in fields(Stores)})
