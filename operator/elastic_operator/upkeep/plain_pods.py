"""Keeps a ResourceQuota in each served namespace that a policy covers, in a task of its own (98).

The limits are computed after each pass with a change, and written if they have changed, at most once a second. Lower
limits are written before higher ones. A quota that somebody deletes or changes is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from elastic_api.quantity import QuantityError, units
from elastic_operator.build.resource_quota import QUOTA_NAME, build_resource_quota
from elastic_operator.cluster import api_requests, objects
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.store import Store
from elastic_operator.memory import LastSeen
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.planner import PassDecisions
from elastic_operator.plan.policies.plain_pod_limits import Holdings, non_preemptible_gpus, plain_pod_limits
from elastic_operator.plan.policies.resolve import ResolvedPolicies
from elastic_operator.settings import Settings
from elastic_operator.upkeep.upkeep import Upkeep, Writes

Limits = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Write:
    """A namespace, its quota if it has one, and its wanted limits; None: it should have no quota."""

    namespace: str
    known: objects.CustomObject | None
    limits: Limits | None

    @property
    def raises_a_limit(self) -> bool:
        """Whether the write admits more pods than before."""
        hard = _hard_of(self.known) if self.known else None
        if self.limits is None or hard is None:
            return self.limits is None
        return any(gpus > hard.get(f"requests.{name}", 0) for name, gpus in self.limits.items())


class _Facts(NamedTuple):
    """The result of a pass that the limits depend on, with the GPUs of plain pods, and the revision of namespaces."""

    policies: ResolvedPolicies
    jobs: tuple[JobDemand, ...]
    plain: Holdings
    namespaces: int


class PlainPodQuotas:
    """The quotas of all namespaces. `plain`: the GPUs of pods of no job."""

    def __init__(
        self,
        session: Session,
        quotas: Store[objects.CustomObject],
        namespaces: Store[objects.Namespace],
        settings: Settings,
        *,
        plain: Callable[[], Holdings],
    ) -> None:
        self._session, self._quotas, self._namespaces = session, quotas, namespaces
        self._settings, self._plain = settings, plain
        self._last_seen: LastSeen[_Facts] = LastSeen()
        self._upkeep = Upkeep("namespace", "the quota of plain pods", self._due)
        self.run = self._upkeep.run
        """Writes until cancelled."""

    def pass_ended(self, decisions: PassDecisions) -> None:
        """Take the result of a pass. The limits are not computed again from an unchanged result."""
        facts = _Facts(decisions.policies, decisions.inputs.jobs, self._plain(), self._namespaces.revision)
        if self._last_seen.changed(facts):
            self._upkeep.notify()

    def quota_changed(self, old: objects.CustomObject | None, new: objects.CustomObject | None) -> None:
        """A listener of the quotas' store. It ignores the status, which changes with each pod."""
        if old is None or new is None or old.spec.unpack() != new.spec.unpack():
            self._upkeep.notify()

    def _due(self) -> Writes:
        """The writes that are due, higher limits last; none before the first pass."""
        facts = self._last_seen.value
        if facts is None:
            return {}
        limits = self._limits(facts)
        quotas = {
            quota.metadata.namespace: quota for quota in self._quotas if quota.metadata.deletion_timestamp is None
        }
        names = {*limits, *quotas}
        self._upkeep.forget_deleted(names)
        writes = [_Write(name, quotas.get(name), limits.get(name)) for name in sorted(names)]
        due = [write for write in writes if not self._is_up_to_date(write)]
        return {
            write.namespace: partial(self._write, write) for write in sorted(due, key=lambda one: one.raises_a_limit)
        }

    def _limits(self, facts: _Facts) -> dict[str, dict[str, int]]:
        """The limits by namespace, for namespaces that exist and are served."""
        policies, settings = facts.policies, self._settings.allocation
        kept = non_preemptible_gpus(facts.jobs, settings.gpu_resources)
        limits = plain_pod_limits(policies.teams, settings.flavors, plain=facts.plain, kept=kept)
        there = {
            namespace.metadata.name for namespace in self._namespaces if namespace.metadata.deletion_timestamp is None
        }
        return {name: one for name, one in limits.items() if name in there and self._settings.watches(name)}

    def _is_up_to_date(self, write: _Write) -> bool:
        if write.known is None or write.limits is None:
            return write.known is None and write.limits is None
        wanted = self._manifest(write.namespace, write.limits)["spec"]
        hard = {f"requests.{name}": gpus for name, gpus in write.limits.items()}
        return _hard_of(write.known) == hard and _others(write.known.spec.unpack()) == _others(wanted)

    def _manifest(self, namespace: str, limits: Limits) -> dict[str, Any]:
        return build_resource_quota(namespace, limits, classes=self._settings.job_pod_classes)

    async def _write(self, write: _Write) -> None:
        quota = write.known
        if write.limits is None:
            assert quota is not None, "a namespace without limits and without a quota needs no write"
            await api_requests.delete_resource_quota(self._session, write.namespace, QUOTA_NAME, uid=quota.metadata.uid)
            self._quotas.observe_deleted(quota.metadata.uid)
            return
        manifest = self._manifest(write.namespace, write.limits)
        self._quotas.observe(await api_requests.write_resource_quota(self._session, manifest, known=quota))


def _hard_of(quota: objects.CustomObject) -> dict[str, int] | None:
    """The quota's limits as numbers; None if somebody has written other values."""
    try:
        return {name: units(quantity) for name, quantity in (quota.spec.unpack().get("hard") or {}).items()}
    except QuantityError:
        return None


def _others(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The quota without its limits."""
    return {name: value for name, value in spec.items() if name != "hard"}
