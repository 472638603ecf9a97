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
from elastic_operator.metrics.stats import PolicyStats
from elastic_operator.plan.planner import Planner
from elastic_operator.plan.policies.status import PolicyUsage
from elastic_operator.upkeep.upkeep import Upkeep, Writes

log = logging.getLogger(__name__)


class PolicyStatuses:
    """Keeps the statuses of all policies in line with the passes. `now` is the time on the API server's clock."""

    def __init__(
        self, session: Session, policies: Store[objects.CustomObject], planner: Planner, *, now: Callable[[], float]
    ) -> None:
        self._session, self._policies, self._planner, self._now = session, policies, planner, now
        self._upkeep = Upkeep("policy", "the status", self._due)
        self.run, self.pass_ended = self._upkeep.run, self._upkeep.notify
        """`run` writes until cancelled. After a pass, `pass_ended` has it look for due writes soon."""
        self._pruned_fields = PrunedFields(PLURAL)

    def all_stats(self) -> tuple[PolicyStats, ...]:
        """The policies with their numbers, as of the last pass."""
        bodies, found = {body.metadata.name: body for body in self._policies}, self._statuses()
        return tuple(_stats(name, found.get(name) or status_of(bodies[name])) for name in sorted(bodies))

    def _due(self) -> Writes:
        """The writes that are due."""
        kept, due = self._pruned_fields.without, dict[str, Callable[[], Awaitable[None]]]()
        bodies = {body.metadata.name: body for body in self._policies}
        self._upkeep.forget_deleted(bodies)
        for name, status in self._statuses().items():
            wanted = status.model_dump(mode="json", by_alias=True, exclude_none=True)
            if kept(wanted) != kept(bodies[name].status.unpack()):
                due[name] = partial(self._write, bodies[name], wanted)
        return due

    def _statuses(self) -> dict[str, PolicyStatus]:
        """The status of each policy (by name) whose present spec the last pass has seen. The status is made without
        awaiting, because the next pass changes the accounts that are read here.
        """
        found, last = dict[str, PolicyStatus](), self._planner.decided
        if last is None:
            return found
        try:
            overview = PolicyUsage(last.allocation.accounts, last.inputs.jobs, stopped=last.stopped)
        except Exception:
            log.exception("cannot compute the use of the policies' GPUs")
            return found
        for body in self._policies:
            name, generation = body.metadata.name, body.metadata.generation
            if last.policies.generations.get(body.metadata.uid) != generation:
                continue  # a later pass reads it
            problems = last.policies.problems.get(body.metadata.uid, ())
            try:
                found[name] = overview.status(name, generation, problems, before=status_of(body), now=self._now())
            except Exception:
                log.exception("cannot compute the status of a policy policy=%s", name)
        return found

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
