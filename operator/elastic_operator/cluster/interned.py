"""Keeps equal parts of Kubernetes objects once, because the pods of one template differ in a few strings only."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec

from elastic_operator.memory import drop_older_half

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Interned(dict[K, V]):
    """The first value with each key.

    At more than `limit` values, the older half is forgotten, because the users of a value are unknown. Equal values
    that are read in quick succession, such as those in the pods of a job, are a single object nevertheless.
    """

    def __init__(self, limit: int = 10_000) -> None:
        super().__init__()
        self._limit = limit

    def intern(self, key: K, value: V) -> V:
        """The first value with that key: `value`, if the key is new."""
        shared = self.setdefault(key, value)
        self.keep_limit()
        return shared

    def keep_limit(self) -> None:
        """Forget the older half of the values if there are too many."""
        drop_older_half(self, self._limit)


parts: Interned[Hashable, Any] = Interned(limit=5_000)
"""The parts of all stored objects. Tenants' texts in conditions, 1 kB each, do not pile up.

It is of the process, and not of a store: msgspec makes the objects, and passes nothing to their `__post_init__` that
could name a store. Nobody changes the parts, so stores and tests may share them.
"""


def intern_fields(struct: msgspec.Struct, *names: str) -> None:
    """Replace these fields by equal values that are kept already. For `__post_init__` of frozen structs.

    Dicts in it must never be changed, as everything in a store. The limit is checked once for all fields, because a pod
    has many.
    """
    for name in names:
        part = getattr(struct, name)
        if not part:
            continue
        try:
            kept = parts.setdefault(tuple(part.items()) if isinstance(part, dict) else part, part)
        except TypeError:  # it has a dict inside
            kept = parts.setdefault((name, msgspec.json.encode(part)), part)
        if kept is not part:
            msgspec.structs.force_setattr(struct, name, kept)
    parts.keep_limit()
