"""The loads: a training's memory, the work of a step, and the interval of saves. Each is a row of the table."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.rescale.steps import EPOCH_STEPS

STEP_SECONDS = 0.05
"""The least time of a step in toy.py, so that minutes are never shorter than their name."""


@dataclass(frozen=True, slots=True)
class Load:
    """`megabytes` of state. Without `save_minutes` the plain script saves each epoch, and the library's never.

    `step_seconds` is how long the scripts sleep in a step that is not `busy`.
    """

    name: str
    megabytes: int = 0
    save_minutes: float = 0.0
    busy: bool = False
    step_seconds: float = STEP_SECONDS

    @property
    def arguments(self) -> list[str]:
        """The scripts' options: see toy.py."""
        epochs = max(1, round(self.save_minutes * 60 / self.step_seconds / EPOCH_STEPS))
        return [
            *(["--busy"] if self.busy else []),
            *(["--megabytes", str(self.megabytes)] if self.megabytes else []),
            *(["--save-every", str(epochs)] if self.save_minutes else []),
            *(["--step-seconds", str(self.step_seconds)] if self.step_seconds != STEP_SECONDS else []),
        ]

    @property
    def title(self) -> str:
        """The load in words."""
        asleep = f"steps of {1000 * self.step_seconds:.0f} ms, mostly asleep"
        pace = "steps that compute all the time" if self.busy else asleep
        state = f", a state of {self.megabytes} MB" if self.megabytes else ""
        return f"{pace}{state}" + (f", saved every {self.save_minutes:g} min" if self.save_minutes else "")


SMALL = Load("small")


def loads(*, save_minutes: float) -> dict[str, Load]:
    """All loads by name. A large state is saved every few minutes, as users do it."""
    large = [Load(name, size, save_minutes) for name, size in (("100MB", 100), ("1GB", 1000))]
    return {load.name: load for load in (SMALL, Load("cpu_bound", busy=True), *large)}
