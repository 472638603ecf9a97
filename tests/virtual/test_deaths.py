"""The operator is killed between any two writes of one decision. The next leader completes the decision.

Each job has one decision. A run without a kill shows its result. In further runs the operator is killed right after the
API server carried out a write, before the answer arrives. The next leader knows only the API objects. A kill before the
next write is the same case, because the process sends nothing in between.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from elastic_worker.contract import LABEL_INCARNATION
from tests.kit.requests import CutOff, Request, is_a_write, makes_a_pod
from tests.simulate import server as kinds
from tests.simulate.facts import name_of, owner_of
from tests.simulate.server import Body
from tests.simulate.violation import require
from tests.virtual.actions import delete_pod, edit, end, job, manifest, nodes, successful_requests
from tests.virtual.replica import Replica
from tests.virtual.scenario import Action
from tests.virtual.world import ProcessWorld, run_world

pytestmark = pytest.mark.simulation

MOST_DEATHS = 200
SETTLE_SECONDS = 60
POD = "one-pod"
"""All operators are containers of one and the same pod: each goes on under the lease of the one before it."""
COUNTERS = ("replicas", "targetReplicas", "readyReplicas", "incarnation", "restarts", "resizes", "failures")


@dataclass(frozen=True, slots=True)
class Case:
    """One decision: a job with `before` pods (and `spec`), what happens to it, and how many pods are to come of it."""

    before: int
    cause: Action
    after: int
    spec: Mapping[str, Any] = field(default_factory=dict)


def changed_template() -> dict[str, Any]:
    """Another script."""
    template: dict[str, Any] = manifest()["spec"]["template"]
    template["spec"]["containers"][0]["args"] = ["other.py"]
    return template


CASES = {
    "starts": Case(0, job("starts", small=2, big=3), 3),
    "grows": Case(2, edit("grows", maxReplicas=4), 4),
    "shrinks": Case(4, edit("shrinks", maxReplicas=2), 2),
    "loses-worker": Case(3, delete_pod("loses-worker-worker-0"), 3),
    "loses-master": Case(3, delete_pod("loses-master-master-0"), 3),
    "suspends": Case(3, edit("suspends", suspend=True), 0),
    "resumes": Case(2, edit("resumes", suspend=False, template=changed_template()), 2, {"suspend": True}),
    "fails": Case(2, end(1, "fails-master-0"), 2),
    "fails-for-good": Case(
        2,
        end(1, "fails-for-good-master-0"),
        0,
        {"recovery": {"maxFailuresWithoutProgress": 1}, "cleanPodPolicy": "All"},
    ),
    "ends": Case(2, end(0, "ends-worker-0", "ends-master-0"), 0, {"cleanPodPolicy": "All"}),
}


class Script:
    """The jobs of all cases, and what is done to them."""

    def __init__(self, world: ProcessWorld) -> None:
        self.world = world

    async def prepare(self) -> None:
        """Until the jobs are as they are to be before."""
        nodes(2, 25)(self.world)
        cases = {name: case for name, case in CASES.items() if case.before}
        for name, case in cases.items():
            job(name, big=case.before, **case.spec)(self.world)
        for name, case in cases.items():
            size = 0 if case.spec.get("suspend") else case.before
            await self.world.until(name, lambda name=name, size=size: self.world.settled(name, size), seconds=5)

    def play(self) -> None:
        """Do to each job what the operator has to decide about."""
        for case in CASES.values():
            case.cause(self.world)

    def is_over(self) -> bool:
        """Whether each job has its pods and says so, and those that are to end or to start anew have done so."""
        status = {name: self.world.status(name) for name in CASES}
        ended = all("completionTime" in status[name] for name in ("ends", "fails-for-good"))
        replaced = all(status[name].get("incarnation") == 2 for name in ("fails", "loses-master"))
        refilled = status["loses-worker"].get("restarts") == 1
        return ended and replaced and refilled and all(self.world.settled(n, case.after) for n, case in CASES.items())

    def outcome(self) -> dict[str, Any]:
        """What is there, without times, texts and identities."""
        return {name: self._outcome_of(name) for name in CASES}

    def _outcome_of(self, name: str) -> dict[str, Any]:
        status = self.world.status(name)
        return {
            "pods": sorted(_seen(pod) for pod in self.world.pods(name)),
            "counters": {counter: status.get(counter) for counter in COUNTERS},
            "history": [(change["from"], change["to"], change["reason"]) for change in status["history"]],
            "conditions": sorted((c["type"], c["status"], c["reason"]) for c in status["conditions"]),
            "services": self._count(name, kinds.SERVICES),
            "slices": self._count(name, kinds.SLICES),
        }

    def _count(self, name: str, plural: str) -> int:
        return sum(owner_of(item)["name"] == name for item in self.world.server.all(plural))


def _seen(pod: Body) -> tuple[str, str, bool]:
    """Without the index: a pod made while an older one is on its way out gets another than one made after."""
    is_new = "other.py" in json.dumps(pod["spec"]["containers"])
    return name_of(pod).rsplit("-", 1)[0], pod["metadata"]["labels"][LABEL_INCARNATION], is_new


def is_a_step(request: Request) -> bool:
    """A write that is part of a decision. Events are news, and may be lost."""
    return is_a_write(request) and not request.path.endswith("/events")


class Death:
    """Takes the operator at its `writes`-th write: the API server carries it out, and nobody hears of it."""

    def __init__(self, victim: Replica, writes: int) -> None:
        self.victim, self.writes, self.came = victim, writes, False
        victim.line.before, victim.line.after = self._before, self._after

    def _before(self, request: Request) -> None:
        """The dead do not write, however near their request came."""
        if self.came and is_a_step(request):
            raise CutOff

    def _after(self, request: Request, status: int) -> None:
        if is_a_step(request) and status < 300:
            self.writes -= 1
            if self.writes == 0:
                self.came = True
                self.victim.kill()


@cache
def calm() -> dict[str, Any]:
    """The outcome where nobody dies."""
    found: dict[str, Any] = {}

    async def scenario(world: ProcessWorld) -> None:
        script = Script(world)
        world.start(who=POD)
        await script.prepare()
        script.play()
        await world.until("the calm end", script.is_over, seconds=SETTLE_SECONDS)
        found.update(script.outcome())

    run_world(0, scenario)
    return found


def disturbed(seed: int, writes: Iterable[int]) -> int:
    """Play the script to its end, while one operator after the other dies at its so-many-th write. Returns how many
    died.
    """
    deaths, expected = list[Death](), calm()

    async def scenario(world: ProcessWorld) -> None:
        script = Script(world)
        first = world.start(who=POD)
        await script.prepare()
        first.stop()
        await world.until("its end", lambda: not first.lives, seconds=3)
        first.line.log.clear()
        script.play()
        for count in writes:
            deaths.append(Death(world.start(who=POD), count))
            await world.until("a death or the end", lambda: deaths[-1].came or script.is_over(), seconds=SETTLE_SECONDS)
            if not deaths[-1].came:
                break
        if deaths[-1].came:
            world.start(who=POD)
        await world.until("the end", script.is_over, seconds=SETTLE_SECONDS)
        await world.advance(60)
        require(script.outcome() == expected, f"{script.outcome()}")
        twice = {pod: times for pod, times in created(world).items() if times > 1}
        require(not twice, f"made twice: {twice}")

    run_world(seed, scenario)
    return sum(death.came for death in deaths)


def created(world: ProcessWorld) -> Counter[tuple[str, str]]:
    """How often the API server made each pod of each incarnation."""
    pods = [request.body for request in successful_requests(world, makes_a_pod)]
    return Counter((name_of(pod), pod["metadata"]["labels"][LABEL_INCARNATION]) for pod in pods)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 100))])
def test_operators_killed_after_each_write_reach_the_same_result(seed: int) -> None:
    assert disturbed(seed, [1] * MOST_DEATHS) > 30


@pytest.mark.parametrize(
    "writes", [each if each % 3 == 2 else pytest.param(each, marks=pytest.mark.long) for each in range(2, 32)]
)
def test_a_death_at_any_one_write_changes_nothing(writes: int) -> None:
    assert disturbed(writes, [writes]) == 1
