"""Turns quota policies and namespaces of the stores into teams. The teams are made again only when one of these
changes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from elastic_api.invalid import InvalidSpecError
from elastic_api.parse import parse_policy
from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.memory import KeyedCache, SingleCache
from elastic_operator.plan.facts.blame import culprits
from elastic_operator.plan.policies.resolve import Namespace, Policy, ResolvedPolicies, resolve
from elastic_operator.quarantine import Quarantine
from elastic_operator.read import convert

log = logging.getLogger(__name__)


class Policies:
    """The teams at the last refresh, `resolved`; `flavors` are the names of the flavors in the settings.

    If a policy is unreadable (99), or causes an error in the operator (88), its last good spec counts. If only several
    policies together cause the error, all teams stay as they are.
    """

    def __init__(
        self,
        policies: Store[objects.CustomObject],
        namespaces: Store[objects.Namespace],
        *,
        flavors: Collection[str],
        quarantine: Quarantine,
    ) -> None:
        self._policies, self._namespaces = policies, namespaces
        self._flavors, self._quarantine = frozenset(flavors), quarantine
        self._made: SingleCache[object, ResolvedPolicies] = SingleCache()
        self._sources: tuple[tuple[Policy, ...], tuple[Namespace, ...]] = (), ()
        self._parsed: KeyedCache[int, Policy] = KeyedCache()
        """Each policy that is not quarantined, by its generation."""
        self._good: dict[str, Policy] = {}
        """The last version of each policy from which teams could be made."""
        self.resolved = ResolvedPolicies()

    def sources(self) -> tuple[tuple[Policy, ...], tuple[Namespace, ...]]:
        """The policies and namespaces from which the teams were made at the last refresh."""
        return self._sources

    def refresh(self) -> ResolvedPolicies:
        """The teams now; the same object while they do not change."""
        seen = self._policies.revision, self._namespaces.revision, self._quarantine.revision()
        self.resolved = self._made.get(seen, self._make)
        return self.resolved

    def _make(self) -> ResolvedPolicies:
        named = tuple(Namespace(n.metadata.name, n.metadata.labels) for n in self._namespaces.values())
        policies = tuple(self._read(body) for body in self._policies.values())
        present = {policy.uid for policy in policies}
        self._parsed.drop_absent(present)
        self._good = {uid: policy for uid, policy in self._good.items() if uid in present}
        self._sources = policies, named
        return self._resolve(policies, named)

    def _read(self, body: objects.CustomObject) -> Policy:
        uid, generation = body.metadata.uid, body.metadata.generation
        policy = self._parsed.get(uid, generation, self._parse, body)
        if policy.fault:
            self._parsed.drop(uid)  # a quarantined policy is read again at each refresh
        return policy

    def _parse(self, body: objects.CustomObject) -> Policy:
        meta = body.metadata
        fault = self._quarantine.fault(meta.uid, meta.generation)
        if fault is None:
            try:
                policy = policy_of(body)
                return self._stand_in(policy) if policy.invalid else policy
            except Exception as error:  # noqa: BLE001 - any error is handled as an error of this policy only
                fault = self._quarantine.quarantine("policy", meta.uid, meta.name, error, version=meta.generation)
        created = convert.epoch(meta.creation_timestamp or "")
        return self._stand_in(Policy(meta.uid, meta.name, created, None, fault=fault.message))

    def _stand_in(self, policy: Policy) -> Policy:
        """The policy with its last good spec; None if there is none, or the operator raised at that spec."""
        good = self._good.get(policy.uid)
        return replace(policy, spec=None if good is None or good.spec is policy.spec else good.spec)

    def _resolve(self, policies: tuple[Policy, ...], named: tuple[Namespace, ...]) -> ResolvedPolicies:
        """The teams. Policies at which this fails count by their last good version."""
        try:
            resolved = resolve(policies, named, flavors=self._flavors)
        except Exception as error:
            bad = culprits(policies, lambda part: resolve(part, named, flavors=self._flavors))
            if not bad and self._made.last is None:
                raise
            if not bad:
                log.exception("no single policy is to blame for this: all teams stay as they are until the next change")
                self._quarantine.count("policy")
                return self.resolved
            policies = tuple(self._without(p, error) if p in bad else p for p in policies)
            self._sources = policies, named
            return resolve(policies, named, flavors=self._flavors)
        self._good |= {policy.uid: policy for policy in policies if policy.spec is not None and not policy.fault}
        return resolved

    def _without(self, policy: Policy, error: Exception) -> Policy:
        body = self._policies.get(policy.uid)
        assert body is not None, "the stores stay as they are during a refresh"
        version = body.metadata.generation
        fault = self._quarantine.quarantine("policy", policy.uid, policy.name, error, version=version)
        self._parsed.drop(policy.uid)
        return self._stand_in(replace(policy, fault=fault.message))


def policy_of(body: objects.CustomObject) -> Policy:
    """A policy as stored, readable or not."""
    meta = body.metadata
    created = convert.epoch(meta.creation_timestamp or "")
    try:
        return Policy(meta.uid, meta.name, created, parse_policy({"spec": body.spec.unpack()}))
    except InvalidSpecError as error:
        return Policy(meta.uid, meta.name, created, None, f"{error}.")
