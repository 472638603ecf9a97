"""`elastic-operator simulate`: which jobs would start, grow, shrink or stop if jobs and policies were changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from elastic_operator.tools.apply_changes import ChangedSnapshot
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot
from elastic_operator.tools.decisions import JobDecision, decide
from elastic_operator.tools.table import Row, aligned

HEAD = ("JOB", "TEAM", "EFFECT", "PODS", "GPUS", "LIMITED BY")
EFFECTS = ("starts", "grows", "shrinks", "stops")
SAME = "same"
GONE = "It is deleted."


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect on one job: its pods and GPUs without the changes and with them, and why not more."""

    namespace: str
    name: str
    team: str
    flavor: str
    effect: str
    before: int
    after: int
    gpus_before: int
    gpus_after: int
    limit: str
    message: str


def effects(snapshot: ClusterSnapshot, changed: ChangedSnapshot) -> list[Effect]:
    """All jobs of either snapshot, by namespace and name."""
    before = {d.job.key: d for d in decide(snapshot).jobs}
    after = {d.job.key: d for d in decide(changed.snapshot).jobs}
    return [
        _effect(before.get(key), after.get(key)) for key in sorted({*before, *after}, key=lambda key: key.split("/"))
    ]


def as_data(snapshot: ClusterSnapshot, changed: ChangedSnapshot) -> dict[str, Any]:
    """The effects as JSON's own types."""
    found = effects(snapshot, changed)
    return {
        "kind": "Effects",
        "version": 1,
        "jobs": msgspec.to_builtins(found),
        "counts": _counts(found),
        "notes": list(changed.notes),
    }


def as_text(snapshot: ClusterSnapshot, changed: ChangedSnapshot) -> str:
    """A table of the jobs with another result, then how many there are of each kind, then the notes."""
    found = effects(snapshot, changed)
    rows = [_row(effect) for effect in found if effect.effect != SAME]
    table = aligned(HEAD, rows) + "\n" if rows else ""
    counted = ", ".join(f"{number} {effect}" for effect, number in _counts(found).items())
    return table + f"{counted}\n" + "".join(f"note: {note}\n" for note in changed.notes)


def _effect(before: JobDecision | None, after: JobDecision | None) -> Effect:
    shown = after or before
    assert shown is not None, "a job is in one of the two"
    pods = (len(before.pods) if before else 0, len(after.pods) if after else 0)
    return Effect(
        namespace=shown.job.namespace,
        name=shown.job.name,
        team=shown.team,
        flavor=shown.demand.shape.flavor if shown.demand else "",
        effect=_kind(*pods),
        before=pods[0],
        after=pods[1],
        gpus_before=before.gpus(before.pods) if before else 0,
        gpus_after=after.gpus(after.pods) if after else 0,
        limit=after.limit if after else "",
        message=after.message if after else GONE,
    )


def _kind(before: int, after: int) -> str:
    if before == after:
        return SAME
    if not before or not after:
        return "starts" if after else "stops"
    return "grows" if after > before else "shrinks"


def _counts(found: list[Effect]) -> dict[str, int]:
    counted = Counter(effect.effect for effect in found)
    return {kind: counted[kind] for kind in (*EFFECTS, SAME)}


def _row(e: Effect) -> Row:
    pods, gpus = f"{e.before} -> {e.after}", f"{e.gpus_before} -> {e.gpus_after}"
    return Row((f"{e.namespace}/{e.name}", e.team, e.effect, pods, gpus, e.limit), (e.message,) if e.message else ())
