"""The preemptors of evicted pods, by the histories in the jobs' statuses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from benchmarks.live.place import Body

EVICTED = re.compile(r"(\d+) pods? (?:is|are) evicted for (.+), which (?:is|are|comes?) ")


def evicted_for_others(jobs: Iterable[Body], *, since: float, owner: str) -> int:
    """The pods that were evicted since then (epoch seconds), and for no pod of the namespace `owner`.

    Whole jobs end for a gang of whole nodes, and then get their minimum back from jobs of their own teams. A pod that
    was evicted for both counts as the owner's. A history names the first preemptors only, in alphabetical order.
    """
    changes = (change for job in jobs for change in job.get("status", {}).get("history", []))
    late = (change["message"] for change in changes if datetime.fromisoformat(change["time"]).timestamp() >= int(since))
    found = (match for message in late if (match := EVICTED.search(message)))
    return sum(int(match[1]) for match in found if not _names(match[2], owner))


def _names(preemptors: str, owner: str) -> bool:
    return any(preemptor.startswith(f"{owner}/") for preemptor in preemptors.split(", "))
