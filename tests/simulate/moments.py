"""Time that passes when a history says so, for the modules of the operator that look at a clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from random import Random
from unittest.mock import patch

from elastic_operator import quarantine
from elastic_operator.cluster import clock as server_clock
from elastic_operator.cluster import events
from elastic_operator.loop import controller, reason_messages, reconciler
from elastic_operator.loop.reclaim import dry_run_answers, dry_runs, eviction_gate, eviction_limiter
from elastic_operator.loop.writes import dispatch, status_times
from elastic_operator.loop.writes import failed_writes as backoff
from tests.kit.virtual_time import START


class Moments:
    """Stands in for the module `time`: seconds since the history began, and the wall clock that goes with it."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        """Seconds since the history began."""
        return self.passed

    def time(self) -> float:
        """Epoch seconds."""
        return START + self.passed

    def text(self, ahead: float = 0.0) -> str:
        """Now, or so many seconds later, as the API writes times."""
        return datetime.fromtimestamp(int(self.time() + ahead), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @contextmanager
    def rule(self, dice: Random) -> Iterator[None]:
        """The loop's modules see this time, and draw the jitter of their back-offs from `dice`."""
        clocks = [
            patch.object(module, "time", self)
            for module in (
                server_clock,
                events,
                quarantine,
                controller,
                dispatch,
                eviction_gate,
                eviction_limiter,
                reconciler,
                status_times,
                dry_run_answers,
                dry_runs,
                reason_messages,
            )
        ]
        jitter = patch.object(backoff, "random", dice)
        for one in (*clocks, jitter):
            one.start()
        try:
            yield
        finally:
            for one in (*clocks, jitter):
                one.stop()
