"""Quota policies and namespaces, from the stores to teams. Worked out anew only when one of them changes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from elastic_operator.api.invalid import InvalidSpecError
from elastic_operator.api.parse import parse_policy
from elastic_operator.cluster import convert, objects
from elastic_operator.cluster.store import Store
from elastic_operator.loop.blame import culprit
from elastic_operator.loop.bulkhead import Bulkhead
from elastic_operator.plan.policies import Namespace, Policy, Resolved, resolve


class Policies:
    """What the policies came to at the last look, `resolved`; `flavors` are the names of those in the settings.

    A policy at which the operator raises counts as it was when it last did not.
    """

    def __init__(
        self,
        policies: Store[objects.CustomObject],
        namespaces: Store[objects.Namespace],
        *,
        flavors: Collection[str],
        bulkhead: Bulkhead | None = None,
    ) -> None:
        self._bulkhead = bulkhead or Bulkhead()
        self._policies, self._namespaces, self._flavors = policies, namespaces, frozenset(flavors)
        self._seen: tuple[object, ...] = ()
        self._parsed: dict[str, tuple[int, Policy]] = {}
        self.resolved = Resolved()

    def look(self) -> Resolved:
        """What they come to now; the same object as before, as long as nothing of it changes."""
        policies, namespaces = self._policies.values(), self._namespaces.values()
        seen = (policies, namespaces, self._bulkhead.next_try())
        if seen != self._seen:
            named = tuple(Namespace(n.metadata.name, n.metadata.labels) for n in namespaces)
            resolved = self._resolve(self._parse_all(policies), named)
            self._seen = (policies, namespaces, self._bulkhead.next_try())
            if resolved != self.resolved:
                self.resolved = resolved
        return self.resolved

    def _parse_all(self, bodies: tuple[objects.CustomObject, ...]) -> tuple[Policy, ...]:
        known, self._parsed = self._parsed, {}
        for body in bodies:
            uid, generation = body.metadata.uid, body.metadata.generation
            before = known.get(uid)
            same = before is not None and before[0] == generation and not before[1].fault
            self._parsed[uid] = before if before is not None and same else (generation, self._parse(body, before))
        return tuple(policy for _, policy in self._parsed.values())

    def _parse(self, body: objects.CustomObject, before: tuple[int, Policy] | None) -> Policy:
        meta = body.metadata
        fault = self._bulkhead.fault(meta.uid, meta.generation)
        if fault is None:
            try:
                return policy_of(body)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this policy's, and no other's
                fault = self._bulkhead.set_aside("policy", meta.uid, meta.name, error, version=meta.generation)
        last = before[1].spec if before is not None else None
        return Policy(meta.uid, meta.name, 0.0, last, fault=fault.message)

    def _resolve(self, policies: tuple[Policy, ...], named: tuple[Namespace, ...]) -> Resolved:
        """The teams; without a policy at which this raises."""
        try:
            return resolve(policies, named, flavors=self._flavors)
        except Exception as error:
            bad = culprit(policies, lambda some: resolve(some, named, flavors=self._flavors))
            if bad is None:
                raise
            fault = self._bulkhead.set_aside("policy", bad.uid, bad.name, error, version=self._parsed[bad.uid][0])
            left = replace(bad, spec=None, fault=fault.message)
            self._parsed[bad.uid] = (self._parsed[bad.uid][0], left)
            return self._resolve(tuple(left if policy is bad else policy for policy in policies), named)


def policy_of(body: objects.CustomObject) -> Policy:
    """A policy as stored, readable or not."""
    meta = body.metadata
    created = convert.epoch(meta.creation_timestamp or "")
    try:
        return Policy(meta.uid, meta.name, created, parse_policy({"spec": body.spec}))
    except InvalidSpecError as error:
        return Policy(meta.uid, meta.name, created, None, f"{error}.")
