"""Writes the statuses of jobs, and learns which of their fields the API server drops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_api.job import PLURAL
from elastic_api.status import JobStatus
from elastic_operator.cluster import api_requests, objects
from elastic_operator.cluster.errors import Conflict, NotFound
from elastic_operator.cluster.pruned_fields import PrunedFields
from elastic_operator.cluster.session import Session
from elastic_operator.cluster.stores import Stores
from elastic_operator.plan.facts.job import Job


class JobStatuses:
    """Writes job statuses. `pruned_fields` are the fields that the API server drops."""

    def __init__(self, session: Session, stores: Stores, on_status_written: Callable[[Job, JobStatus], None]) -> None:
        self._session, self._stores, self._on_status_written = session, stores, on_status_written
        self.pruned_fields = PrunedFields(PLURAL)

    async def write(
        self, job: Job, status: JobStatus, *, stored_status: dict[str, Any], before_delete: bool = False
    ) -> bool:
        """Write the status; `stored_status` is the one that the API server has. Returns whether the job still exists.

        `before_delete`: whether deletions of pods wait for this write.

        The write names the newest known resourceVersion, and not the one that the decision was made from: the operator
        is the only writer of the status, and an edit of the job meanwhile wakes the loop anyway.

        Raises the errors of the cluster layer. After a Conflict the job has been read again.
        """
        new = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        body = self._stores.jobs.get(job.uid)
        if body is None:
            return False
        try:
            answer = await api_requests.patch_job_status(
                self._session,
                job.namespace,
                job.name,
                resource_version=body.metadata.resource_version,
                stored_status=stored_status,
                new=new,
                before_delete=before_delete,
            )
        except NotFound:
            self._stores.jobs.observe_deleted(job.uid)
            return False
        except Conflict:
            await self._refresh(job)
            raise
        if answer is not None:
            self.pruned_fields.compare(new, answer.get("status", {}))
            self._stores.jobs.observe(objects.decode(answer, objects.CustomObject))
            self._on_status_written(job, status)
        return True

    async def _refresh(self, job: Job) -> None:
        """Read the job again before the next try, because somebody else has written it."""
        try:
            answer = await api_requests.get_job(self._session, job.namespace, job.name)
        except NotFound:
            self._stores.jobs.observe_deleted(job.uid)
        else:
            self._stores.jobs.observe(objects.decode(answer, objects.CustomObject))
