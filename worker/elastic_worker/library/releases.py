"""Finds out which abilities all ranks of a group have, as some pods may be of an older release.

Each process counts itself in the group's store for each ability that it has. A process of an older release does not
count itself for newer abilities. So a new ability is used only if all ranks have it, without waiting for answers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

CHAIN = "chain"
"""The state is handed over along a chain of ranks."""
KEYED_ORDER = "keyed-order"
"""The order of an epoch's samples is the keyed permutation (shuffle.py)."""
KNOWN = (CHAIN, KEYED_ORDER)
WAIT_SECONDS = 30.0
"""Time for a late rank to announce its abilities."""
POLL_SECONDS = 0.05


def announce(formed: Formed) -> None:
    """Announce all of KNOWN for this process. Raises dist.DistError if the store has ended."""
    for what in KNOWN:
        if what not in formed.announced:
            formed.announced.add(what)
            formed.store.add(_key(what), 1)


def all_know(formed: Formed, what: str) -> bool:
    """Whether all ranks have an ability. All ranks agree if each announced it before a collective that has ended."""
    return bool(formed.store.add(_key(what), 0) == formed.world)


def agree(formed: Formed, what: str) -> bool:
    """Whether all ranks have an ability, if no collective followed the announcements. All ranks get the same answer.

    Waits for all ranks. A rank that has waited for WAIT_SECONDS answers no for all. Raises dist.DistError if the store
    has ended.
    """
    announce(formed)
    key, end = f"{_key(what)}/agreed", time.monotonic() + WAIT_SECONDS
    while not (known := all_know(formed, what)) and time.monotonic() < end and not formed.store.check([key]):
        time.sleep(POLL_SECONDS)
    return bool(formed.store.compare_set(key, "", "yes" if known else "no") == b"yes")


def _key(what: str) -> str:
    return f"releases/{what}"
