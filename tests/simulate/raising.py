"""Errors inside the operator: one function between the stores and the writes raises an error for one object.

Names are unique in a world, so a name identifies an object. A template has the name of its job in the label `OF`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from elastic_operator.loop import reconciler
from elastic_operator.loop.writes import plan_executor
from elastic_operator.plan import observed_jobs
from elastic_operator.plan.allocation import allocate, explain
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.quarantine import MAX_QUARANTINE_SECONDS, NO_PREEMPTION_SECONDS
from elastic_operator.read import convert, jobs, policies, shapes, specs
from elastic_operator.read.foreign import foreign_pods
from tests.simulate import server as kinds
from tests.simulate.facts import OF, name_of
from tests.simulate.operators import Operator
from tests.simulate.server import Server
from tests.simulate.violation import ViolationError

FIRST_SECONDS = 180.0
"""No object waits longer for its first try, and for a look at everything anew after that."""
AT_WHAT_IS_GIVEN = ("reconcile", "explain", "act")
"""Stations that a job comes by when an allocation was made."""


class MadeUpError(Exception):
    """What a station raises."""


class Station(NamedTuple):
    """A function of the operator that is about objects of a kind, or about many of them."""

    kind: str
    where: Any
    function: str


STATIONS = {
    "parse": Station(kinds.JOBS, specs, "parse_spec"),
    "facts": Station(kinds.JOBS, jobs.Jobs, "job"),
    "observe": Station(kinds.JOBS, observed_jobs, "observe"),
    "shape": Station(kinds.JOBS, shapes.Shapes, "shape_of"),
    "demand": Station(kinds.JOBS, observed_jobs, "demand_of"),
    "allocate": Station(kinds.JOBS, allocate.Allocator, "allocate"),
    "reconcile": Station(kinds.JOBS, reconciler, "reconcile"),
    "explain": Station(kinds.JOBS, explain.Explainer, "why"),
    "act": Station(kinds.JOBS, plan_executor.PlanExecutor, "carry_out"),
    "foreign pod": Station(kinds.PODS, foreign_pods.ForeignPods, "_read_pod"),
    "allocate a pod": Station(kinds.PODS, allocate.Allocator, "allocate"),
    "node": Station(kinds.NODES, convert, "node_facts"),
    "unready": Station(kinds.NODES, convert, "unready_since"),
    "policy": Station(kinds.POLICIES, policies, "policy_of"),
}


class Raising:
    """Which station raises for which object: `server.aside` has both, until the operator has surely tried again.

    A policy's station raises for its next spec: `server.in_force` has the one that goes on to hold, None for none.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.working = server, False
        self._broken: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._until: dict[str, float] = {}
        self._held: dict[str, Mapping[str, Any]] = {}
        """The specs of policies, by uid, that the operator last worked with."""

    # -- what is broken ----------------------------------------------------------------------------------------------

    @property
    def broken(self) -> list[str]:
        """The names of the objects for which a station raises now."""
        return list(self._broken)

    def begin(self, name: str, station: str) -> None:
        """From now on that station raises for the object."""
        self._broken[name] = self.server.aside[name] = station
        self._since.setdefault(name, self.server.clock.passed)
        self._until.pop(name, None)

    def end(self, name: str) -> None:
        """Nothing raises for it any more. Waits double, so it is tried again when as much time as before has passed.

        A job that raised at what it was given takes nothing from others for a while.
        """
        now, station = self.server.clock.passed, self._broken.pop(name)
        until = now + min(MAX_QUARANTINE_SECONDS, now - self._since[name] + FIRST_SECONDS)
        self._until[name] = until + (NO_PREEMPTION_SECONDS if station in AT_WHAT_IS_GIVEN else 0.0)

    def tried_again(self) -> bool:
        """Whether the operator has surely tried again all for which nothing raises any more; they count as the rest."""
        now = self.server.clock.passed
        for name in [name for name, until in self._until.items() if until <= now]:
            del self._until[name], self.server.aside[name]
        return not self._until

    def heard(self, operator: Operator) -> None:
        """After a pass: the policies that are quarantined hold as they last did for this operator."""
        problems, in_force = operator.controller.view.policies.problems, self.server.in_force
        in_force.clear()
        for policy in self.server.all(kinds.POLICIES):
            uid = policy["metadata"]["uid"]
            if all(problem.code != "InternalError" for problem in problems.get(uid, ())):
                self._held[uid] = policy["spec"]
            elif name_of(policy) in self.server.aside:
                in_force[uid] = self._held.get(uid)

    def forgotten(self) -> None:
        """Another operator leads: it knows of no spec that once held."""
        self._held.clear()

    # -- how it raises -----------------------------------------------------------------------------------------------

    @contextmanager
    def rule(self) -> Iterator[None]:
        """The stations raise; none does but in the operator's own passes, and not where the checker decides again."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(Operator, "run_pass", self._working(Operator.run_pass)))
            for where, function in {(one.where, one.function) for one in STATIONS.values()}:
                broken = self._station(where, function)
                stack.enter_context(patch.object(where, function, broken))
            yield

    def _working(self, work: Any) -> Any:
        async def run_pass(operator: Operator) -> float:
            self.working = True
            try:
                wait: float = await work(operator)
            except MadeUpError as error:
                raise ViolationError(f"an error at one object is everybody's: {self.server.aside}") from error
            finally:
                self.working = False
            return wait

        return run_pass

    def _station(self, where: Any, function: str) -> Any:
        work = getattr(where, function)
        names = {name for name, one in STATIONS.items() if (one.where, one.function) == (where, function)}

        def station(*arguments: Any, **more: Any) -> Any:
            if self.working and self._broken and any(self._broken.get(n) in names for n in self._about(arguments)):
                raise MadeUpError("made up")
            return work(*arguments, **more)

        return station

    def _about(self, arguments: tuple[Any, ...]) -> Iterator[str]:
        """The names of the objects that a station is called with."""
        for one in arguments:
            if isinstance(one, dict):
                yield from (name for name in self._broken if f"'{OF}': '{name}'" in str(one))
            for found in (one, *(getattr(one, name, None) for name in ("job", "demand", "metadata"))):
                if isinstance(name := getattr(found, "name", None), str):
                    yield name
            if isinstance(one, AllocationInputs):
                yield from (asking.name for asking in (*one.jobs, *(pod.demand for pod in one.foreign_pods)))
