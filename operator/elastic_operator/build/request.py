"""Which pod to build, and what the operator's settings say about pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elastic_api.template import GPU_RESOURCES
from elastic_operator.build.network_policy import JobNetwork


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What the operator's settings say about pods. With an empty class name pods have no PriorityClass.

    `worker_image` brings the launcher into the pods of Elastic jobs; `worker_pull_secrets` are the Secrets of a job's
    namespace to pull it with. Without a `network` jobs have no NetworkPolicy.
    """

    master_priority_class: str = ""
    worker_priority_class: str = ""
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    worker_image: str = ""
    worker_pull_secrets: tuple[str, ...] = ()
    network: JobNetwork | None = None


class PodToCreate(Protocol):
    """Which pod: role and index, the node it is pinned to (None = the scheduler's choice), incarnation, `min:max`.

    Pods of Elastic jobs have the `master_epoch` and, for the master, the first `membership`. `old_secret`: they join
    pods of an older release, whose token is in a Secret of another name. `own_class`: they have the operator's
    PriorityClass, whatever the template says (97).
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
