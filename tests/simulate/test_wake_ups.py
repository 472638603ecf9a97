"""A pass says when the next one is due, and why; a metric counts what began each pass."""

from __future__ import annotations

from elastic_operator.loop.controller import LONGEST_WAIT_SECONDS
from elastic_operator.plan.facts.decisions import Slot
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.quarantine import FIRST_FAULT_SECONDS
from elastic_operator.read.assumed_pods import ASSUMED_SECONDS
from tests.build.objects import Owner
from tests.simulate.test_quarantine import run_scenario
from tests.simulate.world import World


def test_the_first_of_all_times_wins_whatever_clock_it_is_on() -> None:
    async def scenario(world: World) -> None:
        controller = world.operator.controller
        await world.advance(30)
        waits = [controller.run_pass()]
        assumed = controller.view.reader.ledger.assumed
        slot, shape = Slot("worker", 0, "n", ready=True), PodShape(requests={})
        assumed.add(Owner("a", "b", "uid"), slot, shape)
        assumed.await_seen("a", "b-worker-0")
        waits.append(controller.run_pass())
        controller.view.reader.quarantine.quarantine("pod", "uid", "a/b", KeyError())
        waits.append(controller.run_pass())
        assert [(wait.reason, round(wait.due_monotonic - world.clock.monotonic(), 3)) for wait in waits] == [
            ("longest_wait", LONGEST_WAIT_SECONDS),
            ("ledger", ASSUMED_SECONDS),
            ("quarantine", FIRST_FAULT_SECONDS),
        ]

    run_scenario(scenario)
