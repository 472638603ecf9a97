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
from elastic_operator.memory import KeyedCache, LastSeen
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
        self._parsed: KeyedCache[int, Policy] = KeyedCache()
        """Each policy as it is stored, by its generation."""
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
        bodies = tuple(self._policies.values())
        policies = tuple(self._read(body) for body in bodies)
        self._parsed.drop_absent({policy.uid for policy in policies})
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
        for body, policy in zip(bodies, policies, strict=True):
            if policy.spec is not None and not policy.fault and not policy.invalid:
                self._good[policy.uid] = body.metadata.generation, policy.spec
        return Made(policies, namespaces, self.made.resolved if resolved == self.made.resolved else resolved)

    def _read(self, body: objects.CustomObject) -> Policy:
        meta = body.metadata
        fault = self._quarantine.fault(meta.uid, meta.generation)
        if fault is None:
            try:
                policy = self._parsed.get(meta.uid, meta.generation, policy_of, body)
                return self._stand_in(policy, meta.generation) if policy.invalid else policy
            except Exception as error:  # noqa: BLE001 - any error is handled as an error of this policy only
                fault = self._quarantine.quarantine("policy", meta.uid, meta.name, error, version=meta.generation)
        return self._stand_in(Policy(meta.uid, meta.name, _created(body), None, fault=fault.message), meta.generation)

    def _stand_in(self, policy: Policy, generation: int) -> Policy:
        """The policy with its last good spec; None if there is none, or the operator raised at that spec."""
        good = self._good.get(policy.uid)
        raised = good is not None and (good[0] == generation or good[1] is policy.spec)
        return replace(policy, spec=None if good is None or raised else good[1])

    def _without(self, policy: Policy, error: Exception) -> Policy:
        body = self._policies.get(policy.uid)
        assert body is not None, "the stores stay as they are during a refresh"
        version = body.metadata.generation
        fault = self._quarantine.quarantine("policy", policy.uid, policy.name, error, version=version)
        return self._stand_in(replace(policy, fault=fault.message), version)


def policy_of(body: objects.CustomObject) -> Policy:
    """A policy as stored, readable or not."""
    meta = body.metadata
    try:
        return Policy(meta.uid, meta.name, _created(body), parse_policy({"spec": body.spec.unpack()}))
    except InvalidSpecError as error:
        return Policy(meta.uid, meta.name, _created(body), None, f"{error}.")


def _created(body: objects.CustomObject) -> float:
    """The creation of the policy (epoch seconds)."""
    return convert.epoch(body.metadata.creation_timestamp or "")
