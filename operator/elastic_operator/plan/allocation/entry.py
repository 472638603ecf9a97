"""What one job holds while a pass is decided: members that it keeps, members that it gives up, seats for new pods."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from elastic_operator.plan.allocation.accounts import Account
from elastic_operator.plan.allocation.free import PodRequirements
from elastic_operator.plan.facts.decisions import Assignment
from elastic_operator.plan.facts.roles import master_first
from elastic_operator.plan.facts.snapshot import JobDemand, Member, PendingPod
from elastic_worker.contract import ROLE_MASTER


class Seat(NamedTuple):
    """A place for a pod that is to be created. It is a tuple because the seats of large jobs are compared
    very often.
    """

    role: str
    node: int
    ready: bool


@dataclass(slots=True, eq=False)
class Entry:
    """One job, or one pending pod of others (`pending`, treated as a job of one pod), in this pass.

    `rank` is its position in the order of jobs, 0 first; `team` is the name of its team. `account` is charged for its
    GPUs (None: it asks for none). `sizes` are the sizes that it may reach. `staying` are the members that its own
    limits let it keep, those to keep longest first; `kept` are the members that it keeps. `at` maps each member's uid
    to the number of the node that it is counted on.

    `served`: it has its minimum, or it keeps what it has. `preempted`: another job took all its pods. `saves_up`: it is
    not served, but its seats are held for it (37). `requests_nodes`: it requests new nodes for what its
    minimum lacks (49).

    `times_preempted` counts how often another team took pods of it in this pass. `takers` are the entries that took
    pods of it, `took` the pods that it took. `at_rest` is its assignment in passes that do not change it.
    """

    demand: JobDemand
    rank: int
    team: str
    sizes: tuple[int, ...]
    master: PodRequirements
    worker: PodRequirements
    account: Account | None = None
    at: dict[str, int] = field(default_factory=dict)
    staying: tuple[Member, ...] = ()
    kept: tuple[Member, ...] = ()
    seats: tuple[Seat, ...] = ()
    served: bool = False
    preempted: bool = False
    saves_up: bool = False
    requests_nodes: bool = False
    times_preempted: int = 0
    takers: tuple[Entry, ...] = ()
    took: tuple[tuple[Entry, Member], ...] = ()
    pending: PendingPod | None = None
    at_rest: Assignment | None = None

    @property
    def gang(self) -> str:
        """The gang of the pending pod; "" for a job and for a pod that is on its own."""
        return self.pending.gang if self.pending else ""

    @property
    def promised(self) -> bool:
        """Whether it is a pending pod that a node is kept for."""
        return self.pending is not None and self.pending.promised

    @property
    def size(self) -> int:
        """The number of pods that it keeps and gets."""
        return len(self.kept) + len(self.seats)

    @property
    def gives(self) -> bool:
        """Whether it gives up any member."""
        return len(self.kept) < len(self.demand.members)

    @property
    def minimum(self) -> int:
        """The smallest size that it may run with; 0 for a job that gets no new pods (see `JobDemand.sizes`)."""
        return self.demand.sizes[0] if self.demand.sizes else 0

    @property
    def has_master(self) -> bool:
        """Whether it keeps a master or gets one."""
        return bool(self.kept and self.kept[0].role == ROLE_MASTER) or any(s.role == ROLE_MASTER for s in self.seats)

    @property
    def starts_anew(self) -> bool:
        """Whether it gets a new master in place of its old one. Then no member goes on, because a group ends with its
        master (13).
        """
        had_master = bool(self.staying) and self.staying[0].role == ROLE_MASTER
        return had_master and self.gives and any(seat.role == ROLE_MASTER for seat in self.seats)

    @property
    def complete(self) -> bool:
        """Whether it has, or gets, its minimum. A job that gets no new pods counts as complete with any size."""
        return self.size >= self.minimum and (self.has_master or not self.demand.sizes)

    @property
    def spare(self) -> int:
        """The number of workers that it can lose without falling below its minimum.

        A job without a master counts as if it had one: its new master is still to come.
        """
        return max(0, self.size + (not self.has_master) - self.minimum)

    def is_foreign(self, other: Entry) -> bool:
        """Whether the other one is of another team, or a pending pod of others: what goes to it is an eviction."""
        return other.team != self.team or other.pending is not None

    def missing(self, size: int) -> tuple[bool, int]:
        """What it lacks for `size`: whether the master, and how many workers."""
        no_master = not self.has_master
        return no_master, max(0, size - self.size - no_master)

    def gpus_missing(self, size: int) -> int:
        """The GPUs of the pods that it lacks for `size`."""
        master, workers = self.missing(size)
        return self.master.gpus * master + self.worker.gpus * workers

    @property
    def next_size(self) -> int | None:
        """The next larger size that it may reach; None if there is none."""
        at = bisect_right(self.sizes, self.size)
        return self.sizes[at] if at < len(self.sizes) else None

    def takes(self, now: float) -> bool:
        """Whether pods of others may go for it (139)."""
        return self.demand.takes and now >= self.demand.takes_from

    def failed_at(self, size: int, now: float) -> bool:
        """Whether a try with that size failed and its back-off is not over."""
        failed = self.demand.failed_size
        return failed is not None and size >= failed and now < self.demand.failed_until

    def delayed_at(self, size: int, now: float) -> bool:
        """Whether that size is growth for which the job must still wait."""
        return now < self.demand.grow_at(size)

    def next_step(self, now: float) -> int | None:
        """The next larger size that it may have now. If growth costs work, a larger step is worth it sooner (148)."""
        size = self.next_size
        if size is None or size <= self.demand.free_up_to or not self.demand.growth_cost:
            return size
        at = bisect_left(self.sizes, -now, lo=self.sizes.index(size), key=lambda size: -self.demand.grow_at(size))
        return self.sizes[at] if at < len(self.sizes) else None

    def fits_more(self, count: int) -> bool:
        """Whether `count` more pods, and the master if it lacks one, fit into its largest size."""
        return self.size + count + (not self.has_master) <= self.demand.sizes[-1]

    def requirements(self, role: str) -> PodRequirements:
        """What a pod of that role requires of its node."""
        return self.master if role == ROLE_MASTER else self.worker

    @property
    def near(self) -> frozenset[int]:
        """The numbers of the nodes on which it has or gets pods."""
        return frozenset([self.at[m.uid] for m in self.kept if m.uid in self.at] + [s.node for s in self.seats])

    @property
    def gpus(self) -> int:
        """The GPUs of the pods that it has and gets, by what its template asks for now."""
        return self.master.gpus * self.has_master + self.worker.gpus * (self.size - self.has_master)


def keep_order(member: Member) -> tuple[bool, int, str]:
    """Sorts members, those to keep longest first: the master, then workers by index."""
    return *master_first(member), member.uid
