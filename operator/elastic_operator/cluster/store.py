"""The API server's objects of one kind, by the news from watches, lists and this process's own writes (client-go: the
informer's cache, an Indexer).

News arrives from several sources and out of order: a write's answer may overtake the watch, a list may be older than
both. The object with the highest resourceVersion wins; within a kind these compare as integers. A deletion is
remembered for `TOMBSTONE_SECONDS`, so that late news does not restore the object. The number of remembered deletions
has no other limit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar
from zlib import crc32

from elastic_operator.cluster.meta import Meta
from elastic_operator.cluster.wire import BareMeta

log = logging.getLogger(__name__)

TOMBSTONE_SECONDS = 300.0
"""A deletion is remembered for this long. The first news after this time forgets it."""
_ANY_REVISION = float("inf")


class HasMeta(Protocol):
    """Any decoded Kubernetes object."""

    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=HasMeta)
Listener = Callable[[T | None, T | None], None]
"""Called at once with (old, new): None, new for an addition, old, None for a deletion. It must be quick.

An error that it raises is logged and counted, and does not affect other listeners (88).
"""


class _Tombstone(NamedTuple):
    """A deletion: states up to `revision` are ignored until `until` (monotonic). `namespace` is "" if it is unknown."""

    revision: float
    until: float
    namespace: str


class Store(Generic[T]):
    """Objects of one kind by uid and by (namespace, name). `now` is a monotonic clock."""

    def __init__(self, *, now: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._now = now
        self._by_uid: dict[str, T] = {}
        self._by_name: dict[tuple[str, str], T] = {}
        self._tombstones: dict[str, _Tombstone] = {}
        self._listeners: list[Listener[T]] = []
        self.revision = 0
        """Raised with each change."""
        self.uids_revision = 0
        """Raised when an object is added or removed."""
        self.on_error: Callable[[], None] = lambda: None
        """Called for each error of the operator's own at one of these objects."""

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[T]:
        return iter(self._by_uid.values())

    def __contains__(self, uid: object) -> bool:
        return uid in self._by_uid

    def get(self, uid: str) -> T | None:
        return self._by_uid.get(uid)

    def named(self, name: str, namespace: str = "") -> T | None:
        """The object of that name; `namespace` is "" for kinds without."""
        return self._by_name.get((namespace, name))

    def values(self) -> tuple[T, ...]:
        """All objects, as they are now."""
        return tuple(self._by_uid.values())

    def is_current(self, meta: Meta | BareMeta) -> bool:
        """Whether this state of an object, a later one or its deletion is known."""
        known, gone = self._by_uid.get(meta.uid), self._tombstones.get(meta.uid)
        if gone is not None and int(meta.resource_version) <= gone.revision:
            return True
        return known is not None and int(meta.resource_version) <= _rv(known)

    def subscribe(self, listener: Listener[T]) -> Callable[[], None]:
        """Call `listener` at once for each existing object, and later at each change.

        Returns the function that ends the subscription.
        """
        self._listeners.append(listener)
        for obj in self.values():
            self._call(listener, None, obj)
        return partial(self._listeners.remove, listener)

    def observe(self, obj: T) -> None:
        """Take an object from a list, a watch or a write's answer. States older than the known one are ignored."""
        self._drop_old_tombstones()
        meta = obj.metadata
        if self.is_current(meta):
            return
        old = self._by_uid.get(meta.uid)
        namesake = self._by_name.get(_name(obj))
        if namesake is not None and namesake.metadata.uid != meta.uid:
            # Two objects never share a name, so the older object is deleted, and the news of its deletion is late.
            if _rv(namesake) > _rv(obj):
                return
            self.observe_deleted(namesake.metadata.uid)
        self._by_uid[meta.uid] = self._by_name[_name(obj)] = obj
        self._notify(old, obj)

    def observe_deleted(self, uid: str, resource_version: str | None = None, *, namespace: str = "") -> None:
        """Take a deletion.

        `resource_version` is the version of the deletion. Without it, for example after a DELETE answered with 404, no
        later news of the object is expected. `namespace` is needed for an object that may be unknown.
        """
        self._drop_old_tombstones()
        self._add_tombstone(uid, int(resource_version) if resource_version else _ANY_REVISION, namespace)
        self._remove(uid)

    def observe_list(self, seen: Collection[str], resource_version: str, *, within: str = "") -> None:
        """Remove the objects that a complete list of that resourceVersion lacks. Its own objects were observed.

        `within` is the namespace that was listed; "" for all.
        """
        revision = int(resource_version)
        for obj in self._of(within):
            if obj.metadata.uid not in seen and _rv(obj) <= revision:
                self.observe_deleted(obj.metadata.uid, resource_version)

    def forget_all(self, *, within: str = "") -> None:
        """Remove all objects (of the namespace `within`), as not readable any more. Any later news restores them, even
        unchanged: nothing says that they were deleted.
        """
        for obj in self._of(within):
            self._remove(obj.metadata.uid)

    def replace(self, objects: Iterable[T], resource_version: str, *, within: str = "") -> None:
        """Take a complete list (of the namespace `within`): observe its objects, and remove all others."""
        seen = set()
        for obj in objects:
            seen.add(obj.metadata.uid)
            self.observe(obj)
        self.observe_list(seen, resource_version, within=within)

    def newest(self, *, within: str = "") -> int:
        """The highest resourceVersion among the objects (of the namespace `within`); 0 without any."""
        return max(map(_rv, self._of(within)), default=0)

    def last_change(self, *, within: str = "") -> int:
        """The highest version of an object or of a known deletion (in the namespace `within`); 0 without any."""
        deletions = (gone for gone in self._tombstones.values() if not within or gone.namespace == within)
        versions = [int(gone.revision) for gone in deletions if gone.revision != _ANY_REVISION]
        return max(self.newest(within=within), *versions, 0)

    def checksum(self, *, within: str = "") -> int:
        """The sum of a checksum of each object's uid and resourceVersion (of the namespace `within`). Stores with equal
        sums have the same objects in the same states.
        """
        metas = (obj.metadata for obj in self._of(within))
        return sum(crc32(f"{meta.uid} {meta.resource_version}".encode()) for meta in metas)

    def reset(self, objects: Iterable[T], *, within: str = "") -> None:
        """Take a complete list (of the namespace `within`) of a server whose history restarted.

        That happens when etcd is restored from a backup. The list's resourceVersions do not compare with known ones.
        Listeners are called for one object after the other: first for each object that the list lacks, then for each
        listed one. Nothing is awaited meanwhile, so a pass never sees some of the changes without the others.
        """
        listed = {obj.metadata.uid: obj for obj in objects}
        self._tombstones = {
            uid: tombstone
            for uid, tombstone in self._tombstones.items()
            if within and tombstone.namespace != within and uid not in listed
        }
        for uid in {obj.metadata.uid for obj in self._of(within)} - listed.keys():
            self._remove(uid)
        for uid, obj in listed.items():
            old = self._by_uid.get(uid)
            self._by_uid[uid] = self._by_name[_name(obj)] = obj
            self._notify(old, obj)

    def _of(self, namespace: str) -> tuple[T, ...]:
        """The objects of that namespace; all for ""."""
        return tuple(obj for obj in self._by_uid.values() if not namespace or obj.metadata.namespace == namespace)

    def _add_tombstone(self, uid: str, revision: float, namespace: str) -> None:
        known, old = self._tombstones.pop(uid, None), self._by_uid.get(uid)
        if known is not None:
            revision, namespace = max(known.revision, revision), known.namespace or namespace
        if old is not None:
            namespace = old.metadata.namespace
        self._tombstones[uid] = _Tombstone(revision, self._now() + TOMBSTONE_SECONDS, namespace)

    def _drop_old_tombstones(self) -> None:
        """Forget the deletions of which `TOMBSTONE_SECONDS` have passed. The oldest come first."""
        while self._tombstones and next(iter(self._tombstones.values())).until <= self._now():
            del self._tombstones[next(iter(self._tombstones))]

    def _remove(self, uid: str) -> None:
        old = self._by_uid.pop(uid, None)
        if old is None:
            return
        del self._by_name[_name(old)]
        self._notify(old, None)

    def _notify(self, old: T | None, new: T | None) -> None:
        self.revision += 1
        self.uids_revision += old is None or new is None
        for listener in self._listeners:
            self._call(listener, old, new)

    def _call(self, listener: Listener[T], old: T | None, new: T | None) -> None:
        """Call the listener. Its error must stop neither the other listeners nor the watch that brought the object."""
        try:
            listener(old, new)
        except Exception:
            meta = (new or old).metadata  # type: ignore[union-attr] # one of them is there
            log.exception("a listener failed listener=%r object=%s/%s", listener, meta.namespace, meta.name)
            self.on_error()


def _rv(obj: HasMeta) -> int:
    return int(obj.metadata.resource_version)


def _name(obj: HasMeta) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name
