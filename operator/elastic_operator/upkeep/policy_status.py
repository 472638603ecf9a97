"""Writes the result of the last pass into the status of each quota policy, in a task of its own.

A status is written when it has changed, at most once a second. It is only a report, so a failed write is tried again
later, and no pass waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pydantic import ValidationError

from elastic_api.policy import PLURAL, PolicyStatus
from elastic_operator.cluster import api_requests, objects
from elastic_operator.cluster.pruned_fields import PrunedFields
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.memory import LastSeen
from elastic_operator.metrics.stats import PolicyStats
from elastic_operator.plan.planner import PassDecisions, Planner
from elastic_operator.plan.policies.resolve import ResolvedPolicies
from elastic_operator.plan.policies.status import PolicyUsage
from elastic_operator.upkeep.upkeep import Upkeep, Writes

log = logging.getLogger(__name__)


class PolicyStatuses:
    """Keeps the statuses of all policies in line with the passes. `now` is the time on the API server's clock."""

    def __init__(
        self, session: Session, policies: Store[objects.CustomObject], planner: Planner, *, now: Callable[[], float]
    ) -> None:
        self._session, self._policies, self._planner, self._now = session, policies, planner, now
        self._generations: dict[str, int] = {}
        """The generation of each policy (uid) that the last pass read."""
        self._last_seen: LastSeen[tuple[ResolvedPolicies, int]] = LastSeen()
        self._upkeep = Upkeep("policy", "the status", self._due)
        self.run = self._upkeep.run
        """Writes until cancelled."""
        self._found: dict[str, PolicyStatus] = {}
        self._pruned_fields = PrunedFields(PLURAL)

    def all_stats(self) -> tuple[PolicyStats, ...]:
        """The policies with their numbers, as of the last pass."""
        metas = sorted((body.metadata for body in self._policies), key=lambda meta: meta.name)
        return tuple(_stats(meta.name, self._found[meta.uid]) for meta in metas if meta.uid in self._found)

    def pass_ended(self, decisions: PassDecisions) -> None:
        """Look for due writes soon, if the pass has changed anything. An unchanged result costs nothing."""
        if self._last_seen.changed((decisions.policies, self._policies.revision)) or decisions.is_new:
            self._generations = {body.metadata.uid: body.metadata.generation for body in self._policies}
            self._upkeep.notify()

    def _due(self) -> Writes:
        """The writes that are due. They are computed without awaiting, because the next pass changes the accounts that
        are read here.
        """
        last = self._planner.decided
        if last is None:
            return {}
        overview = PolicyUsage(last.allocation.accounts, last.inputs.jobs, stopped=last.stopped)
        kept = self._pruned_fields.without
        now, due, found = self._now(), dict[str, Callable[[], Awaitable[None]]](), dict[str, PolicyStatus]()
        for body in self._policies:
            uid, generation = body.metadata.uid, body.metadata.generation
            if self._generations.get(uid) != generation:
                found |= {uid: self._found[uid]} if uid in self._found else {}
                continue  # the last pass has not seen this spec; the next pass is due already
            name, problems = body.metadata.name, last.policies.problems.get(uid, ())
            try:
                status = overview.status(name, generation, problems, before=status_of(body), now=now)
            except Exception:
                log.exception("cannot compute the status of a policy policy=%s", name)
                continue  # the other policies get their statuses (88)
            found[uid] = status
            wanted = status.model_dump(mode="json", by_alias=True, exclude_none=True)
            if kept(wanted) != kept(body.status.unpack()):
                due[name] = partial(self._write, body, wanted)
        self._found = found
        self._upkeep.forget_deleted({body.metadata.name for body in self._policies})
        return due

    async def _write(self, policy: objects.CustomObject, status: dict[str, Any]) -> None:
        answer = await api_requests.patch_policy_status(self._session, policy, status)
        self._pruned_fields.compare(status, answer.get("status", {}))
        self._policies.observe(objects.decode(answer, objects.CustomObject))


def _stats(name: str, status: PolicyStatus) -> PolicyStats:
    flavors = {amounts.name: amounts.model_dump(exclude={"name"}, exclude_none=True) for amounts in status.flavors}
    return PolicyStats(name, flavors, {each.type: each.status == "True" for each in status.conditions})


def status_of(body: objects.CustomObject) -> PolicyStatus:
    """The policy's status; an unreadable one counts as none."""
    try:
        return PolicyStatus.model_validate(body.status.unpack())
    except ValidationError:
        return PolicyStatus()
