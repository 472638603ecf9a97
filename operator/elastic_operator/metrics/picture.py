"""What is shown of jobs, policies and watches when somebody asks: as they are then, so that nothing stays behind.

A picture is taken in one go and is never changed, so it may be rendered in another thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic_operator.api.status import JobStatus
from elastic_operator.plan.job.observation import Observation


@dataclass(frozen=True, slots=True)
class JobPicture:
    """One job: as last looked at, and with the status of its last plan.

    `policy` is the quota policy of its namespace, "" where it has none. `seconds` are where its time went, by kind, and
    `moved_at` is when its step last moved (epoch seconds).
    """

    obs: Observation
    status: JobStatus
    policy: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    moved_at: float | None = None


@dataclass(frozen=True, slots=True)
class PolicyPicture:
    """A quota policy: its GPUs by flavor and kind (without a limit there is no such kind), and what holds of it."""

    name: str
    flavors: Mapping[str, Mapping[str, int]]
    conditions: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchPicture:
    """One watch: seconds since the server was last heard, lists after its first (None: it has its own way), errors."""

    age: float
    relists: int | None = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything. Jobs and policies are those of the process that leads; another one has none."""

    leads: bool = False
    jobs: tuple[JobPicture, ...] = ()
    policies: tuple[PolicyPicture, ...] = ()
    watches: Mapping[str, WatchPicture] = field(default_factory=dict)
    kopf_restarts: int = 0


NOTHING = Picture()
