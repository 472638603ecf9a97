"""A store for those who tell one value each and want all: the first rank gathers them, the others ask for all at once.

gloo waits for the addresses of each peer and then gets them, three requests a peer. The store is one thread, which
answers some 50,000 a second: for groups of hundreds of ranks that takes longer than they have to form (116).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from torch import distributed as dist


class Gathering(dist.Store):  # type: ignore[misc]
    """That of one rank of `world`, in front of `store`; keys that end in "/" and a rank are of what all tell.

    torch holds the part of it that is C++; whoever gives it away keeps this object as long as that is in use.
    """

    def __init__(self, store: Any, rank: int, world: int) -> None:
        super().__init__()
        self._store, self._rank, self._world = store, rank, world
        self._told: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        """Tell."""
        self._store.set(key, value)

    def wait(self, keys: Iterable[str], timeout: timedelta | None = None) -> None:  # noqa: ARG002 (the store's own)
        """Until all have told. Raises DistStoreError after the store's own time limit."""
        for key in keys:
            self.get(key)

    def get(self, key: str) -> bytes:
        """What one has told, once all have."""
        where, _, teller = key.rpartition("/")
        if not teller.isdecimal():
            return bytes(self._store.get(key))
        if key not in self._told:
            keys = [f"{where}/{rank}" for rank in range(self._world)]
            self._told.update(zip(keys, self._of_all(where, keys)))
        return self._told[key]

    def _of_all(self, where: str, keys: list[str]) -> list[bytes]:
        if self._rank:
            return [bytes.fromhex(each) for each in json.loads(self._store.get(f"{where}/all"))]
        told = [bytes(each) for each in self._store.multi_get(keys)]
        self._store.set(f"{where}/all", json.dumps([each.hex() for each in told]))
        return told
