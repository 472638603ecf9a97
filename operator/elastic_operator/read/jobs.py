"""Makes the planner's jobs from their objects, their pods, reports, and contexts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from elastic_api.status import JobStatus
from elastic_operator.cluster import objects
from elastic_operator.plan.facts.job import Job, JobContext, JobFeedback, OwnPod, Quarantined
from elastic_operator.read import convert
from elastic_operator.read.first_seen import FirstSeen
from elastic_operator.read.job_contexts import JobContexts
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.specs import Specs
from elastic_operator.settings import Settings


class JobInputs(NamedTuple):
    """The inputs of one job. Equal inputs give an equal job until a time in them comes.

    `pods` are the job's own pods. While all nodes of the job are Ready, `feedback` lacks the time of the master's last
    answer and the group by the logs, so that news of these does not make the operator read the job again. No report is
    pending without a master that runs.
    """

    body: objects.CustomObject
    pods: tuple[OwnPod, ...]
    context: JobContext
    foreign_names: frozenset[str] = frozenset()
    feedback: JobFeedback = JobFeedback()
    quarantine: Quarantined | None = None

    @property
    def has_spec(self) -> bool:
        """False for a job that is quarantined, or deleted and kept by a finalizer: only its pods count."""
        return self.quarantine is None and self.body.metadata.deletion_timestamp is None


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

    def inputs(self, body: objects.CustomObject, pods: tuple[OwnPod, ...], feedback: JobFeedback) -> JobInputs:
        """The inputs of one job now."""
        context = self._contexts.context_of(body, pods)
        if not context.unready:
            feedback = replace(feedback, pods_are_asked=False, last_answer_at=None, group=None)
        if feedback.report_pending and not any(pod.master_epoch and pod.main.running_since for pod in pods):
            feedback = replace(feedback, report_pending=False)
        return JobInputs(body, pods, context, self._ledger.foreign_names(body.metadata.uid), feedback)

    def inputs_without_spec(
        self, body: objects.CustomObject, pods: tuple[OwnPod, ...], quarantine: Quarantined | None
    ) -> JobInputs:
        """The inputs of a job that is quarantined, or deleted and kept by a finalizer."""
        return JobInputs(body, pods, self._contexts.without_spec(body), quarantine=quarantine)

    def job(self, inputs: JobInputs) -> Job:
        if not inputs.has_spec:
            return self._job_without_spec(inputs)
        meta, context = inputs.body.metadata, inputs.context
        parsed = self._specs.parse(inputs.body)
        return Job(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation,
            created=convert.epoch(meta.creation_timestamp or ""),
            status=self._specs.status(inputs.body),
            spec=parsed.with_grace_up_to(context.grace_ceiling),
            invalid=parsed.invalid,
            pods=tuple(map(self._first_seen.of_pod, inputs.pods)),
            foreign_names=inputs.foreign_names,
            fingerprints=parsed.fingerprints,
            provisioning=self._settings.node_provisioning,
            start_seconds=self._settings.start_timeout_seconds,
            what_if=meta.annotations.what_if,
            feedback=inputs.feedback,
            context=context,
        )

    def _job_without_spec(self, inputs: JobInputs) -> Job:
        body, meta = inputs.body, inputs.body.metadata
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
            pods=inputs.pods,
            quarantine=inputs.quarantine,
            context=inputs.context,
            deleted=meta.deletion_timestamp is not None,
        )
