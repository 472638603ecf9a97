"""The real operator on the in-memory API server, without watches, kopf and the lease."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from random import Random
from typing import Any

from elastic_api.pod_names import parse_pod_name
from elastic_operator.cluster import objects
from elastic_operator.cluster.events import EventRecorder
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.stores import Stores
from elastic_operator.loop.compose import make_controller
from elastic_operator.loop.writes.status_times import REPORT_SECONDS
from elastic_operator.memory import DirtyJobs, DirtySet
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.job_times import JobTimes
from elastic_operator.metrics.stats import JobStats
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.planner import Planner
from elastic_operator.read.ledger import Ledger
from elastic_operator.settings import DefaultPolicy, GpuFlavor, Settings
from tests.simulate import server as kinds
from tests.simulate.api import Api
from tests.simulate.facts import FLAVORS, GPU, POOL
from tests.simulate.faults import Faults
from tests.simulate.server import Body
from tests.simulate.wire import Wire

KINDS: dict[str, tuple[str, type[Any]]] = {
    kinds.JOBS: ("jobs", objects.CustomObject),
    kinds.PODS: ("pods", objects.Pod),
    kinds.NODES: ("nodes", objects.Node),
    kinds.PRIORITY_CLASSES: ("priority_classes", objects.PriorityClass),
    kinds.SERVICES: ("services", objects.Service),
    kinds.SLICES: ("slices", objects.EndpointSlice),
    kinds.POLICIES: ("policies", objects.CustomObject),
    kinds.NAMESPACES: ("namespaces", objects.Namespace),
}
SETTINGS = Settings(
    flavors=tuple(GpuFlavor(name=name, resources=(GPU,), node_selector={POOL: name}) for name in FLAVORS)
)
BUILD = SETTINGS.build("elastic-system")
MOST_TURNS = 5_000
"""Turns of the event loop after which the writes of a pass must be over."""


class Operator:
    """One process that leads. It hears of each change at once, and of existing objects in an order of `rng`."""

    def __init__(self, api: Api, metrics: Metrics, *, rng: Random | None = None) -> None:
        self.server, now = api.server, api.server.clock.monotonic
        self.faults = Faults(Random(self.server.revision), now)
        self.wire = Wire(api, self.faults)
        self.stores = Stores(**{field.name: Store(now=now) for field in fields(Stores)})
        dirty_jobs: DirtyJobs = DirtySet()
        self.ledger = Ledger(job_of=self.stores.jobs.get, parse=parse_pod_name, dirty_jobs=dirty_jobs, now=now)
        self.stores.jobs.subscribe(lambda old, new: self.ledger.job_changed((new or old).metadata.uid))
        self.stores.pods.subscribe(self.ledger.pod_changed)
        self.events = EventRecorder(self.wire, instance="simulated")  # type: ignore[arg-type]
        self.times = JobTimes()
        self.fresh = True
        """Whether its stores can be trusted to create pods."""
        self.controller = make_controller(
            self.wire,  # type: ignore[arg-type]
            self.stores,
            self.events,
            planner=Planner(metrics.allocate.time),
            ledger=self.ledger,
            dirty_jobs=dirty_jobs,
            settings=SETTINGS.model_copy(
                update={"default_policy": DefaultPolicy.model_validate(api.server.default_policy)}
            ),
            build=BUILD,
            metrics=metrics,
            is_fresh=lambda: self.fresh,
            times=self.times,
        )
        self._hear_all(rng)

    def _hear_all(self, rng: Random | None) -> None:
        known = [(plural, body) for plural in KINDS for body in self.server.all(plural)]
        if rng is not None:
            rng.shuffle(known)
        for plural, body in known:
            self._hear(plural, None, body)
        self.server.listeners.append(self._hear)

    def _hear(self, plural: str, old: Body | None, new: Body | None) -> None:
        if plural not in KINDS:
            return
        name, type_ = KINDS[plural]
        store = getattr(self.stores, name)
        if new is not None:
            store.observe(objects.decode(new, type_))
        elif old is not None:
            store.observe_deleted(old["metadata"]["uid"], old["metadata"]["resourceVersion"])

    @property
    def inputs(self) -> AllocationInputs | None:
        """What the last pass allocated from; None before the first."""
        return decided.inputs if (decided := self.controller.planner.decided) else None

    @property
    def allocation(self) -> Allocation | None:
        """What the last pass allocated."""
        return decided.allocation if (decided := self.controller.planner.decided) else None

    @property
    def reports_soon(self) -> bool:
        """Whether it is about to write a status that only reports (151)."""
        times = self.controller.reconciler.dispatcher.status_times._known.values()
        waiting = (one.behind_since for one in times if one.behind_since is not None)
        return any(self.server.clock.passed < since + REPORT_SECONDS for since in waiting)

    def all_stats(self) -> tuple[JobStats, ...]:
        """What metrics show of the jobs."""
        return self.times.all_stats(self.controller.planner.plans.all(), self.controller.view.policies.teams.covered)

    async def run_pass(self) -> float:
        """One pass, and what it started, to its end; returns the seconds until the next is due by itself."""
        wait = self.controller.run_pass().due_monotonic - self.server.clock.monotonic()
        for _ in range(MOST_TURNS):
            loop, dry_runs = self.controller, self.controller.dry_runs._running
            if not (loop.reconciler.dispatcher._busy or loop.nominator._writing or dry_runs or loop.logs._reading):
                break
            await asyncio.sleep(0)
        else:
            raise AssertionError("the writes of a pass do not come to an end")
        await self._tell_events()
        return wait

    async def _tell_events(self) -> None:
        while not self.events._queue.empty():
            await self.events._write(*self.events._queue.get_nowait())

    def doubt(self) -> None:
        """Decide everything again at the next pass."""
        self.controller.forget()

    def leave(self) -> None:
        """Hear of nothing more."""
        self.server.listeners.remove(self._hear)
