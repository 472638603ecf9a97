"""The virtual clock of a history, for the operator's modules that read the time."""

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


class VirtualClock:
    """Replaces the module `time`: a monotonic clock that starts at 0 with the history, and a wall clock."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        """Seconds since the history began."""
        return self.passed

    def time(self) -> float:
        """Epoch seconds."""
        return START + self.passed

    def text(self, ahead: float = 0.0) -> str:
        """The time in the API's format, `ahead` seconds from now."""
        return datetime.fromtimestamp(int(self.time() + ahead), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @contextmanager
    def patch_time(self, rng: Random) -> Iterator[None]:
        """Patch the operator's modules: they read this clock, and draw the jitter of their back-offs from `rng`."""
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
        jitter = patch.object(backoff, "random", rng)
        for one in (*clocks, jitter):
            one.start()
        try:
            yield
        finally:
            for one in (*clocks, jitter):
                one.stop()
