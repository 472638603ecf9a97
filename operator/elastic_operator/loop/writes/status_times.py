"""Decides when a job's status is written: at once, a moment later together with further reports about its pods, or, if
only its messages differ, some seconds later.
"""

from __future__ import annotations

import time
from collections.abc import Set
from dataclasses import dataclass
from math import inf
from typing import Any

from elastic_api.status import ConditionType, Phase
from elastic_operator.cluster import objects
from elastic_operator.cluster.pruned_fields import PrunedFields
from elastic_operator.memory import drop_absent
from elastic_operator.plan.facts.decisions import Plan

MESSAGE_SECONDS = 5.0
"""The least time between two writes of a status whose messages alone differ, or of a job in back-off (24)."""
REPORT_SECONDS = 0.8
"""If only reports about pods are new in a status, its write waits this long for further reports, because pods start and
end one by one (151).
"""
_REPORT_FIELDS = frozenset(
    (
        "readyReplicas",
        "worldSize",
        "gpus",
        "podsNotListed",
        "activeSeconds",
        "activeSince",
        "runningSince",
        "lastResizeTime",
        "training",
        "queue",
        "conditions",
    )
)
"""Fields of a status that only report. A decision of the planner from some of them may be as late as the report."""


@dataclass(slots=True)
class _Times:
    """The times of one job's status (monotonic)."""

    written: float = 0.0
    behind_since: float | None = None
    """When the status began to lag behind the state of the job's pods; None if it does not."""
    may_write_alone_at: float = -inf
    """When the status may be written again alone, without other writes of the plan."""


class StatusTimes:
    """The times of statuses, by the uid of the job. `pruned_fields` are those of jobs' statuses."""

    def __init__(self, pruned_fields: PrunedFields) -> None:
        self._pruned_fields = pruned_fields
        self._known: dict[str, _Times] = {}

    def forget_deleted(self, present: Set[str]) -> None:
        drop_absent(present, self._known)

    def write_delay(self, body: objects.CustomObject, plan: Plan) -> float:
        """Seconds for which the plan's status can wait; 0 if it must be written now, infinity if it is written.

        Messages mention free GPUs elsewhere, so they change with every pod of the cluster. If only they are new, the
        status is not written more often than every few seconds (24).
        """
        known, now = self._of(body.metadata.uid), time.monotonic()
        wanted = self._pruned_fields.without(plan.status.model_dump(mode="json", by_alias=True, exclude_none=True))
        stored = self._pruned_fields.without(body.status.unpack())
        if wanted == stored:
            known.behind_since = None
            return inf
        if plan.write_status_first or plan.events or decisive(wanted) != decisive(stored):
            return 0.0
        if without_messages(wanted) == without_messages(stored):
            return known.written + MESSAGE_SECONDS - now
        if _phase(wanted) == Phase.RUNNING != _phase(stored):
            return 0.0
        if known.behind_since is None:
            known.behind_since = now
        return known.behind_since + REPORT_SECONDS - now

    def note_written(self, uid: str, *, creates: bool) -> None:
        """Note that the status is written now. If the plan creates pods, the status is written again soon, because the
        reasons why new pods wait are known only later.
        """
        soon = MESSAGE_SECONDS - REPORT_SECONDS if creates else 0.0
        known = self._of(uid)
        known.written, known.behind_since = time.monotonic() - soon, None

    def status_only_delay(self, uid: str) -> float:
        """Seconds for which the status may not be written without the other writes of the plan; 0 if it may."""
        return max(0.0, self._of(uid).may_write_alone_at - time.monotonic())

    def note_status_only(self, uid: str, *, until: float) -> None:
        """The status is written alone now, or this has failed. No such write is made until then (monotonic)."""
        known = self._of(uid)
        known.may_write_alone_at = max(known.may_write_alone_at, until)

    def _of(self, uid: str) -> _Times:
        return self._known.setdefault(uid, _Times())


def without_messages(status: dict[str, Any]) -> dict[str, Any]:
    """A status without the texts of its conditions."""
    conditions = [{**condition, "message": ""} for condition in status.get("conditions", [])]
    return {**status, "conditions": conditions}


def decisive(status: dict[str, Any]) -> dict[str, Any]:
    """The part of a status that must be written at once, because decisions depend on it: sizes, history, live pods."""
    pods = [pod.get("name") for pod in status.get("pods", []) if pod.get("phase") in ("Pending", "Running")]
    return {**{key: value for key, value in status.items() if key not in _REPORT_FIELDS}, "pods": pods}


def _phase(status: dict[str, Any]) -> str:
    ready = (each for each in status.get("conditions", []) if each.get("type") == ConditionType.READY)
    return next((str(condition.get("reason")) for condition in ready), "")
