"""A cluster with an operator, and virtual time."""

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
from tests.simulate.operators import Operator
from tests.simulate.raising import MadeUpError, Raising
from tests.simulate.violation import RestlessError, require
from tests.simulate.virtual_clock import VirtualClock

MOST_ROUNDS = 60
"""Rounds of pass and machines after which nothing may change any more, as long as no time passes."""
MOST_STEPS = 80
"""Steps of time after which no pod may come or go any more, as long as nothing else happens."""
QUIET_SECONDS = 150.0
"""Longer than any delay of the operator but the waiting after pods that no scheduler could place."""
SHORTEST_STEP, LONGEST_STEP = 5.0, 60.0
METRICS = Metrics()


class ErrorLog(logging.Handler):
    """Keeps the first error that the operator logs, except for injected ones."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record if it is the first."""
        if not (record.exc_info and isinstance(record.exc_info[1], MadeUpError)):
            self.first = self.first or record


class World(Cluster):
    """The cluster and the operator of a history. Use it within `patch_time` of its clock."""

    def __init__(self, clock: VirtualClock, rng: Random, *, default_policy: Mapping[str, Any] | None = None) -> None:
        """`default_policy` is that setting of the operators; None for what it is where nobody sets it."""
        super().__init__(clock, rng)
        self.server.default_policy = default_policy or self.server.default_policy
        self.raising = Raising(self.server)
        self.operator = Operator(self.api, METRICS)
        self.checker = Checker(self.server, rng)
        self.wait = 0.0

    # -- time --------------------------------------------------------------------------------------------------------

    async def run_pass(self) -> None:
        """Run one pass and its writes, and check both."""
        self.operator.wire.pod_writes.clear()
        self.wait = await self.operator.run_pass()
        self.raising.heard(self.operator)
        self.checker.after_pass(self.operator)
        if self.operator.faults.left is not None:
            self._replace_operator()

    def _replace_operator(self) -> None:
        """Another operator leads. It knows all API objects, and nothing of its predecessor's memory."""
        self.operator.leave()
        self.operator, self.wait = Operator(self.api, METRICS, rng=self.rng), 0.0
        self.raising.forgotten()

    async def go_on(self, *, rounds: int) -> None:
        """Run so many steps of the machines, each with a pass after it, even if work remains."""
        for _ in range(rounds):
            self.machines.step()
            self.clock.passed += 1.0
            await self.run_pass()
        self.checker.look_away()

    async def settle(self) -> None:
        """Run passes and machines in turn until nothing changes. A round takes a second."""
        for _ in range(MOST_ROUNDS):
            before, leader = self.server.revision, self.operator
            await self.run_pass()
            self.machines.step()
            if self.machines.overtook:
                self.checker.look_away()
            if self.server.revision == before and self.operator is leader and not leader.reports_soon:
                break
            self.clock.passed += 1.0
        else:
            raise RestlessError(f"something changes in each of {MOST_ROUNDS} rounds")
        if self.operator.faults.retries(self.clock.passed):
            self.checker.look_away()
        else:
            self.checker.at_pause()

    async def advance(self, seconds: float) -> None:
        """Let time pass. The operator runs a pass when it asked for one."""
        end = self.clock.passed + seconds
        while self.clock.passed < end:
            step = min(max(self.wait, SHORTEST_STEP), LONGEST_STEP)
            self.clock.passed += min(step, max(0.5, end - self.clock.passed))
            await self.settle()

    async def come_to_rest(self) -> None:
        """Let time pass until no pod has come or gone for longer than any delay of the operator."""
        quiet_since, before = self.clock.passed, self.checker.changes
        for _ in range(MOST_STEPS):
            await self.advance(min(max(self.wait, SHORTEST_STEP), LONGEST_STEP))
            if self.checker.changes != before:
                quiet_since, before = self.clock.passed, self.checker.changes
            waits = self.operator.controller.reconciler.eviction_gate.awaiting_dry_runs  # (139)
            quiet = self.clock.passed - quiet_since >= QUIET_SECONDS and not waits
            if self.raising.tried_again() and quiet:
                break
        else:
            raise RestlessError(
                f"pods come and go, or jobs wait for answers, for {MOST_STEPS} steps though nothing happens"
            )
        await self._check_rest()

    async def _check_rest(self) -> None:
        """Check that a second decision changes nothing, also by a successor with another order of events."""
        self.checker.at_rest(self.operator)
        self.operator.doubt()
        await self._decides_nothing(self.operator, "deciding again")
        if self.server.aside or any(map(terminating, self.server.all(kinds.PODS))):
            return  # a successor gives terminating pods their time once more, and who is quarantined a try
        successor = Operator(self.api, METRICS, rng=self.rng)
        await self._decides_nothing(successor, "a successor that hears of all in another order")
        successor.leave()

    async def _decides_nothing(self, operator: Operator, who: str) -> None:
        operator.wire.pod_writes.clear()
        await operator.run_pass()
        done = [(write.verb, write.pod["metadata"]["name"]) for write in operator.wire.pod_writes]
        require(not done, f"at rest, {who} does {done}")
