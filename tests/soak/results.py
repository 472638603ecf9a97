"""What a soak of one seed came to: kept as JSON, so that a report can be made of runs done apart, and as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from devcluster import cache
from tests.soak.edits import JOB, POLICY, TURN
from tests.soak.faults import COSTLY, FAULT
from tests.soak.records import Change, Verdict
from tests.soak.tenant import HOSTILE
from tests.soak.watch import Sample
from tests.soak.weight import Flatness, Weight

KEPT = "soak"
COSTS = (
    "fault",
    "times",
    "may cost a training",
    "new groups until the next fault",
    "steps done again",
    "longest pause",
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something was done, and undone: in seconds after the begin."""

    seconds: float
    ended: float
    sort: str
    name: str
    told: str


@dataclass(slots=True)
class Result:
    """All of a run. `rests` is how often the cluster came to rest and was judged, `wrong` what broke."""

    seed: int
    minutes: int
    began: float = 0.0
    """On the monotonic clock; the trainings' steps are told by the same."""
    rests: int = 0
    events: list[Event] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    trainings: dict[str, Verdict] = field(default_factory=dict)
    flatness: Flatness | None = None
    wrong: list[str] = field(default_factory=list)

    def of(self, sort: str) -> list[Event]:
        """The events of that sort."""
        return [event for event in self.events if event.sort == sort]

    def least_alive(self) -> int:
        """The fewest jobs that were alive at any look."""
        return min((sample.alive for sample in self.samples), default=0)

    def changes_in(self, event: Event) -> list[Change]:
        """The trainings' changes of group from the begin of an event to the next one's of its sort."""
        later = (one.seconds for one in self.of(event.sort) if one.seconds > event.seconds)
        begin, end = self.began + event.seconds, self.began + next(later, float("inf"))
        return [c for verdict in self.trainings.values() for c in verdict.changes if begin <= c.time < end]

    def save(self) -> Path:
        """The result of the seed's last run, in the cache."""
        file = _folder() / f"seed-{self.seed}.json"
        file.write_text(json.dumps(asdict(self)))
        return file


def _folder() -> Path:
    folder = cache.root() / KEPT
    folder.mkdir(exist_ok=True)
    return folder


def kept(seeds: Iterable[int]) -> list[Result]:
    """The last results of these seeds, of those that have one."""
    files = (_folder() / f"seed-{seed}.json" for seed in seeds)
    return [load(json.loads(file.read_text())) for file in files if file.exists()]


def load(kept_as: dict[str, Any]) -> Result:
    """A result from what `save` wrote."""
    flatness = kept_as.pop("flatness")
    return Result(
        **{
            **kept_as,
            "events": [Event(**event) for event in kept_as["events"]],
            "samples": [Sample(**sample) for sample in kept_as["samples"]],
            "weights": [Weight(**weight) for weight in kept_as["weights"]],
            "trainings": {name: _verdict(**verdict) for name, verdict in kept_as["trainings"].items()},
            "flatness": Flatness(**{**flatness, "wrong": tuple(flatness["wrong"])}) if flatness else None,
        }
    )


def _verdict(*, changes: Sequence[dict[str, Any]], wrong: Iterable[str], **fields: Any) -> Verdict:
    found = (Change(**{**one, "before": tuple(one["before"]), "after": tuple(one["after"])}) for one in changes)
    return Verdict(changes=tuple(found), wrong=tuple(wrong), **fields)


def figures(result: Result) -> list[tuple[str, str]]:
    """The figures of a run, each with its name; the same for the table and for the page."""
    flat = result.flatness or Flatness(0, 0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0, ())
    trained = list(result.trainings.values())
    return [
        ("minutes", str(result.minutes)),
        ("faults, and their kinds", f"{len(result.of(FAULT))}, {len({e.name for e in result.of(FAULT)})}"),
        ("policy edits, job edits", f"{len(result.of(POLICY))}, {len(result.of(JOB))}"),
        ("jobs that ended or were deleted", str(len(result.of(TURN)))),
        ("acts of the hostile team", str(len(result.of(HOSTILE)))),
        ("fewest jobs alive at any moment", str(result.least_alive())),
        ("came to rest and judged", str(result.rests)),
        ("epochs trained", " + ".join(str(v.epochs) for v in trained)),
        ("changes of the group", " + ".join(str(len(v.changes)) for v in trained)),
        ("of these without any loss", " + ".join(str(sum(not c.lost for c in v.changes)) for v in trained)),
        ("steps done again, all after faults", " + ".join(str(v.lost) for v in trained)),
        ("longest standstill of training", " / ".join(f"{v.longest_pause_seconds:.0f} s" for v in trained)),
        ("processes of the operator, long stretches in one role", f"{flat.processes}, {flat.long_lived}"),
        ("memory in the first half, in the second", f"{flat.first_megabytes:.0f} MB, {flat.last_megabytes:.0f} MB"),
        ("most growth of a process in such a stretch", f"{flat.growth_megabytes:.1f} MB"),
        ("open files in the first half, in the second", f"{flat.first_files}, {flat.last_files}"),
        ("what broke", str(len(result.wrong)) if result.wrong else "nothing"),
    ]


def costs(found: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """What each kind of fault cost over all of these runs, under COSTS."""
    for name in sorted({event.name for result in found for event in result.of(FAULT)}):
        events = [(result, event) for result in found for event in result.of(FAULT) if event.name == name]
        changes = [change for result, event in events for change in result.changes_in(event)]
        pause = max((change.pause_seconds for change in changes), default=0.0)
        may = "the work since the last checkpoint" if name in COSTLY else "nothing"
        counted = (len(events), may, len(changes), sum(change.lost for change in changes))
        yield name, *map(str, counted), f"{pause:.1f} s"


def tables(result: Result) -> list[Table]:
    """The figures, and what each kind of fault cost."""
    summary, by_kind = Table("seed", str(result.seed), title="soak"), Table(*COSTS, title="faults")
    for figure in figures(result):
        summary.add_row(*figure)
    for row in costs([result]):
        by_kind.add_row(*row)
    return [summary, by_kind]
