"""Keeps equal parts of Kubernetes objects once, because the pods of one template differ in a few strings only."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from elastic_operator.memory import drop_older_half

MAX_PARTS = 5_000
"""At more parts, the older half is forgotten, because the users of a part are unknown. So tenants' texts in conditions,
1 kB each, do not pile up. Equal parts that are read in quick succession are a single object nevertheless.
"""
parts: dict[Hashable, Any] = {}
"""The first part with each key: of all stored objects, and the loads of pods.

It is of the process, and not of a store: msgspec makes the objects, and passes nothing to their `__post_init__` that
could name a store. Nobody changes the parts, so stores and tests may share them.
"""


def intern(key: Hashable, part: Any) -> Any:
    """The first part with that key: `part`, if the key is new."""
    kept = parts.setdefault(key, part)
    drop_older_half(parts, MAX_PARTS)
    return kept


def intern_fields(struct: msgspec.Struct, *names: str) -> None:
    """Replace these fields by equal values that are kept already. For `__post_init__` of frozen structs.

    Dicts in it must never be changed. The limit is checked once for all fields, because a pod has many.
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
    drop_older_half(parts, MAX_PARTS)
