"""The contexts of jobs: the facts outside a job that the job's plan depends on, such as nodes, teams and classes, and
the time of the last external change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from elastic_api.status import ConditionType
from elastic_operator.cluster import objects
from elastic_operator.cluster.pruned_fields import PrunedFields
from elastic_operator.cluster.stores import Stores
from elastic_operator.memory import LastSeen
from elastic_operator.plan.facts.job import FlapWindow, JobContext, OwnPod
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.facts.waits import may_flap
from elastic_operator.read.external_changes import ExternalChanges
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.nodes import Nodes
from elastic_operator.read.pod_priority import PodPriorities
from elastic_operator.read.policies import Policies
from elastic_operator.read.priority import Priority, priority_of
from elastic_operator.read.specs import ParsedSpec, Specs, class_named_by
from elastic_operator.read.uncounted_devices import class_of_resources, log_new, why_not_counted
from elastic_operator.read.unwritten_evictions import unwritten_evictions
from elastic_operator.settings import Settings


class JobContexts:
    """The contexts of all jobs at the last refresh. `now` gives the time (epoch seconds)."""

    def __init__(
        self,
        stores: Stores,
        settings: Settings,
        *,
        pruned_fields: PrunedFields,
        specs: Specs,
        nodes: Nodes,
        policies: Policies,
        external_changes: ExternalChanges,
        ledger: Ledger,
        now: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._classes, self._settings, self._now = stores.priority_classes, settings, now
        self._specs, self._nodes, self._policies, self._external_changes = specs, nodes, policies, external_changes
        self._pruned_fields = pruned_fields
        self._device_classes = stores.device_classes
        self._pod_priorities = PodPriorities(stores.priority_classes, settings)
        self._last_seen: LastSeen[tuple[Mapping[str, str], object]] = LastSeen()

    def refresh(self, now: float) -> bool:
        """Read the contexts at `now` (epoch seconds). Returns whether the plan of any job may be affected."""
        policies = self._policies.refresh()
        unready, availability = self._nodes.refresh(now), self._nodes.availability
        self._external_changes.refresh(availability, policies, now)
        outage, pruned = self._nodes.outages.present, self._pruned_fields.fields
        (before, _), class_of = self._last_seen.value or ({}, None), class_of_resources(self._device_classes)
        log_new(class_of, before)
        others = self._classes.revision, unready, outage, availability, policies.in_effect, pruned
        return self._last_seen.changed((class_of, others))

    def context_of(self, body: objects.CustomObject, pods: tuple[OwnPod, ...]) -> JobContext:
        """The context of one job with these pods."""
        parsed = self._specs.parse(body)
        spec, unready = parsed.spec, self._nodes.unready_of(pods)
        priority = self._priority(spec.priority_class_name if spec is not None else class_named_by(body))
        return JobContext(
            priority=priority.value,
            unready=unready,
            node_outage=self._nodes.outages.present if unready else None,
            misplaced=self._nodes.misplaced(pods),
            evicted_for=unwritten_evictions(self._specs.status(body), pods, self._ledger),
            grace_ceiling=self.grace_ceiling(body.metadata.namespace),
            warnings=self._warnings(parsed, priority),
            flap_window=self._flap_window(body),
            pruned_status_fields=self._pruned_fields.fields,
        )

    def _warnings(self, parsed: ParsedSpec, priority: Priority) -> Mapping[ConditionType, Reason]:
        found = {
            ConditionType.DEVICES_NOT_COUNTED: why_not_counted(
                parsed.device_requests, class_of_resources(self._device_classes)
            ),
            ConditionType.PRIORITY_IGNORED: priority.ignored,
            ConditionType.POD_PRIORITY_IGNORED: self._pod_priorities.why_dropped(parsed.spec),
        }
        return {**parsed.warnings, **{kind: reason for kind, reason in found.items() if reason is not None}}

    def without_spec(self, body: objects.CustomObject) -> JobContext:
        """The part of a job's context that does not need its spec."""
        priority, ceiling = self._priority(class_named_by(body)), self.grace_ceiling(body.metadata.namespace)
        return JobContext(priority=priority.value, grace_ceiling=ceiling)

    def _priority(self, class_name: str | None) -> Priority:
        """The priority of a job that names this class."""
        return priority_of(class_name or "", self._classes, self._settings)

    def grace_ceiling(self, namespace: str) -> int:
        """The longest grace, in seconds, of a leaving pod of a job in the namespace: the policy's ceiling if it has
        one, else the setting (95).

        It is at least one second, because a deletion with no grace is a forced deletion.
        """
        ceiling = self._policies.made.resolved.teams.team_of(namespace).grace_seconds
        return max(1, self._settings.reclaim.max_grace_period_seconds if ceiling is None else ceiling)

    def _flap_window(self, body: objects.CustomObject) -> FlapWindow | None:
        """The last external change, if the job may flap (143)."""
        if not may_flap(self._specs.status(body), self._now()):
            return None
        takes_turns = self._policies.made.resolved.teams.team_of(body.metadata.namespace).quantum_seconds is not None
        return FlapWindow(self._external_changes.since, takes_turns)
