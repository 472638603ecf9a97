"""A store view for ranks that publish one value each and read all values: each rank reads them in one request.

gloo waits for the addresses of each peer and then gets them, with three requests for each peer. The store is one
thread, which answers some 50,000 requests a second: for groups of hundreds of ranks that takes longer than the time
limit for forming (116). Every rank reads for itself: a rank of an earlier release publishes its value, but gathers
nothing for the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from torch import distributed as dist


class Gathering(dist.Store):  # type: ignore[misc]
    """The view of one rank of `world` on `store`; keys that end in "/RANK" are published by all ranks.

    torch keeps only the C++ part alive; the owner keeps this object for as long as that is in use.
    """

    def __init__(self, store: Any, world: int) -> None:
        super().__init__()
        self._store, self._world = store, world
        self._read: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        """Publish a value."""
        self._store.set(key, value)

    def wait(self, keys: Iterable[str], timeout: timedelta | None = None) -> None:  # noqa: ARG002 (the store's own)
        """Wait until all ranks have published. Raises DistStoreError after the store's own time limit."""
        for key in keys:
            self.get(key)

    def get(self, key: str) -> bytes:
        """The value of one rank, once all have published."""
        where, _, teller = key.rpartition("/")
        if not teller.isdecimal():
            return bytes(self._store.get(key))
        if key not in self._read:
            keys = [f"{where}/{rank}" for rank in range(self._world)]
            self._read.update(zip(keys, map(bytes, self._store.multi_get(keys))))
        return self._read[key]
