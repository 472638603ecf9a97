"""A cluster with its machines and its operator, and time that passes in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from random import Random
from typing import Any

from elastic_operator.metrics import Metrics
from tests.simulate import server as kinds
from tests.simulate.checker import Checker
from tests.simulate.cluster import Cluster
from tests.simulate.facts import terminating
from tests.simulate.moments import Moments
from tests.simulate.operators import Operator
from tests.simulate.raising import MadeUpError, Raising
from tests.simulate.violation import RestlessError, require

MOST_ROUNDS = 60
"""Rounds of pass and machines after which nothing may change any more, as long as no time passes."""
MOST_STEPS = 80
"""Steps of time after which no pod may come or go any more, as long as nothing else happens."""
QUIET_SECONDS = 150.0
"""Longer than any delay of the operator but the waiting after pods that no scheduler could place."""
SHORTEST_STEP, LONGEST_STEP = 5.0, 60.0
METRICS = Metrics()


class Complaints(logging.Handler):
    """What the operator logs as an error: in these histories nothing is one but what was made up."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first."""
        if not (record.exc_info and isinstance(record.exc_info[1], MadeUpError)):
            self.first = self.first or record


class World(Cluster):
    """Everything that a history happens to. `rule` of its moments must hold while it is used."""

    def __init__(self, moments: Moments, dice: Random, *, default_policy: Mapping[str, Any] | None = None) -> None:
        """`default_policy` is that setting of the operators; None for what it is where nobody sets it."""
        super().__init__(moments, dice)
        self.server.default_policy = default_policy or self.server.default_policy
        self.raising = Raising(self.server)
        self.operator = Operator(self.api, METRICS)
        self.checker = Checker(self.server, dice)
        self.wait = 0.0

    # -- time --------------------------------------------------------------------------------------------------------

    async def run_pass(self) -> None:
        """One pass, its writes, and the checks of both."""
        self.operator.wire.writes.clear()
        self.wait = await self.operator.run_pass()
        self.raising.heard(self.operator)
        self.checker.after_pass(self.operator)
        if self.operator.faults.left is not None:
            self._replace_operator()

    def _replace_operator(self) -> None:
        """Another one leads, which has heard of everything, but knows nothing that is not written down."""
        self.operator.leave()
        self.operator, self.wait = Operator(self.api, METRICS, dice=self.dice), 0.0
        self.raising.forgotten()

    async def go_on(self, *, rounds: int) -> None:
        """So many passes and steps of the machines, whatever is left to do then; the pass comes last."""
        for _ in range(rounds):
            self.machines.step()
            self.moments.passed += 1.0
            await self.run_pass()
        self.checker.look_away()

    async def settle(self) -> None:
        """Passes and machines in turn until nobody has anything to do; a round takes a second."""
        for _ in range(MOST_ROUNDS):
            before, leader = self.server.revision, self.operator
            await self.run_pass()
            self.machines.step()
            if self.machines.overtook:
                self.checker.look_away()
            if self.server.revision == before and self.operator is leader and not leader.reports_soon:
                break
            self.moments.passed += 1.0
        else:
            raise RestlessError(f"something changes in each of {MOST_ROUNDS} rounds")
        if self.operator.faults.retries(self.moments.passed):
            self.checker.look_away()
        else:
            self.checker.at_pause()

    async def advance(self, seconds: float) -> None:
        """Time passes, and the operator looks when it said it would."""
        end = self.moments.passed + seconds
        while self.moments.passed < end:
            step = min(max(self.wait, SHORTEST_STEP), LONGEST_STEP)
            self.moments.passed += min(step, max(0.5, end - self.moments.passed))
            await self.settle()

    async def come_to_rest(self) -> None:
        """Time passes until no pod has come or gone for longer than the operator ever waits by itself."""
        quiet_since, before = self.moments.passed, self.checker.changes
        for _ in range(MOST_STEPS):
            await self.advance(min(max(self.wait, SHORTEST_STEP), LONGEST_STEP))
            if self.checker.changes != before:
                quiet_since, before = self.moments.passed, self.checker.changes
            waits = self.operator.controller.reconciler.eviction_gate.awaiting_dry_runs  # (139)
            quiet = self.moments.passed - quiet_since >= QUIET_SECONDS and not waits
            if self.raising.tried_again() and quiet:
                break
        else:
            raise RestlessError(
                f"pods come and go, or jobs wait for answers, for {MOST_STEPS} steps though nothing happens"
            )
        await self._check_rest()

    async def _check_rest(self) -> None:
        """Nobody who decides it all again decides otherwise: not the operator, nor one that hears it in disorder."""
        self.checker.at_rest(self.operator)
        self.operator.doubt()
        await self._decides_nothing(self.operator, "deciding again")
        if self.server.aside or any(map(terminating, self.server.all(kinds.PODS))):
            return  # a successor gives terminating pods their time once more, and who is quarantined a try
        successor = Operator(self.api, METRICS, dice=self.dice)
        await self._decides_nothing(successor, "a successor that hears of all in another order")
        successor.leave()

    async def _decides_nothing(self, operator: Operator, who: str) -> None:
        operator.wire.writes.clear()
        await operator.run_pass()
        done = [(write.verb, write.pod["metadata"]["name"]) for write in operator.wire.writes]
        require(not done, f"at rest, {who} does {done}")
