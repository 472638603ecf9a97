"""What one job holds while a pass is decided: members kept, members given up, seats for pods to come."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from elastic_operator.plan.accounts import Account
from elastic_operator.plan.decisions import Share
from elastic_operator.plan.model import JobDemand, Member, Request
from elastic_operator.plan.place import Spot
from elastic_operator.plan.room import Ask

MASTER = "master"
WORKER = "worker"


class Seat(NamedTuple):
    """A place for a pod to come. A tuple: those of a large job are compared very often."""

    role: str
    spot: Spot


@dataclass(slots=True, eq=False)
class Claim:
    """One job in this pass. `rank` is its place in the order of jobs, 0 first, `team` the name of its team.

    `account` is charged for its GPUs (None: it asks for none). `sizes` are the sizes it may reach; `staying` the
    members it may keep as far as its own limits go, in the order they are kept in; `kept` those of them that it keeps.
    `at` says which node (by number) each member counts on. `served`: it has its minimum, or keeps what it has whatever
    that is. `displaced`: it lost all its pods to another job. `reserves`: it is not served, but its seats are held for
    it. `asked`: so many GPUs are lacking of its minimum, and new nodes are asked for by pods that wait for
    these; `withheld`: they are not made for now, since they would take what becomes free for somebody else. `losses` is
    how often another team took pods of it. `takers` are those who took any, `took` the pods that it
    took. A `request` is a foreign pod that waits, in the guise of a job. `at_rest` is
    what it gets in passes that leave it alone.
    """

    job: JobDemand
    rank: int
    team: str
    sizes: tuple[int, ...]
    master: Ask
    worker: Ask
    account: Account | None = None
    at: dict[str, int] = field(default_factory=dict)
    staying: tuple[Member, ...] = ()
    kept: tuple[Member, ...] = ()
    seats: tuple[Seat, ...] = ()
    served: bool = False
    displaced: bool = False
    reserves: bool = False
    asked: int | None = None
    withheld: bool = False
    losses: int = 0
    takers: tuple[Claim, ...] = ()
    took: tuple[tuple[Claim, Member], ...] = ()
    request: Request | None = None
    at_rest: Share | None = None

    @property
    def gang(self) -> str:
        """The gang of the foreign pod that it is; "" for all others."""
        return self.request.gang if self.request else ""

    @property
    def taker(self) -> str:
        """The uid by which the brakes know it; pods of a gang are one."""
        return self.gang or self.job.uid

    @property
    def size(self) -> int:
        """Pods it has and gets."""
        return len(self.kept) + len(self.seats)

    @property
    def gives(self) -> bool:
        """Whether any of its members goes."""
        return len(self.kept) < len(self.job.members)

    @property
    def minimum(self) -> int:
        """The smallest size it may run with; 0 where it has no say (see `JobDemand.sizes`)."""
        return self.job.sizes[0] if self.job.sizes else 0

    @property
    def has_master(self) -> bool:
        """Whether a master is kept or comes."""
        return bool(self.kept and self.kept[0].role == MASTER) or any(s.role == MASTER for s in self.seats)

    @property
    def starts_anew(self) -> bool:
        """Whether its master comes elsewhere: then none of its members goes on, as a group ends with its master."""
        had_master = bool(self.staying) and self.staying[0].role == MASTER
        return had_master and self.gives and any(seat.role == MASTER for seat in self.seats)

    @property
    def complete(self) -> bool:
        """Whether it has, or gets, its minimum; whatever one has that has no say."""
        return self.size >= self.minimum and (self.has_master or not self.job.sizes)

    @property
    def spare(self) -> int:
        """Workers that it can lose and still be complete, or still need no other worker (when it has no master)."""
        return max(0, self.size + (not self.has_master) - self.minimum)

    def missing(self, size: int) -> tuple[bool, int]:
        """What `size` still takes: whether the master, and how many workers."""
        no_master = not self.has_master
        return no_master, max(0, size - self.size - no_master)

    def gpus_missing(self, size: int) -> int:
        """The GPUs of what `size` still takes."""
        master, workers = self.missing(size)
        return self.master.gpus * master + self.worker.gpus * workers

    @property
    def next_size(self) -> int | None:
        """The next larger size it may reach."""
        at = bisect_right(self.sizes, self.size)
        return self.sizes[at] if at < len(self.sizes) else None

    def takes(self, now: float) -> bool:
        """Whether others may go for it."""
        return self.job.takes and now >= self.job.takes_from

    def failed_at(self, size: int, now: float) -> bool:
        """Whether that size failed and must still wait."""
        failed = self.job.failed_size
        return failed is not None and size >= failed and now < self.job.failed_until

    def delayed_at(self, size: int, now: float) -> bool:
        """Whether that size is growth, and growth must still wait."""
        return now < self.job.grow_at(size)

    def next_step(self, now: float) -> int | None:
        """The next larger size that it may have now: where growth costs it work, a larger one is worth it sooner."""
        size = self.next_size
        if size is None or size <= self.job.free_up_to or not self.job.growth_cost:
            return size
        at = bisect_left(self.sizes, -now, lo=self.sizes.index(size), key=lambda size: -self.job.grow_at(size))
        return self.sizes[at] if at < len(self.sizes) else None

    def fits_more(self, count: int) -> bool:
        """Whether its largest size leaves room for so many pods, and for its master."""
        return self.size + count + (not self.has_master) <= self.job.sizes[-1]

    def ask(self, role: str) -> Ask:
        """What a pod of that role asks of its node."""
        return self.master if role == MASTER else self.worker

    @property
    def near(self) -> frozenset[int]:
        """The nodes it has pods on, by number."""
        return frozenset([self.at[m.uid] for m in self.kept if m.uid in self.at] + [s.spot.node for s in self.seats])

    @property
    def gpus(self) -> int:
        """GPUs of the pods it has and gets, by what its pods ask for now."""
        return self.master.gpus * self.has_master + self.worker.gpus * (self.size - self.has_master)

    @property
    def largest_gpus(self) -> int:
        """GPUs of its largest size."""
        return self.gpus_at(self.sizes[-1]) if self.sizes else 0

    def gpus_at(self, size: int) -> int:
        """GPUs of that size, its master included."""
        return self.master.gpus + self.worker.gpus * (size - 1)


def keep_order(member: Member) -> tuple[bool, int, str]:
    """Master first, then workers by index: who is kept longest comes first."""
    return member.role != MASTER, member.index, member.uid
