"""Keeps equal parts of Kubernetes objects once, because the pods of one template differ in a few strings only."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec

MAX_PARTS = 5_000
"""The most different parts that are kept; then all are forgotten. The pods of a job are read one after the other, so
they share their parts nevertheless. Tenants' texts in conditions, 1 kB each, do not pile up.
"""
MAX_KINDS = 10_000
"""The most different things in one memory of `interned`."""
_kept: dict[Hashable, Any] = {}

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def intern_fields(struct: msgspec.Struct, *names: str) -> None:
    """Replace these fields by equal values that are kept already. For `__post_init__` of frozen structs.

    Dicts in it must never be changed, as everything in a store. A field with a dict deeper inside is left as it is.
    """
    for name in names:
        part = getattr(struct, name)
        if not part:
            continue
        try:
            kept = _kept.setdefault(tuple(part.items()) if isinstance(part, dict) else part, part)
        except TypeError:  # it has a dict inside
            continue
        if kept is not part:
            msgspec.structs.force_setattr(struct, name, kept)
    if len(_kept) > MAX_PARTS:
        _kept.clear()


def interned(known: dict[K, V], key: K, thing: V) -> V:
    """The first thing with that key. `known` remembers them, and starts over when there are too many."""
    if len(known) > MAX_KINDS:
        known.clear()
    return known.setdefault(key, thing)
