"""All watches: the watched kinds and namespaces, and whether their stores can be trusted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from elastic_api.policy import COLLECTION
from elastic_operator.build.resource_quota import QUOTA_NAME
from elastic_operator.cluster import objects, reflector
from elastic_operator.cluster.errors import ClusterError
from elastic_operator.cluster.lists import present_revision
from elastic_operator.cluster.reflector import Reflector
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store, T
from elastic_operator.cluster.stores import Stores
from elastic_operator.job_informer import JobInformer
from elastic_operator.metrics.stats import WatchStats
from elastic_worker import contract

log = logging.getLogger(__name__)

POLICIES = COLLECTION
"""The GPUQuotaPolicy definition may be missing if the operator is upgraded first; jobs then run without quotas (39)."""
SINGULAR = {"policies": "policy", "priorityclasses": "priorityclass", "deviceclasses": "deviceclass"}
"""The name of one object, for kinds where that is not the kind without its last letter."""
QUOTAS = "resourcequotas"
NOT_WAITED_FOR = ("deviceclasses", QUOTAS)
"""Kinds that decide nothing about jobs. Jobs do not wait for them, because a role may not grant them."""
STALE_SECONDS = 90.0
"""If a watch has been silent for this long, no pod is created by its store."""


Watch: TypeAlias = Reflector[Any] | JobInformer


@dataclass(slots=True)
class Watches:
    """The watches by kind; several of one kind, each of one namespace, share a store. `informer` is that of jobs."""

    all: dict[str, Sequence[Watch]]
    informer: JobInformer

    @property
    def stores(self) -> dict[str, Store[Any]]:
        return {kind: watches[0].store for kind, watches in self.all.items()}

    async def catch_up(self, since: float | None = None, handed_over: Mapping[str, int] | None = None) -> None:
        """Make every store at least as new as `since` (monotonic; by default now), because another replica may have
        written until then. A store that has seen the revisions which that replica has handed over is new enough (213).
        """
        if handed_over and not await self._has_same_history():
            handed_over = None
        behind = [(kind, watch) for kind, watch in self._decisive() if not watch.has_seen(handed_over or {})]
        log.info("comparing stores with lists kinds=%s", ",".join(dict.fromkeys(kind for kind, _ in behind)))
        await asyncio.gather(*(watch.catch_up(since) for _, watch in behind))

    async def _has_same_history(self) -> bool:
        """Whether the API server's present version is higher than any in the stores. It is lower if etcd was restored
        from a backup, and the watches have not found out yet.
        """
        newest = max(watch.newest() for _, watch in self._decisive())
        try:
            return await present_revision(self.informer.session, reflector.NAMESPACES) >= newest
        except ClusterError:
            return False

    def revisions(self) -> dict[str, int]:
        """The revisions that the stores have seen, by collection. A leader hands these over with the lease."""
        return {path: revision for _, watch in self._decisive() for path, revision in watch.revisions().items()}

    def fresh(self) -> bool:
        """Whether news of every store came lately."""
        return max(watch.age() for _, watch in self._decisive()) < STALE_SECONDS

    def _decisive(self) -> Iterator[tuple[str, Watch]]:
        """The watches that decide about jobs, each with its kind."""
        return ((kind, watch) for kind in self.all if kind not in NOT_WAITED_FOR for watch in self.all[kind])

    def all_stats(self) -> dict[str, WatchStats]:
        """The watches of each kind as /metrics shows them."""
        return {
            kind: WatchStats(
                age=max(watch.age() for watch in watches),
                relists=None if kind == "jobs" else sum(watch.stats.relists for watch in watches),
                errors=sum(watch.stats.errors for watch in watches),
            )
            for kind, watches in self.all.items()
        }


def watch_all(
    session: Session,
    informer: JobInformer,
    *,
    watched: Sequence[str],
    quotas: bool = False,
    on_error: Callable[[str], None] = lambda _: None,
) -> Watches:
    """Make the watches, which do not run yet.

    `watched` are the namespaces of the jobs that are ours; none means all. `quotas`: also watch the ResourceQuotas for
    plain pods. `on_error` is called for each error of the operator's own at one object, with its kind.
    """

    namespaces = Reflector(session, reflector.NAMESPACES, objects.Namespace)
    is_gone = informer.is_gone = partial(_is_gone, namespaces, informer)

    def own(path: str, type_: type[T], ours: Mapping[str, str]) -> Sequence[Reflector[T]]:
        """The watches of a kind that the role may read in served namespaces only. Only our own objects matter."""
        store = Store[T]()
        return [
            Reflector(session, path, type_, namespace=namespace, store=store, params=ours, is_gone=is_gone)
            for namespace in dict.fromkeys(watched or [""])
        ]

    of_jobs = {"labelSelector": contract.LABEL_JOB_UID}
    watches: dict[str, Sequence[Watch]] = {
        "pods": [Reflector(session, reflector.PODS, objects.Pod)],
        "nodes": [Reflector(session, reflector.NODES, objects.Node)],
        "namespaces": [namespaces],
        "policies": [Reflector(session, POLICIES, objects.CustomObject, optional=True)],
        "priorityclasses": [Reflector(session, reflector.PRIORITY_CLASSES, objects.PriorityClass)],
        "deviceclasses": [Reflector(session, reflector.DEVICE_CLASSES, objects.DeviceClass, optional=True)],
        "claims": [Reflector(session, reflector.CLAIMS, objects.PersistentVolumeClaim)],
        "volumes": [Reflector(session, reflector.VOLUMES, objects.PersistentVolume)],
        "services": own(reflector.SERVICES, objects.Service, of_jobs),
        "slices": own(reflector.ENDPOINT_SLICES, objects.EndpointSlice, of_jobs),
        "jobs": [informer],
    }
    if quotas:
        by_name = {"fieldSelector": f"metadata.name={QUOTA_NAME}"}
        watches[QUOTAS] = own(reflector.RESOURCE_QUOTAS, objects.CustomObject, by_name)
    made = Watches(watches, informer)
    for kind, store in made.stores.items():
        store.on_error = partial(on_error, SINGULAR.get(kind, kind.removesuffix("s")))
    return made


def _is_gone(namespaces: Reflector[objects.Namespace], informer: JobInformer, name: str) -> bool:
    """Whether a refused list in the namespace means that it has no jobs for this operator.

    True if the namespace does not exist, or is being deleted, which cannot be undone. A namespace in which the operator
    has no Role counts as not served (188). Without recent news of namespaces the answer is False, because all
    authorization may fail. "" stands for all namespaces, so it is never gone.
    """
    found = namespaces.store.named(name)
    is_leaving = found is None or found.metadata.deletion_timestamp is not None
    return bool(name) and (is_leaving or informer.is_forbidden(name)) and namespaces.age() < STALE_SECONDS


def stores_of(watches: Watches) -> Stores:
    stores = {kind: store for kind, store in watches.stores.items() if kind != QUOTAS}
    return Stores(**{kind.replace("classes", "_classes"): store for kind, store in stores.items()})
