"""The state that the quota demo observes: one team's training, the pods of all teams, and the status of the jobs.

A failed expectation ends the demo with the expected and the actual state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rich.console import Console

from demo.kube import DemoError, Kube, wait_for
from demo.lives import Step
from demo.timeline import LOOK_SECONDS, Timeline
from demo.witness import Witness
from elastic_api.job import GROUP, PLURAL, VERSION
from elastic_api.status import ConditionType, JobStatus

EXPECT_SECONDS = 240.0
"""The limit of each wait, far more than any of them takes."""
REPEAT_SECONDS = 20.0
SHOWN = (Step.WAITS, Step.NOMINATED, Step.BOUND, Step.EVICTED, Step.GONE)


class Way(StrEnum):
    """How the jobs of a demo train: a script under torchrun, the same in Elastic mode, or one with the library."""

    TORCHRUN = "Torchrun"
    ELASTIC = "Elastic"
    LIBRARY = "Library"


@dataclass(frozen=True, slots=True)
class Done:
    """An expectation that came true `seconds` after the wait began."""

    expected: str
    seconds: float


@dataclass
class Stage:
    """The cluster of the demo, with a clock. `quiet` are namespaces whose pods get no lines."""

    kube: Kube
    timeline: Timeline
    witness: Witness
    console: Console
    way: Way = Way.TORCHRUN
    quiet: frozenset[str] = frozenset()
    done: list[Done] = field(default_factory=list)

    def act(self, title: str) -> None:
        """Announce the next part of the demo."""
        self.console.rule(title, align="left")

    def say(self, event: str) -> None:
        """Print an action."""
        self.look()
        self.timeline.say(event, style="bold")

    def look(self) -> None:
        """Read once, and print all news in the order of time."""
        for sighting in self.witness.news():
            if sighting.step in SHOWN and sighting.life.namespace not in self.quiet:
                self.timeline.say(str(sighting), style="yellow", at=sighting.seconds)
        self.timeline.look()

    def expect(self, expected: str, holds: Callable[[], bool], *, seconds: float = EXPECT_SECONDS) -> None:
        """Wait until the expectation holds. Raises DemoError with the cluster's state after `seconds`."""
        self.look()
        self.timeline.say(f"waiting for: {expected}", style="italic")
        started = reported = time.monotonic()

        def looked() -> bool | None:
            nonlocal reported
            self.look()
            if time.monotonic() - reported > REPEAT_SECONDS:
                reported = time.monotonic()
                self.timeline.say(f"still waiting for: {expected}", style="dim")
            return holds() or None

        try:
            wait_for(expected, looked, seconds=seconds, pause=LOOK_SECONDS)
        except DemoError as error:
            raise DemoError(f"expected {expected}; {error} in vain. Instead:\n{self.standing()}") from error
        self.done.append(Done(expected, time.monotonic() - started))

    def check(self, expected: str, holds: bool, instead: object) -> None:
        """Raise DemoError unless the expectation holds now."""
        if not holds:
            raise DemoError(f"expected {expected}; instead: {instead}\n{self.standing()}")
        self.done.append(Done(expected, 0.0))

    def expect_training(self, what: str, *, world_size: int, more_epochs: int) -> None:
        """Wait until the job of the timeline has trained `more_epochs` epochs on `world_size` processes."""
        since = self.timeline.last_epoch_time()
        self.expect(what, lambda: self.timeline.trained(world_size=world_size, since=since) >= more_epochs)

    def status(self, namespace: str, job: str) -> JobStatus:
        """The job's status; an empty one before it has one."""
        found = self.timeline.custom.get_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, job)
        return JobStatus.model_validate(found.get("status") or {})

    def limited_by(self, namespace: str, job: str) -> tuple[str, str]:
        """The column LIMITED BY, and its sentence."""
        condition = self.status(namespace, job).condition(ConditionType.FULL_SIZE)
        return (condition.reason, condition.message) if condition else ("", "")

    def events(self, namespace: str, reason: str) -> list[tuple[str, str]]:
        """The namespace's events of a reason: their objects and messages."""
        selector = f"--field-selector=reason={reason}"
        listed: dict[str, Any] = json.loads(
            self.kube.kubectl("get", "events.events.k8s.io", "-n", namespace, selector, "-o", "json")
        )
        return [(event["regarding"]["name"], event.get("note", "")) for event in listed["items"]]

    def standing(self) -> str:
        """The state that a user would look at first."""
        looks = (
            ("get", "gpuquotapolicies"),
            ("get", PLURAL, "--all-namespaces"),
            ("get", "pods", "--all-namespaces", "-o", "wide"),
            ("get", "nodes"),
        )
        return "\n".join(self.kube.kubectl(*words) for words in looks)
