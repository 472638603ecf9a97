"""A cluster in memory with whole operators, including watches, lease and stores. Time is virtual.

An exception anywhere, a logged exception, or the end of a replica fails the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from elastic_operator import process
from elastic_operator.pods.launcher_target import Target
from elastic_operator.pods.master_poller import MasterPoller
from elastic_operator.settings import GpuFlavor, Settings
from tests.kit import virtual_time
from tests.simulate import server as kinds
from tests.simulate.cluster import Cluster
from tests.simulate.facts import FLAVORS, GPU, POOL, name_of, owner_of, staying
from tests.simulate.server import Body
from tests.simulate.violation import ViolationError, require
from tests.simulate.virtual_clock import VirtualClock
from tests.virtual.fencing_checker import FencingChecker
from tests.virtual.loop import HERE, OUTSIDE, SharedLoop
from tests.virtual.replica import Replica

SETTINGS = Settings(
    flavors=tuple(GpuFlavor(name=name, resources=(GPU,), node_selector={POOL: name}) for name in FLAVORS)
)
TICK_SECONDS = 0.2
"""The time after which kubelets, scheduler and garbage collector react to a change."""
LOOK_SECONDS = 0.05
NAMESPACE = "elastic-system"


class LoopClock(VirtualClock):
    """The API server's clock: the loop's time plus `stepped`, the sum of its steps in seconds."""

    def __init__(self) -> None:
        self.stepped = 0.0

    @property
    def passed(self) -> float:  # type: ignore[override]
        """Seconds since the world began."""
        return asyncio.get_running_loop().time()

    def time(self) -> float:
        """Epoch seconds."""
        return super().time() + self.stepped


class LogCapture(logging.Handler):
    """The log lines of the replicas, each with its time and replica, and the first logged exception."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[tuple[float, str, str]] = []
        self.failure: str = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        here = HERE.get()
        now = asyncio.get_running_loop().time()
        self.lines.append((now, here.name if here else "", f"{record.levelname} {record.getMessage()}"))
        if record.exc_info and not self.failure:
            self.failure = logging.Formatter().format(record)


