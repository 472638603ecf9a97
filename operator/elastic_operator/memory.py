"""Memories from pass to pass. With them the cost of a pass grows with the changes, not with the cluster (23)."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, ItemsView, Iterable, Set
from heapq import heappop, heappush
from itertools import compress, islice
from math import inf
from operator import is_not
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, TypeVarTuple

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Args = TypeVarTuple("Args")

EMPTY_SET: frozenset[Any] = frozenset()
"""The one empty set of all jobs: Python makes another one each time, of 216 bytes (191)."""
MAX_DIRTY = 10_000
"""The most keys that are remembered. If more keys are marked, any key counts as changed. Otherwise the set of a standby
replica, which takes no keys, would grow without a limit.
"""

MIN_QUEUE = 64
"""A longer queue is made again when more than half of its times are void."""


class DirtySet(Generic[K]):
    """The keys that were marked since the last `take`.

    At first, and after `mark_all()`, the answer is None: any key may have changed.
    """

    def __init__(self) -> None:
        self._keys: set[K] | None = None

    def mark(self, *keys: K) -> None:
        """Note that the facts behind these keys may have changed."""
        if self._keys is not None:
            self._keys.update(keys)
            if len(self._keys) > MAX_DIRTY:
                self._keys = None

    def mark_all(self) -> None:
        """Note that the facts behind any key may have changed."""
        self._keys = None

    def peek(self) -> Set[K] | None:
        """The keys that `take` would return, which stay marked."""
        return self._keys

    def take(self) -> Set[K] | None:
        """The keys that were marked since the last `take`; None if any may have been."""
        keys, self._keys = self._keys, set()
        return keys


DirtyJobs: TypeAlias = DirtySet[str | tuple[str, str]]
"""The jobs whose facts may have changed since the last pass: by uid, or by namespace and name where the uid is not
known. A process has one such set: whoever changes a fact of a job marks the job in it (200).
"""


class DelayQueue:
    """Due times by name (client-go: a delaying queue). It finds the due names without a look at all others."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._queue: list[tuple[float, str]] = []
        """The times of all names that are not due yet, and void times."""
        self._ready: dict[str, None] = {}

    def set(self, name: str, at: float) -> None:
        """Set the only time at which the name is due; infinity: never."""
        self.drop(name)
        if at == inf:
            return
        self._at[name] = at
        heappush(self._queue, (at, name))
        if len(self._queue) > 2 * len(self._at) + MIN_QUEUE:
            self._queue = sorted((at, name) for name, at in self._at.items() if name not in self._ready)

    def time_of(self, name: str) -> float:
        """The time at which the name is due; infinity for never."""
        return self._at.get(name, inf)

    def due(self, now: float) -> tuple[str, ...]:
        """The due names, the earliest first. They stay due until another time is set."""
        while self._queue and self._queue[0][0] <= now:
            at, name = heappop(self._queue)
            if self._at.get(name) == at:
                self._ready[name] = None
        return tuple(self._ready)

    def next(self) -> float:
        """The earliest time at which something is due; infinity without any."""
        while self._queue and self._at.get(self._queue[0][1]) != self._queue[0][0]:
            heappop(self._queue)
        return min((*map(self.time_of, self._ready), self._queue[0][0] if self._queue else inf))

    def drop(self, name: str) -> None:
        """Forget the name: it is never due."""
        self._at.pop(name, None)
        self._ready.pop(name, None)


