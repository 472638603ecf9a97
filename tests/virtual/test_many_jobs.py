"""With many jobs, and with many failing writes, a pass stays short, and one pass does not cause the next."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from elastic_operator.cluster.session import Session
from elastic_operator.cluster.write_queue import Urgency
from elastic_operator.loop import controller, reconciler
from elastic_operator.loop.writes.plan_executor import PlanExecutor, Work
from elastic_operator.metrics.job_times import JobTimes
from elastic_operator.plan.allocation.allocate import Allocator
from tests.kit.requests import Refusal, Request
from tests.virtual.actions import creations, delete_job, delete_pod, edit, fault, job, nodes, on, replica, settled
from tests.virtual.line import Line
from tests.virtual.scenario import Condition, Step, run_scenario
from tests.virtual.world import ProcessWorld, run_world

HELD, AT_ONCE = 12, 3


def of_held_jobs(request: Request) -> bool:
    """Whether it writes to one of the jobs whose writes are delayed."""
    return request.writes and "/elasticpytorchjobs/held-" in request.path


def refuse(line: Line) -> None:
    """Such writes, from now on."""
    line.faults.refusals.append(Refusal(500, where=of_held_jobs))


def test_statuses_that_cannot_be_written_do_not_keep_the_passes_going() -> None:
    passes, tries, counts = list[None](), list[str](), list[tuple[int, int]]()
    run_pass, carry_out = controller.Controller.run_pass, PlanExecutor.carry_out

    def counted(self: controller.Controller) -> float:
        passes.append(None)
        return run_pass(self)

    def tried(self: PlanExecutor, work: Work, pods: Any) -> Any:
        tries.append(work.job.name)
        return carry_out(self, work, pods)

    def count(_: ProcessWorld) -> None:
        counts.append((len(passes), len(tries)))

    held = [job(f"held-{index}", big=1) for index in range(HELD)]
    scenario = (
        Step("writes are refused", (nodes(2, 8), replica(), on(0, refuse), *held), hold_seconds=60),
        Step("a minute passes", (count,), hold_seconds=60),
        Step("another job comes", (count, job("toy", big=1)), (settled("toy", 1),), within_seconds=3),
    )
    with (
        patch.object(reconciler, "MAX_PLANS", AT_ONCE),
        patch.object(controller.Controller, "run_pass", counted),
        patch.object(PlanExecutor, "carry_out", tried),
    ):
        run_scenario(scenario, 1)
    passes_made, tried_writes = counts[1][0] - counts[0][0], counts[1][1] - counts[0][1]
    assert tried_writes <= 2.5 * HELD, "a status that failed waits for the next try, 24 s at least"
    most = 2 * tried_writes + 2 * HELD
    assert passes_made <= most, "a pass begins a try, another one notes its end, and some are for what the jobs tell"


def test_the_times_of_jobs_are_gone_through_only_when_a_job_has_come_or_gone() -> None:
    forgets, counts = list[None](), list[int]()
    forget_deleted = JobTimes.forget_deleted

    def counted(self: JobTimes, present: Set[str]) -> None:
        forgets.append(None)
        forget_deleted(self, present)

    def count(_: ProcessWorld) -> None:
        counts.append(len(forgets))

    scenario = (
        Step(
            "two jobs run",
            (nodes(2, 8), replica(), job(big=2), job("other", big=1)),
            (settled("toy", 2),),
            hold_seconds=5,
        ),
        Step(
            "a pod is lost", (count, delete_pod("toy-worker-0")), (lambda world: creations(world)["toy-worker-0"] == 2,)
        ),
        Step("it runs again", (), (settled("toy", 2),), hold_seconds=60),
        Step("a job goes", (count, delete_job("other")), hold_seconds=5),
        Step("it is over", (count,)),
    )
    with patch.object(JobTimes, "forget_deleted", counted):
        world = run_scenario(scenario, 1)
    began, after_a_loss, after_the_end = counts
    assert (after_a_loss, after_the_end) == (began, began + 1)
    assert set(world.replicas[0].process.times._jobs) == {world.job("toy")["metadata"]["uid"]}


def test_passes_wait_while_writes_of_earlier_passes_wait_for_their_turns() -> None:
    """What they decide could only be written later. A gang's 800 deletions waited for pass after pass (181)."""
    passes, run_pass, names = list[None](), controller.Controller.run_pass, [f"job-{index}" for index in range(16)]

    def counted(self: controller.Controller) -> float:
        passes.append(None)
        return run_pass(self)

    def begin(_world: ProcessWorld) -> None:
        passes.clear()

    def are(size: int) -> tuple[Condition, ...]:
        return tuple(settled(name, size) for name in names)

    starts, shrinks = [job(name, big=2) for name in names], [edit(name, maxReplicas=1) for name in names]
    scenario = (
        Step("jobs run", (nodes(4, 8), replica(), *starts), are(2), within_seconds=30, hold_seconds=5),
        Step("all of them shrink", (begin, fault(delay=0.2), *shrinks), are(1), within_seconds=30),
    )
    with (
        patch.object(controller.Controller, "run_pass", counted),
        patch("elastic_operator.cluster.session.MAX_WRITES", 2),
    ):
        run_scenario(scenario, 1)
    assert len(passes) <= 20, "one pass a second, and the last ones"


def test_only_the_status_that_a_deletion_waits_for_goes_before_other_changes() -> None:
    """Jobs that released pods a little later than others waited behind the reports of these (147)."""
    said, patch_object = list[tuple[str, bool]](), Session.patch

    async def noted(self: Session, path: str, body: Any, *, urgency: Urgency = Urgency.CHANGE, **more: Any) -> Any:
        said.append((path.rpartition("/")[0].rpartition("/")[2], urgency is Urgency.BEFORE_DELETE))
        return await patch_object(self, path, body, urgency=urgency, **more)

    scenario = (
        Step("a job runs", (nodes(1, 8), replica(), job("toy", big=2)), (settled("toy", 2),), hold_seconds=5),
        Step("it shrinks", (lambda _: said.clear(), edit("toy", maxReplicas=1)), (settled("toy", 1),), hold_seconds=5),
    )
    with patch.object(Session, "patch", noted):
        run_scenario(scenario, 1)
    assert said == [("toy", True), ("toy", False)], "the decision, then the report"


def test_failed_passes_are_a_second_apart_although_events_wake_the_loop() -> None:
    """Each of them logs a traceback, and makes the next one read all jobs again."""
    failed_at = list[float]()

    def broken(_allocator: Allocator, _snapshot: Any) -> Any:
        raise ValueError("made up")

    async def scenario(world: ProcessWorld) -> None:
        nodes(1, 8)(world)
        world.start()
        job("toy", big=1)(world)
        await world.until("the job runs", lambda: world.settled("toy", 1), seconds=10)
        process = world.replicas[0].process
        assert process is not None
        assert process.controller is not None
        with patch.object(Allocator, "allocate", broken):
            process.controller.forget()
            for _ in range(250):
                process.controller.wake()
                await asyncio.sleep(0.01)
        failed_at.extend(at for at, _, line in world.logs.lines if "pass failed" in line)
        world.logs.failure = ""  # the error was made up
        job("other", big=1)(world)
        await world.until("the other job runs", lambda: world.settled("other", 1), seconds=5)

    run_world(1, scenario)
    gaps = [later - earlier for earlier, later in pairwise(failed_at)]
    assert len(gaps) >= 1
    assert min(gaps) >= controller.AFTER_ERROR_SECONDS
