"""Runs the real controller on a load and takes CPU times: of its passes, and of the turns of the event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.allocate import objects
from benchmarks.allocate.world import empty_stores, read
from benchmarks.passes.loads import Load
from benchmarks.passes.server import Server
from elastic_api.job import API_VERSION, PLURAL
from elastic_api.pod_names import parse_pod_name
from elastic_operator.__main__ import GC_THRESHOLDS
from elastic_operator.cluster import objects as kinds
from elastic_operator.cluster.connection import Connection, Credentials
from elastic_operator.cluster.events import EventRecorder
from elastic_operator.cluster.session import Session
from elastic_operator.loop.compose import make_controller
from elastic_operator.loop.controller import Controller, WakeUp
from elastic_operator.memory import DirtyJobs, DirtySet
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.job_times import JobTimes
from elastic_operator.plan.planner import Planner
from elastic_operator.read.ledger import Ledger
from elastic_operator.settings import Settings
from elastic_operator.upkeep.policy_status import PolicyStatuses

QUIET_SECONDS = 1.5
"""All work has ended after this time without a write, and after some passes."""
MOST_SECONDS = 90.0
"""The limit of a wait for rest. Work that is split into turns takes longer."""


@dataclass(slots=True)
class Times:
    """CPU seconds of each pass, and of the longest turn of the event loop."""

    passes: list[float] = field(default_factory=list)
    gap: float = 0.0


class Operator:
    """The controller with everything that it needs, over a server that answers at once."""

    def __init__(self, load: Load) -> None:
        self.server, self.stores, self.times = Server(), empty_stores(), Times()
        connection = Connection("http://memory", Credentials(lambda: None))
        self.session = session = Session(connection, http=self.server)  # type: ignore[arg-type]
        metrics, settings, clock = Metrics(), Settings(), session.clock
        dirty_jobs: DirtyJobs = DirtySet()
        ledger = Ledger(job_of=self.stores.jobs.get, parse=parse_pod_name, dirty_jobs=dirty_jobs, on_change=self._wake)
        self.stores.pods.subscribe(ledger.pod_changed)
        self.controller: Controller | None = None
        self._fill(load)
        self.stores.jobs.subscribe(lambda *_: self._wake())
        self.events = EventRecorder(session, instance="bench")
        planner = Planner(metrics.allocate.time)
        self._statuses = PolicyStatuses(session, self.stores.policies, planner, now=clock.time)
        self.controller = make_controller(
            session,
            self.stores,
            self.events,
            planner=planner,
            ledger=ledger,
            dirty_jobs=dirty_jobs,
            settings=settings,
            build=settings.build("elastic-system"),
            metrics=metrics,
            is_fresh=lambda: True,
            times=JobTimes(),
            on_decisions=lambda _: self._statuses.pass_ended(),
        )
        self._time_passes(self.controller)

    async def settle(self) -> None:
        """Wait until nothing was written for a while."""
        begun = since = time.monotonic()
        seen = self._seen
        while (now := time.monotonic()) - begun < MOST_SECONDS and (
            not self.times.passes or self._is_behind or now - since < QUIET_SECONDS + 4 * self._longest
        ):
            await asyncio.sleep(0.05)
            if self._seen != seen:
                seen, since = self._seen, now

    @property
    def _seen(self) -> tuple[int, bool]:
        return self.server.writes, bool(self.times.passes)

    @property
    def _is_behind(self) -> bool:
        now = time.monotonic()
        return self.controller is not None and self.controller.reconciler.catch_up_at_monotonic(now) <= now

    @property
    def _longest(self) -> float:
        return max(self.times.passes, default=0.0)

    @contextmanager
    def taken(self) -> Iterator[Times]:
        """The times of all work within the context."""
        self.times = times = Times()
        watching = asyncio.get_running_loop().create_task(self._watch(times))
        yield times
        watching.cancel()

    async def _watch(self, times: Times) -> None:
        """Measure the loop: this task has one step in each turn, so one turn lies between two steps."""
        before = time.process_time()
        while True:
            await asyncio.sleep(0)
            now = time.process_time()
            times.gap, before = max(times.gap, now - before), now

    def _time_passes(self, controller: Controller) -> None:
        run_pass = controller.run_pass

        def timed() -> WakeUp:
            begun = time.process_time()
            try:
                return run_pass()
            finally:
                self.times.passes.append(time.process_time() - begun)

        controller.run_pass = timed  # type: ignore[method-assign]

    def _wake(self) -> None:
        if self.controller is not None:
            self.controller.wake()

    def _fill(self, load: Load) -> None:
        for number in range(load.nodes):
            self.stores.nodes.observe(read(objects.node(number), kinds.Node))
        for namespace in ("team-0", "team-1", "others"):
            self.stores.namespaces.observe(read(objects.namespace(namespace), kinds.Namespace))
        for body in load.policies:
            self.stores.policies.observe(read(body, kinds.CustomObject))
        for body in load.jobs:
            meta = body["metadata"]
            self.server.put(f"/apis/{API_VERSION}/namespaces/{meta['namespace']}/{PLURAL}/{meta['name']}", body)
            self.stores.jobs.observe(read(body, kinds.CustomObject))
        for body in load.pods:
            meta = body["metadata"]
            self.server.put(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", body)
            self.stores.pods.observe(read(body, kinds.Pod))


def measure(load: Load) -> dict[str, Times]:
    """The times from a start to rest, of the pass over everything each two minutes, and after one change."""
    gc.set_threshold(*GC_THRESHOLDS)
    return asyncio.run(_measure(load))


async def _measure(load: Load) -> dict[str, Times]:
    operator = Operator(load)
    assert operator.controller is not None
    gc.collect()
    gc.freeze()
    found: dict[str, Times] = {}
    running: asyncio.Task[None] | None = None
    controller = operator.controller

    def resync() -> None:
        controller._resync_at_monotonic = 0.0
        controller.wake()

    def one_change() -> None:
        pod = next(iter(operator.stores.pods))
        operator.stores.pods.observe_deleted(pod.metadata.uid)
        controller.wake()

    steps: dict[str, Callable[[], None]] = {
        "take-over": lambda: None,
        "no change": controller.wake,
        "resync": resync,
        "one change": one_change,
    }
    for what, begin in steps.items():
        with operator.taken() as times:
            begin()
            if running is None:
                running = asyncio.get_running_loop().create_task(controller.run())
            await operator.settle()
        found[what] = times
    if running is not None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    gc.unfreeze()
    return found
