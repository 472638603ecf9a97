"""What is decided: grants for all jobs (`allocate.py`), and the plan of one pass for one job (`settle.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from elastic_operator.api.status import JobStatus, Limit


@dataclass(frozen=True, slots=True)
class Slot:
    """A pod to create. `node` None leaves the place to the scheduler. `ready`: its room is free now, not just soon."""

    role: str
    index: int
    node: str | None
    ready: bool


class Assignment(NamedTuple):
    """What one job gets: `keep` and `release` partition its members by uid, `create` are the pods still missing.

    `replicas` = len(keep) + len(create); 0 or an allowed size, or below the minimum (only kept members, nothing to
    create) while a job that lost pods holds on to what nobody else needs.
    """

    replicas: int
    keep: tuple[str, ...]
    release: tuple[str, ...]
    create: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """A `Share` with its reasons: `limit` and `message` answer why the job is not bigger, or not running.

    `wake_at` is when, with nothing else changed, the answer may differ. `takers` name those for whom pods are released,
    `reclaimed` says that another team's are among them, `givers` names other teams' jobs that make way for it.
    """

    replicas: int
    keep: tuple[str, ...]
    release: tuple[str, ...]
    create: tuple[Slot, ...]
    limit: Limit
    message: str
    wake_at: float | None = None
    takers: tuple[str, ...] = ()
    reclaimed: bool = False
    givers: tuple[str, ...] = ()

    def holding(self, held: Set[str], size: int, without: Set[str] = frozenset()) -> Grant:
        """The same job, of that size so far, while the pods `held` stay, and those named in `without` get nothing.

        What it has lost comes all the same, where there is room now. That is never the room of what stays.
        """
        keep = (*self.keep, *(uid for uid in self.release if uid in held))
        release = tuple(uid for uid in self.release if uid not in held)
        soonest = sorted(self.create, key=lambda slot: not slot.ready)
        create = tuple(soonest[: max(0, max(size, self.replicas) - len(keep))])
        if release:
            takers = tuple(name for name in self.takers if name not in without)
            return replace(
                self, replicas=len(keep) + len(create), keep=keep, release=release, create=create, takers=takers
            )
        create = tuple(slot for slot in create if slot.ready)
        return replace(self, replicas=size or self.replicas, keep=keep, release=(), create=create, takers=(), givers=())


@dataclass(frozen=True, slots=True)
class Nomination:
    """A place for a foreign pod that waits: its node, and the pods (by uid) that must go from there first.

    `uid`, `namespace` and `name` are the waiting pod's, `losers` the jobs that lose the victims: uid to name. Without
    victims there is, or will be, room for it anyway. `reserved` is the node that the pod has a reservation for so far.
    """

    uid: str
    namespace: str
    name: str
    node: str
    victims: tuple[str, ...] = ()
    losers: Mapping[str, str] = field(default_factory=dict)
    reserved: str = ""

    @property
    def is_new(self) -> bool:
        """Whether the pod is to be nominated for this node first."""
        return self.node != self.reserved


@dataclass(frozen=True, slots=True)
class Eviction:
    """Pods (by uid) that a job loses to other teams, and the names of those who get their room."""

    job_uid: str
    pods: tuple[str, ...]
    takers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the pod of `slot` for `incarnation`, with `nnodes` in its environment.

    In Elastic mode with `master_epoch` there, too, and the master with the annotation `membership`; `old_secret`: with
    the Secret of the pods of an older release that it joins. `own_class`: with the operator's PriorityClass in
    place of the template's.
    """

    role: str
    index: int
    node: str | None
    incarnation: int
    nnodes: tuple[int, int]
    master_epoch: int = 0
    membership: str = ""
    old_secret: bool = False
    own_class: bool = False


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete exactly that pod (UID precondition). `force`: its node is gone, grace 0."""

    name: str
    uid: str
    reason: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the job: `type` is Normal or Warning."""

    reason: str
    message: str
    type: str = "Normal"


@dataclass(frozen=True, slots=True)
class Route:
    """Where the job's Service leads: the master's address and node; both "" for nowhere."""

    address: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Membership:
    """Tell exactly that master pod who is to take part: `text` is the new value of its annotation."""

    name: str
    uid: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pass wants done for one job, in this order: status if `commit_first`, deletes, creates, status, events.

    The master of an Elastic job gets the `membership` beside the deletes. Where all `creates` were made, the status is
    written with them (`counts.with_created`).

    `commit_first` is set when the status records a decision the actions follow from (a new incarnation, an end): a
    successor of this process must find it before it finds the actions' traces. `route` is where
    the job's Service is to lead, None to leave it.
    """

    status: JobStatus
    commit_first: bool = False
    deletes: tuple[DeletePod, ...] = ()
    creates: tuple[CreatePod, ...] = ()
    events: tuple[Event, ...] = ()
    delete_job: bool = False
    route: Route | None = None
    membership: Membership | None = None
    wake_at: float | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why nobody gives anything back now: a reason in one word, and the sentence."""

    reason: str
    message: str
