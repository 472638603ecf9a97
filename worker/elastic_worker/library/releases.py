"""What the pods of a group can do, where those of an older release are among them.

Each process counts itself in the group's store for each thing that it knows; one of an older release counts itself for
nothing that came later. So what is new is used where all know it, and nobody waits for an answer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

CHAIN = "chain"
"""A state is handed over from rank to rank."""
KEYED_ORDER = "keyed-order"
"""Of an epoch's samples."""
KNOWN = (CHAIN, KEYED_ORDER)
WAIT_SECONDS = 30.0
"""For a late rank to say what it knows."""
POLL_SECONDS = 0.05


def tell(formed: Formed) -> None:
    """That this process knows all of KNOWN. Raises dist.DistError where the store is gone."""
    for what in KNOWN:
        if what not in formed.told:
            formed.told.add(what)
            formed.store.add(_key(what), 1)


def all_know(formed: Formed, what: str) -> bool:
    """Whether all of the group do. The same on all ranks if each has told before a collective that has ended."""
    return bool(formed.store.add(_key(what), 0) == formed.world)


def agree(formed: Formed, what: str) -> bool:
    """Whether all of the group know it, where no collective follows what they have told: the same on all ranks.

    Waits for them; a rank that has waited for WAIT_SECONDS answers no for all. Raises dist.DistError if the store is
    gone.
    """
    tell(formed)
    key, end = f"{_key(what)}/agreed", time.monotonic() + WAIT_SECONDS
    while not (known := all_know(formed, what)) and time.monotonic() < end and not formed.store.check([key]):
        time.sleep(POLL_SECONDS)
    return bool(formed.store.compare_set(key, "", "yes" if known else "no") == b"yes")


def _key(what: str) -> str:
    return f"releases/{what}"
