"""What the pods of a group can do, where those of an older release are among them.

Each process counts itself in the group's store for each thing that it knows; one of an older release counts itself for
nothing that came later. So what is new is used where all know it, and nobody waits for an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

CHAIN = "chain"
"""A state is handed over from rank to rank."""
KNOWN = (CHAIN,)


def tell(formed: Formed) -> None:
    """That this process knows all of KNOWN. Raises dist.DistError where the store is gone."""
    for what in KNOWN:
        if what not in formed.told:
            formed.told.add(what)
            formed.store.add(_key(what), 1)


def all_know(formed: Formed, what: str) -> bool:
    """Whether all of the group do. The same on all ranks if each has told before a collective that has ended."""
    return bool(formed.store.add(_key(what), 0) == formed.world)


def _key(what: str) -> str:
    return f"releases/{what}"
