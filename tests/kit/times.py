"""The times of tests: a run records them in tests/times.json; a budget limits them, and they order the tests.

The recorded figures are seconds of one worker on the recording machine. A file's time includes set-up and clean-up. A
test's time does not, since the first test of a file would be charged for the cluster that all of them use. `make check`
judges the recorded times, not those of its own run, so that a slow machine changes no result.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[1] / "times.json"
GATE_MINUTES = 20
"""The limit of `make test` in minutes on two cores, with everything built."""
TEST_SECONDS = 60
"""The limit of one test of `make test`, in seconds."""
SHOWN = 10
TOLD_FROM_SECONDS = 1.0
"""Tests that take fewer seconds are recorded only in their file's sum."""


@dataclass(frozen=True, slots=True)
class Times:
    """The record: minutes of the whole run, seconds of each file and of each slow test."""

    minutes: float
    seconds: dict[str, float]
    slow: dict[str, float]

    def of_file(self, path: str) -> float:
        """Seconds of a file; 0 for a file without a record."""
        return self.seconds.get(path, 0.0)


def load(file: Path = FILE) -> Times:
    """The last record; an empty one if there is none."""
    if not file.exists():
        return Times(0.0, {}, {})
    data: dict[str, Any] = json.loads(file.read_text())
    files = data["files"]
    slow = {f"{path}::{test}": taken for path, each in files.items() for test, taken in each.get("slow", {}).items()}
    seconds = {path: each["seconds"] for path, each in files.items()}
    return Times(data["minutes"], seconds, slow)


class Recorder:
    """The plugin: sums the times of the reports, shows the slowest tests, and writes the record on request."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = time.monotonic()
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a set-up, a call or a clean-up."""
        self.seconds[report.nodeid] += report.duration
        if report.when == "call":
            self.calls[report.nodeid] = report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the sum and the slowest tests of a whole run."""
        if not self.config.getoption("--whole-tree"):
            return
        minutes = (time.monotonic() - self.started) / 60
        total = sum(self.seconds.values())
        terminalreporter.section("times")
        terminalreporter.write_line(
            f"{minutes:.1f} min on {os.cpu_count()} cores; {total:.0f} s of one worker; the slowest:"
        )
        for nodeid, taken in sorted(self.calls.items(), key=lambda item: -item[1])[:SHOWN]:
            terminalreporter.write_line(f"{taken:7.1f} s  {nodeid}")
        if self.config.getoption("--record-times"):
            FILE.write_text(json.dumps(record(self.seconds, self.calls, minutes=minutes), indent=1) + "\n")
            terminalreporter.write_line(f"recorded in {FILE.relative_to(self.config.rootpath)}")


def record(seconds: dict[str, float], calls: dict[str, float], *, minutes: float) -> dict[str, Any]:
    """The contents of the file: a sum for each test file, and its tests that take a second or more."""
    files: dict[str, dict[str, Any]] = {}
    for nodeid, taken in sorted(seconds.items()):
        path, _, test = nodeid.partition("::")
        entry = files.setdefault(path, {"seconds": 0.0, "tests": 0, "slow": {}})
        entry["seconds"] += taken
        entry["tests"] += 1
        if calls.get(nodeid, 0.0) >= TOLD_FROM_SECONDS:
            entry["slow"][test] = round(calls[nodeid], 1)
    for entry in files.values():
        entry["seconds"] = round(entry["seconds"], 1)
        if not entry["slow"]:
            del entry["slow"]
    return {"minutes": round(minutes, 1), "files": files}


def over_budget(times: Times) -> list[str]:
    """A sentence for each time over the budget."""
    found = [
        f"{nodeid} takes {taken:g} s of {TEST_SECONDS} that a test of `make test` may take: make it faster, or mark it"
        " extended if another test proves the same"
        for nodeid, taken in times.slow.items()
        if taken > TEST_SECONDS
    ]
    if times.minutes > GATE_MINUTES:
        found.append(f"`make test` takes {times.minutes:g} min of {GATE_MINUTES}: see the largest files of {FILE.name}")
    return found
