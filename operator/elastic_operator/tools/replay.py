"""`elastic-operator replay`: every decision that follows from a snapshot, with its reason."""

from __future__ import annotations

from typing import Any

import msgspec

from elastic_operator.plan.facts.decisions import Nomination
from elastic_operator.plan.facts.snapshot import Snapshot
from elastic_operator.tools.decisions import Decision, decide, in_words
from elastic_operator.tools.table import Row, aligned

HEAD = ("JOB", "TEAM", "FLAVOR", "PODS", "GPUS", "LIMITED BY")


def as_data(snapshot: Snapshot) -> dict[str, Any]:
    """The decisions as JSON's own types."""
    return {"kind": "Decisions", "version": 1, "now": snapshot.now, **msgspec.to_builtins(decide(snapshot))}


def as_text(snapshot: Snapshot) -> str:
    """The decisions as a table, with the reason and the pods concerned below each job."""
    outcome = decide(snapshot)
    table = aligned(HEAD, [_row(decision) for decision in outcome.jobs])
    return table + "".join(f"{_reclaim(snapshot, reclaim)}\n" for reclaim in outcome.reclaims)


def _reclaim(snapshot: Snapshot, reclaim: Nomination) -> str:
    pods = {m.uid: f"{j.namespace}/{j.name} {m.role} {m.index}" for j in snapshot.jobs for m in j.members}
    victims = ", ".join(pods[uid] for uid in reclaim.victims)
    place = f"reclaim: pod {reclaim.namespace}/{reclaim.name} has a place on {reclaim.node}"
    return f"{place} when these are gone: {victims}" if victims else place


def _row(d: Decision) -> Row:
    moves = (("keep", d.keep), ("release", d.release), ("create", d.create))
    lines = [f"{what}: {in_words(pods)}" for what, pods in moves if pods]
    lines += [f"released for: {', '.join(d.released_for)}"] if d.released_for else []
    cells = (d.key, d.team, d.flavor, _change(d.before, d.after), _change(d.gpus_before, d.gpus_after), d.limit)
    return Row(cells, (d.message, *lines) if d.message else tuple(lines))


def _change(before: int, after: int) -> str:
    return f"{before} -> {after}" if before != after else str(after)
