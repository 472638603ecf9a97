"""The operator's settings for pods."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_api.template import GPU_RESOURCES
from elastic_operator.build.network_policy import JobNetwork


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """The operator's settings for pods. With an empty class name pods have no PriorityClass.

    `worker_image` brings the launcher into the pods of Elastic jobs; `worker_pull_secrets` are the Secrets of a job's
    namespace to pull it with. Without a `network` jobs have no NetworkPolicy.
    """

    master_priority_class: str = ""
    worker_priority_class: str = ""
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    worker_image: str = ""
    worker_pull_secrets: tuple[str, ...] = ()
    network: JobNetwork | None = None
