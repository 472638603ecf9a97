"""Makes the planner's jobs from their objects, their pods, reports, and contexts."""

from __future__ import annotations

from dataclasses import replace

from elastic_api.status import JobStatus
from elastic_operator.cluster import objects
from elastic_operator.plan.facts.job import Job, JobFeedback, OwnPod, Quarantined
from elastic_operator.read import convert
from elastic_operator.read.first_seen import FirstSeen
from elastic_operator.read.job_contexts import JobContexts
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.specs import Specs
from elastic_operator.settings import Settings


class Jobs:
    """The jobs of the stores."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        *,
        specs: Specs,
        contexts: JobContexts,
        first_seen: FirstSeen,
    ) -> None:
        self._ledger, self._settings, self._first_seen = ledger, settings, first_seen
        self._specs, self._contexts = specs, contexts

    def job(self, body: objects.CustomObject, pods: tuple[OwnPod, ...], feedback: JobFeedback) -> Job:
        """The job now; `pods` are its own pods.

        While all nodes of the job are Ready, its feedback lacks the time of the master's last answer and the group by
        the logs, so that news of these does not change the job. No report is pending without a master that runs.
        """
        meta, context, parsed = body.metadata, self._contexts.context_of(body, pods), self._specs.parse(body)
        if not context.unready:
            feedback = replace(feedback, pods_are_asked=False, last_answer_at=None, group=None)
        if feedback.report_pending and not any(pod.master_epoch and pod.main.running_since for pod in pods):
            feedback = replace(feedback, report_pending=False)
        return Job(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            created=convert.epoch(meta.creation_timestamp or ""),
            status=self._specs.status(body),
            spec=parsed.with_grace_up_to(context.grace_ceiling),
            invalid=parsed.invalid,
            pods=tuple(map(self._first_seen.of_pod, pods)),
            foreign_names=self._ledger.foreign_names(meta.uid),
            fingerprints=parsed.fingerprints,
            provisioning=self._settings.node_provisioning,
            start_seconds=self._settings.start_timeout_seconds,
            what_if=meta.annotations.what_if,
            feedback=feedback,
            context=context,
        )

    def job_without_spec(
        self, body: objects.CustomObject, pods: tuple[OwnPod, ...], quarantine: Quarantined | None
    ) -> Job:
        """A job of which only the pods count: it is quarantined, or deleted and kept by a finalizer."""
        meta = body.metadata
        try:
            created, status = convert.epoch(meta.creation_timestamp or ""), self._specs.status(body)
        except Exception:  # noqa: BLE001 - its status says already that it cannot be read
            created, status = 0.0, JobStatus()
        return Job(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            created=created,
            status=status,
            spec=None,
            pods=pods,
            quarantine=quarantine,
            context=self._contexts.without_spec(body),
            deleted=meta.deletion_timestamp is not None,
        )
