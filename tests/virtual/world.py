"""A cluster in memory with whole operators: watches, lease, stores and all, and time that passes when nothing can run.

Whatever goes wrong in a replica makes the run red: an exception anywhere, one that is only logged, an end.
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
from tests.simulate.moments import Moments
from tests.simulate.server import Body
from tests.simulate.violation import ViolationError, require
from tests.virtual.loop import HERE, OUTSIDE, SharedLoop
from tests.virtual.replica import Replica
from tests.virtual.watchman import Watchman

SETTINGS = Settings(
    flavors=tuple(GpuFlavor(name=name, resources=(GPU,), node_selector={POOL: name}) for name in FLAVORS)
)
TICK_SECONDS = 0.2
"""So long after a change kubelets, scheduler and garbage collector have seen it."""
LOOK_SECONDS = 0.05
NAMESPACE = "elastic-system"


class VirtualMoments(Moments):
    """The API server's clock: the loop's time, and by how much it stepped."""

    def __init__(self) -> None:
        self.stepped = 0.0

    @property
    def passed(self) -> float:  # type: ignore[override]
        """Seconds since the world began."""
        return asyncio.get_running_loop().time()

    def time(self) -> float:
        """Epoch seconds."""
        return super().time() + self.stepped


class Said(logging.Handler):
    """What the operators log, with the time and who said it; and what they log of exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[tuple[float, str, str]] = []
        self.failure: str = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        here = HERE.get()
        now = asyncio.get_running_loop().time()
        self.lines.append((now, here.name if here else "", f"{record.levelname} {record.getMessage()}"))
        if record.exc_info and not self.failure:
            self.failure = logging.Formatter().format(record)


class ProcessWorld(Cluster):
    """A cluster and its operators. To be made within its loop."""

    def __init__(self, dice: Random, *, settings: Settings = SETTINGS) -> None:
        super().__init__(VirtualMoments(), dice)
        self.server.create(kinds.NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.settings, self.said = settings, Said()
        self.replicas: list[Replica] = []
        self.watchman = Watchman(self.server)
        self.row_began = 0.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        """What is to happen, and when."""
        self._failure: BaseException | None = None
        self._stirred = asyncio.Event()
        self.server.listeners.append(lambda *_: self._stirred.set())
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fail)
        self._machines = loop.create_task(self._play_machines(), context=OUTSIDE.copy())

    # -- operators ---------------------------------------------------------------------------------------------------

    def start(self, *, who: str = "") -> Replica:
        """Another replica."""
        replica = Replica(f"r{len(self.replicas) + 1}", self.api, self.settings, self.dice, who=who)
        self.replicas.append(replica)
        self.watchman.watch(replica)
        return replica

    @property
    def leader(self) -> Replica | None:
        """Who leads."""
        return next((replica for replica in self.replicas if replica.leads), None)

    # -- time --------------------------------------------------------------------------------------------------------

    async def until(self, what: str, look: Callable[[], object], *, seconds: float) -> float:
        """Until that is so; returns after how many seconds. Raises ViolationError if it does not come in time."""
        begun = self.moments.passed
        while not look():
            await self.advance(LOOK_SECONDS)
            if self.moments.passed - begun > seconds:
                raise ViolationError(f"waited {seconds:g} s for {what} in vain; {self.report()}")
        return self.moments.passed - begun

    async def advance(self, seconds: float) -> None:
        """Time passes."""
        await asyncio.sleep(seconds)
        self.check()

    def begin_row(self) -> None:
        """Another row of the story begins."""
        self.row_began = self.moments.passed

    def since_row_began(self, time: str) -> float:
        """How many seconds later that time of the API's is."""
        return datetime.fromisoformat(time).timestamp() - (self.moments.time() - self.moments.passed + self.row_began)

    def check(self) -> None:
        """Nothing has gone wrong so far. Raises ViolationError."""
        if self._failure is not None:
            raise self._failure
        require(not self.watchman.seen, self.watchman.seen)
        require(not self.said.failure, f"an operator failed: {self.said.failure}")
        for replica in self.replicas:
            ended = replica.task.done() and not replica.line.dead and not replica.task.cancelled()
            error = replica.task.exception() if ended else None
            require(error is None, f"{replica.name} ended: {error!r}")

    async def end(self) -> None:
        """Everybody goes."""
        for replica in self.replicas:
            replica.kill()
        self._machines.cancel()
        tasks = [self._machines, *(replica.task for replica in self.replicas)]
        with suppress(ViolationError):
            await asyncio.gather(*tasks, return_exceptions=True)

    def stir(self) -> None:
        """The machines look again."""
        self._stirred.set()

    def _fail(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        self._failure = self._failure or error

    async def _play_machines(self) -> None:
        """Kubelets, scheduler and garbage collector act on what has changed, until nothing does."""
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            await asyncio.sleep(TICK_SECONDS)
            self.machines.step()

    # -- what there is -----------------------------------------------------------------------------------------------

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
        """Pods that stay: a job's, or all."""
        pods = [pod for pod in self.server.all(kinds.PODS) if "deletionTimestamp" not in pod["metadata"]]
        return [pod for pod in pods if not job or (owner_of(pod) and owner_of(pod)["name"] == job)]

    def settled(self, job: str, size: int) -> bool:
        """Whether so many pods of the job run, and its status says so."""
        status, pods = self.status(job), self.pods(job)
        counts = (status.get("replicas"), status.get("targetReplicas"), status.get("readyReplicas"), len(pods))
        return counts == (size,) * 4 and all(pod["status"]["phase"] == "Running" for pod in pods)

    def report(self) -> str:
        """Pods, statuses and the last words, for failure messages."""
        phases = Counter(_seen(pod) for pod in self.server.all(kinds.PODS))
        jobs = {name_of(job): job.get("status") for job in self.server.all(kinds.JOBS)}
        said = "\n".join(f"  {at:9.3f} {who} {line}" for at, who, line in self.said.lines[-40:])
        return f"pods {dict(phases)}; statuses {jobs}; last words:\n{said}"


def _seen(pod: Body) -> str:
    owner = owner_of(pod)
    going = "" if staying(pod) else ", to go"
    return f"{owner['name'] if owner else 'foreign'} {pod['status']['phase']}{going}"


def says_nothing(_target: Target) -> bytes:
    """A launcher: there is none."""
    raise ConnectionRefusedError


def live(
    seed: int,
    story: Callable[[ProcessWorld], Any],
    *,
    settings: Settings = SETTINGS,
    status: Callable[[Target], bytes] = says_nothing,
) -> ProcessWorld:
    """What `story` (a coroutine function) makes of a world; the same for the same seed. Returns the world's end.

    `status` is what masters answer.
    """

    async def get(_poller: MasterPoller, target: Target) -> bytes:
        return status(target)

    async def main() -> ProcessWorld:
        world = ProcessWorld(Random(seed), settings=settings)
        log.addHandler(world.said)
        try:
            await story(world)
            world.check()
        except Exception as error:
            error.add_note(f"seed {seed}, after {world.moments.passed:.2f} s")
            raise
        finally:
            log.removeHandler(world.said)
            await world.end()
        return world

    log = logging.getLogger("elastic_operator")
    level = log.level
    log.setLevel(logging.INFO)
    # Collecting the garbage of a whole test run at each take-over would cost more than all the rest.
    spared = SimpleNamespace(collect=lambda: 0, freeze=lambda: None, unfreeze=lambda: None)
    try:
        with patch.object(process, "gc", spared), patch.object(MasterPoller, "_get", get):
            return virtual_time.run(main, seed=seed, loop=SharedLoop)
    finally:
        log.setLevel(level)
