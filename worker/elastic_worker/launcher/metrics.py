"""The page /metrics: the numbers of /status in Prometheus' text format, and sums over all changes seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

PREFIX = "elastic_worker_"


class Totals:
    """Sums over changes of size since this process started. Each change is counted once; a status lists the newest."""

    def __init__(self) -> None:
        self.changes: dict[str, int] = {}
        """How many changes there were, by their reason."""
        self.pauses = 0
        self.pause_seconds = 0.0
        self.lost_steps = 0
        self._counted: dict[tuple[int, int], set[str]] = {}

    def add(self, status: Mapping[str, Any]) -> None:
        """Count the new changes of a status. A change's pause and lost steps may become known later than the change."""
        epoch = int(status.get("epoch") or 0)
        for change in status.get("changes") or ():
            counted = self._counted.setdefault((epoch, int(change["generation"])), set())
            new = {key for key in ("reason", "pauseSeconds", "lostSteps") if change.get(key) is not None} - counted
            counted |= new
            if "reason" in new:
                reason = str(change["reason"])
                self.changes[reason] = self.changes.get(reason, 0) + 1
            if "pauseSeconds" in new:
                self.pauses += 1
                self.pause_seconds += float(change["pauseSeconds"])
            if "lostSteps" in new:
                self.lost_steps += int(change["lostSteps"])


def render(status: Mapping[str, Any], totals: Totals | None = None) -> str:
    """The page as text. Without `totals` it sums over the changes that the status lists."""
    totals = totals or Totals()
    totals.add(status)
    return "".join(line + "\n" for line in [*_of_now(status), *_of_changes(totals)])


def _of_now(status: Mapping[str, Any]) -> Iterator[str]:
    training = status.get("training") or {}
    yield from _metric("generation", "gauge", "Number of the current group of processes.", status.get("generation"))
    yield from _metric("master_epoch", "gauge", "The number of this master pod of the job.", status.get("epoch"))
    yield from _metric("members", "gauge", "Pods in the group.", len(status.get("members") or ()))
    yield from _metric("world_size", "gauge", "Training processes in the group.", status.get("worldSize"))
    yield from _metric("failures", "gauge", "Failures in a row without progress.", status.get("failures"))
    yield from _metric("steps_total", "counter", "Optimizer steps of the job.", training.get("step"))
    yield from _metric(
        "checkpoint_step", "gauge", "Step of the last complete checkpoint.", training.get("lastCheckpointStep")
    )
    yield from _of_library(training)
    yield from _metric("checkpoints_total", "counter", "Complete checkpoints seen.", status.get("checkpoints"))
    yield from _metric("warm", "gauge", "1 while the pod can start processes at once.", _flag(status.get("warm")))
    if status.get("state"):
        yield from _head("state", "gauge", "1 for the state that the job is in.")
        yield _sample("state", 1, state=str(status["state"]))


def _of_library(training: Mapping[str, Any]) -> Iterator[str]:
    """Metrics of scripts that use the library. Samples may become fewer, as some are lost with a step."""
    yield from _metric("epoch", "gauge", "Completed passes over the data.", training.get("epoch"))
    yield from _metric("samples_seen", "gauge", "Samples that the training has seen.", training.get("samplesSeen"))
    yield from _metric("loss", "gauge", "The loss that the script last reported.", training.get("loss"))
    goodput = training.get("goodput")
    if goodput:
        about = "The share of this process's time spent in steps that counted, 0 to 1."
        yield from _metric("goodput_ratio", "gauge", about, goodput["share"])
        yield from _head("time_seconds_total", "counter", "Time of this training process, by its use.")
        for part, seconds in goodput["seconds"].items():
            yield _sample("time_seconds_total", seconds, part=part)


def _of_changes(totals: Totals) -> Iterator[str]:
    yield from _head("changes_total", "counter", "Changes of the group, by reason.")
    for reason, count in sorted(totals.changes.items()):
        yield _sample("changes_total", count, reason=reason)
    yield from _head("pause_seconds", "summary", "Time without a step, per change of the group.")
    yield _sample("pause_seconds_sum", round(totals.pause_seconds, 4))
    yield _sample("pause_seconds_count", totals.pauses)
    yield from _metric("lost_steps_total", "counter", "Steps that the job repeated after changes.", totals.lost_steps)


def _flag(value: Any) -> int | None:
    return None if value is None else int(bool(value))


def _metric(name: str, kind: str, about: str, value: float | None) -> Iterator[str]:
    """A metric without labels; nothing if its value is not known."""
    if value is not None:
        yield from _head(name, kind, about)
        yield _sample(name, value)


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {about}"
    yield f"# TYPE {PREFIX}{name} {kind}"


def _sample(name: str, value: float, **labels: str) -> str:
    shown = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{PREFIX}{name}{{{shown}}} {value}" if shown else f"{PREFIX}{name} {value}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
