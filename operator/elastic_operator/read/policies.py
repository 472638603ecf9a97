"""Turns quota policies and namespaces of the stores into teams. The teams are made again only when one of these
changes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

from elastic_api.invalid import InvalidSpecError
from elastic_api.parse import parse_policy
from elastic_api.policy import PolicySpec
from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.memory import LastSeen
from elastic_operator.plan.facts.allocation_inputs import AllocationSettings
from elastic_operator.plan.facts.blame import culprits
from elastic_operator.plan.policies.resolve import Namespace, Policy, ResolvedPolicies, resolve
from elastic_operator.quarantine import Quarantine
from elastic_operator.read import convert

log = logging.getLogger(__name__)


class Made(NamedTuple):
    """The teams, and the policies and namespaces that they were made from."""

    policies: tuple[Policy, ...]
    namespaces: tuple[Namespace, ...]
    resolved: ResolvedPolicies


class Policies:
    """The teams at the last refresh, `made`; those of no policies before the first one.

    If a policy is unreadable (99), or causes an error in the operator (88), its last good spec counts. If only several
    policies together cause the error, all teams stay as they are.
    """

    def __init__(
        self,
        policies: Store[objects.CustomObject],
        namespaces: Store[objects.Namespace],
        settings: AllocationSettings,
        quarantine: Quarantine,
    ) -> None:
        self._policies, self._namespaces = policies, namespaces
        self._settings, self._quarantine = settings, quarantine
        self._last_seen: LastSeen[object] = LastSeen()
        self._good: dict[str, tuple[int, PolicySpec]] = {}
        """The last spec of each policy (uid) from which teams could be made, and its generation."""
        self.made = Made((), (), resolve((), (), settings))

    def refresh(self) -> ResolvedPolicies:
        """The teams now; the same object while they do not change."""
        seen = self._policies.revision, self._namespaces.revision, self._quarantine.revision()
        if self._last_seen.differs(seen):
            self.made = self._make()
            self._last_seen.changed(seen)
        return self.made.resolved

    def _make(self) -> Made:
        namespaces = tuple(Namespace(n.metadata.name, n.metadata.labels) for n in self._namespaces.values())
        policies = tuple(map(self._read, self._policies.values()))
        try:
            resolved = resolve(policies, namespaces, self._settings)
        except Exception as error:
            bad = culprits(policies, lambda part: resolve(part, namespaces, self._settings))
            if not bad and self._last_seen.value is None:
                raise
            if not bad:
                log.exception("no single policy is to blame for this: all teams stay as they are until the next change")
                self._quarantine.count("policy")
                return self.made
            policies = tuple(self._without(p, error) if p in bad else p for p in policies)
            resolved = resolve(policies, namespaces, self._settings)
        self._good = {policy.uid: self._good[policy.uid] for policy in policies if policy.uid in self._good}
        for policy in policies:
            if policy.spec is not None and not policy.fault and not policy.invalid:
                self._good[policy.uid] = policy.generation, policy.spec
        return Made(policies, namespaces, self.made.resolved if resolved == self.made.resolved else resolved)

    def _read(self, body: objects.CustomObject) -> Policy:
        meta = body.metadata
        fault = self._quarantine.fault(meta.uid, meta.generation)
        if fault is None:
            try:
                generation, spec = self._good.get(meta.uid, (None, None))
                policy = _policy(body, spec) if generation == meta.generation else policy_of(body)
                return self._stand_in(policy) if policy.invalid else policy
            except Exception as error:  # noqa: BLE001 - any error is handled as an error of this policy only
                fault = self._quarantine.quarantine("policy", meta.uid, meta.name, error, version=meta.generation)
        return self._stand_in(_policy(body, None, fault=fault.message))

    def _stand_in(self, policy: Policy) -> Policy:
        """The policy with its last good spec; None if there is none, or the operator raised at that spec."""
        good = self._good.get(policy.uid)
        raised = good is not None and (good[0] == policy.generation or good[1] is policy.spec)
        return replace(policy, spec=None if good is None or raised else good[1])

    def _without(self, policy: Policy, error: Exception) -> Policy:
        fault = self._quarantine.quarantine("policy", policy.uid, policy.name, error, version=policy.generation)
        return self._stand_in(replace(policy, fault=fault.message))


def policy_of(body: objects.CustomObject) -> Policy:
    """A policy as stored, readable or not."""
    try:
        return _policy(body, parse_policy({"spec": body.spec.unpack()}))
    except InvalidSpecError as error:
        return _policy(body, None, invalid=f"{error}.")


def _policy(body: objects.CustomObject, spec: PolicySpec | None, *, invalid: str = "", fault: str = "") -> Policy:
    meta = body.metadata
    created = convert.epoch(meta.creation_timestamp or "")
    return Policy(meta.uid, meta.name, created, spec, invalid, fault, meta.generation)
