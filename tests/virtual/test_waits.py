"""Jobs that wait while a clock steps by an hour: nothing is lost, and no wait exceeds its limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

import pytest

from elastic_operator.plan.facts.waits import MAX_BACKOFF_SECONDS
from elastic_operator.plan.job.pending_reasons import UNSEEN_SECONDS
from tests.simulate import server as kinds
from tests.simulate.facts import node_of
from tests.simulate.violation import require
from tests.virtual.actions import condition, edit, end, job, leads, manifest, nodes, replica, settled
from tests.virtual.scenario import Condition, Scenario, Step, run_scenario
from tests.virtual.world import ProcessWorld, run_world

HOUR = 3600
DEADLINE_SECONDS, DELAY_SECONDS, TTL_SECONDS, LOSS_SECONDS = 18.0, 16.0, 12.0, 9.0
EARLY_SECONDS, LATE_SECONDS = 3.0, 5.0
"""Times have whole seconds, how far a clock stepped is known to a second; a doubt about it is settled in five."""
LOSSES = ("lost", "cut-off")
"""What ends by the loss of a node."""


@dataclass(slots=True)
class Wait:
    """What takes so long, is due between these moments of the loop, how it is seen, and when it came."""

    seconds: float
    first: float
    last: float
    seen: Callable[[ProcessWorld], object]
    came: float | None = None


class Waits:
    """Jobs of one pod each; each waits for something else, but for the one that only trains."""

    def __init__(self, world: ProcessWorld) -> None:
        self.world, self.found = world, dict[str, Wait]()

    async def begin(self) -> None:
        """All run and wait for something."""
        nodes(1, 5)(self.world)
        self.world.start()
        await self._start("trains")
        self.trains = self.world.pods("trains")
        await self._start("back-off", recovery={"maxFailuresWithoutProgress": 100})
        await self._start("deadline", activeDeadlineSeconds=int(DEADLINE_SECONDS))
        await self._start("end", ttlSecondsAfterFinished=int(TTL_SECONDS))
        await self._start(
            "delay", big=2, elasticity={"scaleUpDelaySeconds": int(DELAY_SECONDS), "gracePeriodSeconds": 1}
        )
        await self._fail(1)
        await self._fail(2)
        began = self.world.status("deadline")["activeSince"]
        self._expect("deadline", began, DEADLINE_SECONDS, lambda w: "completionTime" in w.status("deadline"))
        began = self.world.status("delay")["lastResizeTime"]
        self.world.add_node(2, "a")
        self._expect("delay", began, DELAY_SECONDS, lambda w: len(w.pods("delay")) == 2)
        end(0, "end-master-0")(self.world)
        await self._until("its end", lambda: "completionTime" in self.world.status("end"))
        ended = self.world.status("end")["completionTime"]
        self._expect("end", ended, TTL_SECONDS, lambda w: w.job("end") is None)
        await self._fail(3)
        await self._until("the failed pod to go", lambda: not self.world.pods("back-off"))
        due = self.world.status("back-off")["retry"]["notBefore"]
        self._expect("back-off", due, 0.0, lambda w: w.pods("back-off"), longest=MAX_BACKOFF_SECONDS)

    async def step(self, by: float) -> None:
        """The API server's clock steps, and the operator believes it."""
        self.world.clock.stepped += by
        edit("back-off", recovery={"maxFailuresWithoutProgress": 99})(self.world)
        await self._until(
            "the step to be believed", lambda: any("stepped" in line for *_, line in self.world.logs.lines), seconds=20
        )

    async def restart(self) -> None:
        """Another operator leads."""
        self.world.start()
        self.world.replicas[0].stop()
        await self._until("another to lead", lambda: self.world.replicas[1].leads, seconds=20)

    def allow(self, by: float) -> None:
        """What a step may cost until now: waits that come early, or whose longest time begins now."""
        for name, wait in self.found.items():
            if name not in LOSSES:
                wait.first = wait.first if by < 0 else -inf
                wait.last = max(wait.last, self.world.clock.passed + (wait.seconds if by < 0 else 0))

    async def lose_a_node(self, name: str) -> None:
        """That job's node falls silent; its pod is due elsewhere some time later."""
        self.world.add_node(1, "b")
        await self._start(name, pool="b", recovery={"nodeLossSeconds": int(LOSS_SECONDS)})
        [pod] = self.world.pods(name)
        node = self.world.server.find(kinds.NODES, "", node_of(pod))
        assert node is not None
        since = self.world.readiness(False)
        self.world.server.update(kinds.NODES, node, status={**node["status"], "conditions": [since]})
        self.world.add_node(1, "b")
        uid = pod["metadata"]["uid"]

        def elsewhere(world: ProcessWorld) -> bool:
            return any(p["metadata"]["uid"] != uid for p in world.pods(name))

        self._expect(name, since["lastTransitionTime"], LOSS_SECONDS, elsewhere)

    async def watch(self) -> None:
        """Until everything came, or is late."""
        last = max(wait.last for wait in self.found.values()) + LATE_SECONDS
        now = self.world.clock.passed
        early = [name for name, wait in self.found.items() if wait.seen(self.world) and now < wait.first]
        require(not early, f"{early} came before anybody looked")
        while any(wait.came is None for wait in self.found.values()) and self.world.clock.passed < last:
            for wait in self.found.values():
                if wait.came is None and wait.seen(self.world):
                    wait.came = self.world.clock.passed
            await self.world.advance(0.25)
        amiss = {
            name: wait
            for name, wait in self.found.items()
            if not wait.first - EARLY_SECONDS <= (wait.came or inf) <= wait.last + LATE_SECONDS
        }
        require(not amiss, f"{amiss}; {self.world.report()}")
        uids = [pod["metadata"]["uid"] for pod in self.world.pods("trains")]
        require(uids == [pod["metadata"]["uid"] for pod in self.trains], "the job that trains lost its pod")

    async def _start(self, name: str, **spec: Any) -> None:
        job(name, **{"big": 1, **spec})(self.world)
        await self._until(name, lambda: self.world.settled(name, 1))

    async def _fail(self, attempt: int) -> None:
        await self._until("back-off to run", lambda: self.world.settled("back-off", 1), seconds=60)
        end(1, "back-off-master-0")(self.world)
        await self._until(
            "its failure", lambda: self.world.status("back-off").get("retry", {}).get("attempt") == attempt
        )

    async def _until(self, what: str, look: Callable[[], object], *, seconds: float = 5.0) -> None:
        await self.world.until(what, look, seconds=seconds)

    def _expect(
        self,
        what: str,
        began: str,
        seconds: float,
        seen: Callable[[ProcessWorld], object],
        longest: float = 0.0,
    ) -> None:
        """`began` is a time of the API server's clock as it is now."""
        ago = self.world.clock.time() - datetime.fromisoformat(began).timestamp()
        due = self.world.clock.passed - ago + seconds
        self.found[what] = Wait(longest or seconds, due, due, seen)


