"""When something last changed that the operator did not do: what it does again without that goes in a circle (143).

That is: a job comes, goes, is edited or ends; pods are lost or fail; a node comes, goes, opens or closes; a policy is
edited; plain pods with GPUs come, go or end; the API server takes pods that it would not take before, or no more.
Kept in memory: a new leader begins with its first look.
"""

from __future__ import annotations

from collections.abc import Mapping

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.snapshot import Resources
from elastic_operator.plan.policies.resolve import Resolved
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.nodes import Openness

_UNPLANNED = ("restarts", "totalFailures", "completionTime")
"""Fields of a status that change with what happens to a job."""


class Outside:
    """Told of changes of jobs by their store, of all else at each look."""

    def __init__(self, jobs: Store[objects.CustomObject], ledger: Ledger) -> None:
        self._ledger = ledger
        self._changed = True
        self._seen: tuple[Openness, Resolved, Mapping[str, Resources]] | None = None
        self.since = 0.0
        """When that was, at the last look (epoch seconds)."""
        jobs.subscribe(self._job_changed)

    def look(self, openness: Openness, policies: Resolved, now: float) -> None:
        """Take in what has changed by now."""
        seen = openness, policies, self._ledger.plain_gpus()
        if self._changed or seen != self._seen:
            self.since, self._changed = now, False
        self._seen = seen

    def answered(self) -> None:
        """The API server's answer about pods of some job (139) is another one than before."""
        self._changed = True

    def _job_changed(self, old: objects.CustomObject | None, new: objects.CustomObject | None) -> None:
        is_same = old is not None and new is not None and old.says_the_same(new) and _ended_alike(old, new)
        self._changed = self._changed or not is_same


def _ended_alike(old: objects.CustomObject, new: objects.CustomObject) -> bool:
    """Whether no pod of the job was lost or failed in between, and the job has not ended."""
    return all(old.status.get(name) == new.status.get(name) for name in _UNPLANNED)
