"""What the allocator decides from a snapshot, as plain data: for each job its pods before and after, and
why not more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.decisions import Grant, Nomination
from elastic_operator.plan.facts.roles import MASTER, master_first
from elastic_operator.plan.facts.snapshot import JobDemand, Snapshot


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod and its node, None if the scheduler chooses. `ready`: a new pod's room is free now, and not only soon."""

    role: str
    index: int
    node: str | None
    ready: bool = True

    @property
    def order(self) -> tuple[str, bool, int]:
        """By node, the master first."""
        return self.node or "", *master_first(self)


@dataclass(frozen=True, slots=True)
class Decision:
    """What one job gets; `before` and `after` count pods, `gpus_before` and `gpus_after` their GPUs.

    `released_for` are the jobs and pods for which some of its own are released, as `namespace/name`.
    """

    namespace: str
    name: str
    uid: str
    team: str
    flavor: str
    before: int
    after: int
    gpus_before: int
    gpus_after: int
    keep: tuple[Placed, ...]
    release: tuple[Placed, ...]
    create: tuple[Placed, ...]
    released_for: tuple[str, ...]
    limit: str
    message: str
    wake_at: float | None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that is decided from one snapshot: about jobs by namespace and name, and about pods that are not ours."""

    jobs: tuple[Decision, ...]
    reclaims: tuple[Nomination, ...]


def decide(snapshot: Snapshot) -> Outcome:
    """What the allocator decides, in an order that does not depend on the order of the input."""
    granted = allocate(snapshot)
    jobs = sorted(snapshot.jobs, key=lambda job: (job.namespace, job.name, job.uid))
    return Outcome(
        jobs=tuple(_decision(job, granted[job.uid], team_name(snapshot, job.namespace)) for job in jobs),
        reclaims=tuple(sorted(granted.reclaims, key=lambda r: (r.namespace, r.name, r.uid))),
    )


def team_name(snapshot: Snapshot, namespace: str) -> str:
    """The team that a namespace belongs to."""
    return snapshot.team_of.get(namespace, f"namespace {namespace}")


def in_words(pods: Iterable[Placed]) -> str:
    """Pods by node: `master, worker 0-2 on n1; worker 3 on n2`."""
    by_node = groupby(sorted(pods, key=lambda pod: pod.order), key=lambda pod: (pod.node, pod.ready))
    return "; ".join(_on_node(tuple(group), node, ready) for (node, ready), group in by_node)


def _decision(job: JobDemand, grant: Grant, team: str) -> Decision:
    members = {m.uid: Placed(m.role, m.index, m.node) for m in job.members}
    create = tuple(Placed(s.role, s.index, s.node, s.ready) for s in grant.create)
    return Decision(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        team=team,
        flavor=job.flavor,
        before=len(members),
        after=grant.replicas,
        gpus_before=_gpus(job, members.values()),
        gpus_after=_gpus(job, [*_placed(members, grant.keep), *create]),
        keep=_placed(members, grant.keep),
        release=_placed(members, grant.release),
        create=create,
        released_for=grant.takers,
        limit=str(grant.limit),
        message=grant.message,
        wake_at=grant.wake_at,
    )


def _placed(members: Mapping[str, Placed], uids: Sequence[str]) -> tuple[Placed, ...]:
    return tuple(sorted((members[uid] for uid in uids), key=lambda pod: pod.order))


def _gpus(job: JobDemand, pods: Iterable[Placed]) -> int:
    return sum(job.shape_of(pod.role).gpus for pod in pods)


def _on_node(pods: Sequence[Placed], node: str | None, ready: bool) -> str:
    roles = [MASTER] if any(pod.role == MASTER for pod in pods) else []
    indices = sorted(pod.index for pod in pods if pod.role != MASTER)
    roles += [f"worker {_ranges(indices)}"] if indices else []
    place = f"on {node}" if node else "where the scheduler finds room"
    return f"{', '.join(roles)} {place}{'' if ready else ' once its room is free'}"


def _ranges(numbers: Sequence[int]) -> str:
    """`0-2, 5` of ascending numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
