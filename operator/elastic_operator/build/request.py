"""Which pod is to be built, and what the operator's settings say about pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elastic_operator.api.template import GPU_RESOURCES
from elastic_operator.build.network_policy import JobNetwork


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What the operator's settings say about pods. An empty class name leaves the pods without a PriorityClass.

    `worker_image` is the one that brings the launcher into the pods of Elastic jobs, and `worker_pull_secrets` are the
    Secrets of a job's namespace by which it is pulled. Without a `network` jobs have no NetworkPolicy.
    """

    master_priority_class: str = ""
    worker_priority_class: str = ""
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    worker_image: str = ""
    worker_pull_secrets: tuple[str, ...] = ()
    network: JobNetwork | None = None


class PodToCreate(Protocol):
    """Which pod: role and index, the node it is pinned to (None = the scheduler's choice), incarnation, `min:max`.

    Those of Elastic jobs have the `master_epoch` and, for the master, the `membership` to begin with; `old_secret`
    where they join pods of an older release, which have their token from a Secret of another name. Pods with
    `own_class` have the operator's PriorityClass, whatever the template says.
    """

    @property
    def role(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def node(self) -> str | None: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def nnodes(self) -> tuple[int, int]: ...
    @property
    def master_epoch(self) -> int: ...
    @property
    def membership(self) -> str: ...
    @property
    def old_secret(self) -> bool: ...
    @property
    def own_class(self) -> bool: ...
