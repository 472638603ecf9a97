"""Quota policies and namespaces, from the stores to teams. Worked out anew only when one of them changes."""

from __future__ import annotations

from collections.abc import Collection

from elastic_operator.api.invalid import InvalidSpecError
from elastic_operator.api.parse import parse_policy
from elastic_operator.cluster import convert, objects
from elastic_operator.cluster.store import Store
from elastic_operator.plan.policies import Namespace, Policy, Resolved, resolve


class Policies:
    """What the policies came to at the last look, `resolved`; `flavors` are the names of those in the settings."""

    def __init__(
        self,
        policies: Store[objects.CustomObject],
        namespaces: Store[objects.Namespace],
        *,
        flavors: Collection[str],
    ) -> None:
        self._policies, self._namespaces, self._flavors = policies, namespaces, frozenset(flavors)
        self._seen: tuple[object, object] = ((), ())
        self._parsed: dict[str, tuple[int, Policy]] = {}
        self.resolved = Resolved()

    def look(self) -> Resolved:
        """What they come to now; the same object as before, as long as nothing of it changes."""
        policies, namespaces = self._policies.values(), self._namespaces.values()
        if (policies, namespaces) != self._seen:
            self._seen = policies, namespaces
            named = tuple(Namespace(n.metadata.name, n.metadata.labels) for n in namespaces)
            resolved = resolve(self._parse_all(policies), named, flavors=self._flavors)
            if resolved != self.resolved:
                self.resolved = resolved
        return self.resolved

    def _parse_all(self, bodies: tuple[objects.CustomObject, ...]) -> tuple[Policy, ...]:
        known, self._parsed = self._parsed, {}
        for body in bodies:
            uid, generation = body.metadata.uid, body.metadata.generation
            before = known.get(uid)
            same = before is not None and before[0] == generation
            self._parsed[uid] = before if before is not None and same else (generation, policy_of(body))
        return tuple(policy for _, policy in self._parsed.values())


def policy_of(body: objects.CustomObject) -> Policy:
    """A policy as stored, readable or not."""
    meta = body.metadata
    created = convert.epoch(meta.creation_timestamp or "")
    try:
        return Policy(meta.uid, meta.name, created, parse_policy({"spec": body.spec}))
    except InvalidSpecError as error:
        return Policy(meta.uid, meta.name, created, None, f"{error}.")