class KeyedCache(Generic[K, T]):
    """Values by name, each with the key that the value was made from. A value is void when its key differs.

    If a new value equals the previous value, the previous object stays, so that its users see by `is` that it is
    unchanged (23). None is not kept.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[K, T]] = {}

    def get(self, name: str, key: K, make: Callable[[*Args], T], *args: *Args) -> T:
        """The value of that name. The value is made from `args` again if `key` differs from its last key."""
        previous = self._kept.get(name)
        if previous is not None and (previous[0] is key or previous[0] == key):
            return previous[1]
        value = make(*args)
        if value is None:
            self.drop(name)
            return value
        if previous is not None and previous[1] == value:
            value = previous[1]
        self._kept[name] = key, value
        return value

    def peek(self, name: str) -> tuple[K, T] | None:
        """The key of the value of that name, and the value, void or not; None without such a value."""
        return self._kept.get(name)

    def items(self) -> ItemsView[str, tuple[K, T]]:
        """All values by name, void or not, each with its key."""
        return self._kept.items()

    def drop(self, name: str) -> None:
        """Forget the value of that name, if there is a value."""
        self._kept.pop(name, None)

    def drop_absent(self, present: Set[str]) -> None:
        """Forget all but the values of these names."""
        drop_absent(present, self._kept)


class SingleCache(Generic[K, T]):
    """A single value with the key that the value was made from, as in `KeyedCache`."""

    def __init__(self) -> None:
        self._values: KeyedCache[K, T] = KeyedCache()

    def get(self, key: K, make: Callable[[*Args], T], *args: *Args) -> T:
        """The value. It is made from `args` again if `key` differs from the last key."""
        return self._values.get("", key, make, *args)

    @property
    def last(self) -> T | None:
        """The value, void or not; None without a value."""
        _, value = self._values.peek("") or (None, None)
        return value

    def drop(self) -> None:
        """Forget the value, if there is a value."""
        self._values.drop("")


class LastSeen(Generic[T]):
    """The `value` that was remembered last; None before the first one."""

    def __init__(self) -> None:
        self.value: T | None = None

    def differs(self, present: T) -> bool:
        """Whether this value differs from the last one. The first value always differs."""
        return self.value is not present and self.value != present

    def changed(self, present: T) -> bool:
        """Remember the value; returns whether it differs from the last one. If the work that follows can fail, call
        `differs` before it, and this afterwards.
        """
        differs, self.value = self.differs(present), present
        return differs


class Changes(Generic[T]):
    """The items of a tuple that differ from those of the last tuple; unchanged items are the identical objects (23).

    `name` makes the name of an item, which no other item of its tuple has.
    """

    def __init__(self, name: Callable[[T], str]) -> None:
        self._name, self._items = name, tuple[T, ...]()

    def take(self, items: tuple[T, ...]) -> tuple[list[T], list[T]]:
        """The items of the last tuple that are not in this one, and the new ones. A changed item is in both lists."""
        before, self._items = self._items, items
        name = self._name
        pairs = list(compress(zip(before, items, strict=False), map(is_not, before, items)))
        if all(name(old) == name(new) for old, new in pairs):
            gone, new = [old for old, _ in pairs], [new for _, new in pairs]
            return [*gone, *before[len(items) :]], [*new, *items[len(before) :]]
        known, present = ({name(item): item for item in some} for some in (before, items))
        gone = [item for key, item in known.items() if present.get(key) is not item]
        return gone, [item for key, item in present.items() if known.get(key) is not item]


class Turns:
    """Gives turns to names. Next is the name whose last turn is longest ago; names without a turn come first."""

    def __init__(self) -> None:
        self._last: dict[str, None] = {}
        """The names, each in the order of its last turn."""

    def take(self, names: Iterable[str]) -> str:
        """The one of these names whose turn is next; it takes its turn. Of several without a turn, the first."""
        places = {name: place for place, name in enumerate(self._last)}
        name = min(names, key=lambda name: places.get(name, -1))
        self._last.pop(name, None)
        self._last[name] = None
        return name

    def keep_only(self, names: Container[str]) -> None:
        """Forget the turns of all other names."""
        self._last = {name: None for name in self._last if name in names}


class PerJobMemory(Protocol):
    """A memory with an entry for each job. All such memories of a leader's loop are in one list (`loop/compose.py`)."""

    def forget_deleted(self, present: Set[str]) -> None:
        """Forget deleted jobs; `present` are the uids of the existing ones."""
        ...


def drop_older_half(memory: dict[Any, Any], limit: int) -> None:
    """If there are more than `limit` entries, drop the half of the entries that was put in first."""
    if len(memory) > limit:
        for key in list(islice(memory, len(memory) // 2)):
            del memory[key]


def drop_absent(present: Set[str], *memories: dict[str, Any]) -> None:
    """Drop all entries but those of the present keys."""
    for memory in memories:
        for name in memory.keys() - present:
            del memory[name]