class ProcessWorld(Cluster):
    """A cluster and its replicas of the operator. Construct it within its event loop."""

    def __init__(self, rng: Random, *, settings: Settings = SETTINGS) -> None:
        super().__init__(LoopClock(), rng)
        self.server.create(kinds.NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.settings, self.logs = settings, LogCapture()
        self.replicas: list[Replica] = []
        self.fencing_checker = FencingChecker(self.server)
        self.step_began = 0.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        """Functions to call, each with its time."""
        self._failure: BaseException | None = None
        self._machines_wanted = asyncio.Event()
        self.server.listeners.append(lambda *_: self._machines_wanted.set())
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fail)
        self._machines = loop.create_task(self._run_machines(), context=OUTSIDE.copy())

    # -- operators ---------------------------------------------------------------------------------------------------

    def start(self, *, who: str = "") -> Replica:
        """Start another replica."""
        replica = Replica(f"r{len(self.replicas) + 1}", self.api, self.settings, self.rng, who=who)
        self.replicas.append(replica)
        self.fencing_checker.watch(replica)
        return replica

    @property
    def leader(self) -> Replica | None:
        """The replica that leads; None if none does."""
        return next((replica for replica in self.replicas if replica.leads), None)

    # -- time --------------------------------------------------------------------------------------------------------

    async def until(self, what: str, look: Callable[[], object], *, seconds: float) -> float:
        """Wait until `look()` is true; returns the seconds waited. Raises ViolationError after `seconds`."""
        begun = self.clock.passed
        while not look():
            await self.advance(LOOK_SECONDS)
            if self.clock.passed - begun > seconds:
                raise ViolationError(f"waited {seconds:g} s for {what} in vain; {self.report()}")
        return self.clock.passed - begun

    async def advance(self, seconds: float) -> None:
        """Let time pass, and check the world."""
        await asyncio.sleep(seconds)
        self.check()

    def begin_step(self) -> None:
        """Begin the next step of the scenario."""
        self.step_began = self.clock.passed

    def since_step_began(self, time: str) -> float:
        """The seconds from the start of the step to that time of the API."""
        return datetime.fromisoformat(time).timestamp() - (self.clock.time() - self.clock.passed + self.step_began)

    def check(self) -> None:
        """Check that no error has occurred. Raises ViolationError, or the error of a task."""
        if self._failure is not None:
            raise self._failure
        require(not self.fencing_checker.seen, self.fencing_checker.seen)
        require(not self.logs.failure, f"an operator failed: {self.logs.failure}")
        for replica in self.replicas:
            ended = replica.task.done() and not replica.line.dead and not replica.task.cancelled()
            error = replica.task.exception() if ended else None
            require(error is None, f"{replica.name} ended: {error!r}")

    async def end(self) -> None:
        """Kill all replicas, and stop the machines."""
        for replica in self.replicas:
            replica.kill()
        self._machines.cancel()
        tasks = [self._machines, *(replica.task for replica in self.replicas)]
        with suppress(ViolationError):
            await asyncio.gather(*tasks, return_exceptions=True)

    def wake_machines(self) -> None:
        """Let kubelets, scheduler and garbage collector act again."""
        self._machines_wanted.set()

    def _fail(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        self._failure = self._failure or error

    async def _run_machines(self) -> None:
        """Kubelets, scheduler and garbage collector act on what has changed, until nothing does."""
        while True:
            await self._machines_wanted.wait()
            self._machines_wanted.clear()
            await asyncio.sleep(TICK_SECONDS)
            self.machines.step()

    # -- observations ------------------------------------------------------------------------------------------------

    def job(self, name: str) -> Body | None:
        """The job of that name."""
        return next((job for job in self.server.all(kinds.JOBS) if name_of(job) == name), None)

    def status(self, name: str) -> dict[str, Any]:
        """The job's status."""
        job = self.job(name)
        return job.get("status", {}) if job else {}

    def pod(self, name: str) -> Body:
        """The pod of that name."""
        return next(pod for pod in self.server.all(kinds.PODS) if name_of(pod) == name)

    def pods(self, job: str = "") -> list[Body]:
        """The pods that are not terminating: a job's, or all."""
        pods = [pod for pod in self.server.all(kinds.PODS) if "deletionTimestamp" not in pod["metadata"]]
        return [pod for pod in pods if not job or (owner_of(pod) and owner_of(pod)["name"] == job)]

    def settled(self, job: str, size: int) -> bool:
        """Whether that many pods of the job run, also by its status."""
        status, pods = self.status(job), self.pods(job)
        counts = (status.get("replicas"), status.get("targetReplicas"), status.get("readyReplicas"), len(pods))
        return counts == (size,) * 4 and all(pod["status"]["phase"] == "Running" for pod in pods)

    def report(self) -> str:
        """Pods, statuses and the last log lines, for failure messages."""
        phases = Counter(_seen(pod) for pod in self.server.all(kinds.PODS))
        jobs = {name_of(job): job.get("status") for job in self.server.all(kinds.JOBS)}
        said = "\n".join(f"  {at:9.3f} {who} {line}" for at, who, line in self.logs.lines[-40:])
        return f"pods {dict(phases)}; statuses {jobs}; last words:\n{said}"


def _seen(pod: Body) -> str:
    owner = owner_of(pod)
    going = "" if staying(pod) else ", to go"
    return f"{owner['name'] if owner else 'foreign'} {pod['status']['phase']}{going}"


def no_answer(_target: Target) -> bytes:
    """The answer of a master without a launcher."""
    raise ConnectionRefusedError


def run_world(
    seed: int,
    scenario: Callable[[ProcessWorld], Any],
    *,
    settings: Settings = SETTINGS,
    status: Callable[[Target], bytes] = no_answer,
) -> ProcessWorld:
    """Call `scenario` (a coroutine function) with a new world, and check that world; returns it.

    The same seed gives the same run. `status` is the answer of masters.
    """

    async def get(_poller: MasterPoller, target: Target) -> bytes:
        return status(target)

    async def main() -> ProcessWorld:
        world = ProcessWorld(Random(seed), settings=settings)
        log.addHandler(world.logs)
        try:
            await scenario(world)
            world.check()
        except Exception as error:
            error.add_note(f"seed {seed}, after {world.clock.passed:.2f} s")
            raise
        finally:
            log.removeHandler(world.logs)
            await world.end()
        return world

    log = logging.getLogger("elastic_operator")
    level = log.level
    log.setLevel(logging.INFO)
    # Collecting the garbage of a whole test run at each take-over would cost more than all the rest.
    spared = SimpleNamespace(collect=lambda: 0, freeze=lambda: None, unfreeze=lambda: None, get_freeze_count=lambda: 0)
    try:
        with patch.object(process, "gc", spared), patch.object(MasterPoller, "_get", get):
            return virtual_time.run(main, seed=seed, loop=SharedLoop)
    finally:
        log.setLevel(level)
