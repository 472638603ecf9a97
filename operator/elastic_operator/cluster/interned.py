"""Equal parts of Kubernetes objects are kept once: the pods of one template differ in a few strings only."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

MOST = 20_000
"""After so many different parts it begins anew: what is in use stays in use, and is only not shared with later ones."""
_kept: dict[Hashable, Any] = {}


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
    if len(_kept) > MOST:
        _kept.clear()