def lease(world: ProcessWorld) -> tuple[str, int]:
    """Who holds it, and how often it changed hands."""
    spec = world.server.all("leases")[0]["spec"]
    return spec["holderIdentity"], spec["leaseTransitions"]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_clock_step_of_the_api_server_costs_no_pod(step: int, seed: int) -> None:
    async def scenario(world: ProcessWorld) -> None:
        waits = Waits(world)
        await waits.begin()
        await waits.lose_a_node("lost")
        await waits.step(step)
        waits.allow(step)
        await waits.lose_a_node("cut-off")
        await waits.watch()

    run_world(seed, scenario)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_operator_that_starts_after_a_clock_step_deletes_no_pod(step: int, seed: int) -> None:
    async def scenario(world: ProcessWorld) -> None:
        waits = Waits(world)
        await waits.begin()
        world.clock.stepped += step
        await waits.restart()
        waits.allow(step)
        await waits.lose_a_node("cut-off")
        await waits.watch()

    run_world(seed, scenario)


@pytest.mark.parametrize("seed", range(2))
def test_clock_steps_of_the_operator_change_no_wait(seed: int) -> None:
    async def scenario(world: ProcessWorld) -> None:
        waits, loop = Waits(world), asyncio.get_running_loop()
        await waits.begin()
        before = lease(world)
        loop.wall += HOUR  # type: ignore[attr-defined]
        await waits.lose_a_node("lost")
        loop.wall -= 2 * HOUR  # type: ignore[attr-defined]
        await waits.watch()
        require(lease(world) == before, "the lease changed hands")
        require(sum("leading as" in line for *_, line in world.logs.lines) == 1, "it began to lead again")

    run_world(seed, scenario)


def no_scheduler(runs: bool) -> Callable[[ProcessWorld], None]:
    """kube-scheduler runs, or does not."""

    def do(world: ProcessWorld) -> None:
        world.machines.schedules = runs
        world.wake_machines()

    return do


def unseen(name: str, who: str) -> Condition:
    """The job says that nobody looks at its pods, and who should."""
    message = (
        f"0 of 2 pods run. No scheduler has tried {name}-master-0, {name}-worker-0 within {UNSEEN_SECONDS:.0f} s."
        f" Check that {who} runs."
    )
    return condition(name, "Ready", "Starting", message)


ELSEWHERE = {"spec": {**manifest()["spec"]["template"]["spec"], "schedulerName": "nobody"}}
ASKS_FOR_NOBODY = unseen("other", "a scheduler called nobody (schedulerName)")

NO_SCHEDULER: Scenario = (
    Step(
        "nobody schedules",
        (
            nodes(2, 4),
            replica(),
            no_scheduler(False),
            job(small=2, big=2),
            job("other", small=2, big=2, template=ELSEWHERE),
        ),
    ),
    Step(
        "it is told with what to see after",
        expect=(unseen("toy", "kube-scheduler"), ASKS_FOR_NOBODY),
        not_before_seconds=UNSEEN_SECONDS - 1,
        within_seconds=UNSEEN_SECONDS + 3,
    ),
    Step(
        "it schedules",
        (no_scheduler(True),),
        (settled("toy", 2), condition("toy", "Ready", "Running", "2 pods")),
        within_seconds=3,
    ),
    Step("and nothing more", expect=(leads(0), settled("toy", 2), ASKS_FOR_NOBODY), hold_seconds=120),
)


@pytest.mark.parametrize("seed", range(2))
def test_pods_without_a_scheduler_are_reported_with_what_to_check(seed: int) -> None:
    run_scenario(NO_SCHEDULER, seed)
