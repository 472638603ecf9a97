"""Finds the time of the last external change: a change that the operator did not make. If a job's size changes again
and again without an external change, the operator's decisions go in a circle (143).

External changes are: a job is created, deleted, edited or ends; pods are lost or fail; a node is added, removed, opened
or closed; a policy is edited; plain pods with GPUs are created, deleted or end; the API server begins or ceases to
accept pods. The time is in memory only: a new leader begins with the time of its first refresh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.memory import LastSeen
from elastic_operator.plan.facts.node import Resources
from elastic_operator.plan.policies.resolve import ResolvedPolicies
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.nodes import NodeAvailability

_UNPLANNED = ("restarts", "totalFailures", "completionTime")
"""Fields of a status that change with events that the operator did not plan."""


class ExternalChanges:
    """Listens to the store of jobs, and finds all other changes at each refresh."""

    def __init__(self, jobs: Store[objects.CustomObject], ledger: Ledger) -> None:
        self._ledger = ledger
        self.noted = asyncio.Event()
        """Set from a change of a job, or a noted one, to the next refresh."""
        self.noted.set()
        self._last_seen: LastSeen[tuple[NodeAvailability, object, Mapping[str, Resources]]] = LastSeen()
        self.since = 0.0
        """The time of the last change, at the last refresh (epoch seconds)."""
        self.close = jobs.subscribe(self._job_changed)
        """Ends the subscription, because the store lives longer than this leader."""

    def refresh(self, availability: NodeAvailability, policies: ResolvedPolicies, now: float) -> None:
        """Find the changes since the last refresh."""
        differs = self._last_seen.changed((availability, policies.in_effect, self._ledger.plain_gpus()))
        if self.noted.is_set() or differs:
            self.since = now
            self.noted.clear()

    def note_change(self) -> None:
        """Note a change that no refresh sees: another answer of the API server about a job's pods (139), or any change
        that this process has missed while it stood by.
        """
        self.noted.set()

    def _job_changed(self, old: objects.CustomObject | None, new: objects.CustomObject | None) -> None:
        if old is not None and new is not None and old.has_same_content(new):
            previous, present = old.status.unpack(), new.status.unpack()
            if all(previous.get(name) == present.get(name) for name in _UNPLANNED):
                return
        self.noted.set()
