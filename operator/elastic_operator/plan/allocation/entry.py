"""One job in a pass: the members that it keeps and gives up, and the placements for new pods."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from elastic_operator.plan.allocation.accounts import Account
from elastic_operator.plan.allocation.free_resources import PodRequirements
from elastic_operator.plan.allocation.node_board import Placement
from elastic_operator.plan.facts.decisions import Assignment
from elastic_operator.plan.facts.demand import JobDemand, Member
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER


class Victim(NamedTuple):
    """A preempted pod. Its job, the victim job, gives the pod up for another entry, the preemptor."""

    victim_job: Entry
    pod: Member
    preemptor: Entry


@dataclass(slots=True, eq=False)
class Entry:
    """One job, or one foreign pod, in this pass: the members that it keeps, and the placements that it gets.

    A foreign pod is treated as a job of one pod.
    """

    demand: JobDemand
    order: tuple[int, bool, float, str]
    """Sort key of the order in which jobs are served."""
    team: str
    """The name of the entry's team."""
    sizes: tuple[int, ...]
    """The sizes that the entry may reach."""
    master: PodRequirements
    worker: PodRequirements
    position: int = 0
    """The position in this order, 0 first."""
    equivalence_class: int = 0
    """Entries with the same number may have the same nodes and preempt the same pods (`equivalence_key`). A class whose
    number was dropped gets another number.
    """
    account: Account | None = None
    """The account that is charged for the entry's GPUs; None: the entry requests no GPUs."""
    node_of: dict[str, int] = field(default_factory=dict)
    """The number of the node on which a member is counted, by the member's uid."""
    keepable: tuple[Member, ...] = ()
    """The members that the entry may keep by its own limits, in the order of preference."""
    kept: tuple[Member, ...] = ()
    """The members that the entry keeps."""
    placements: tuple[Placement, ...] = ()
    admitted: bool = False
    """Whether the entry has its minimum, or keeps its pods without having it."""
    preempted: bool = False
    """Whether all its pods are preempted."""
    has_placements_set_aside: bool = False
    """Whether the entry does not have its minimum, and placements are set aside for it (37)."""
    requests_nodes: bool = False
    """Whether the entry requests new nodes for the missing pods of its minimum (49)."""
    times_preempted: int = 0
    """The number of times that another team preempted pods of the entry in this pass."""
    preemptors: tuple[Entry, ...] = ()
    """The entries for which pods of this entry were preempted, even if the entry keeps these pods after all."""
    victims: tuple[Victim, ...] = ()
    """The pods that were preempted for this entry. `Victims.taken_for` omits those that are kept after all."""
    foreign_pod: ForeignPod | None = None
    """The foreign pod; None for a job. The next four fields are the pod's."""
    gang: str = ""
    may_be_split: bool = False
    reserved_node: str = ""
    promised_node: str = ""
    assignment: Assignment | None = None
    """The assignment is computed when it is first read after a pass. Each change of the entry, and each undone change,
    makes it void.
    """

    @property
    def is_foreign_pod(self) -> bool:
        """Whether the entry is a foreign pod: kube-scheduler binds it to idle GPUs whatever a quota says."""
        return self.foreign_pod is not None

    @property
    def size(self) -> int:
        """The number of pods that the entry keeps and gets."""
        return len(self.kept) + len(self.placements)

    @property
    def loses_members(self) -> bool:
        """Whether the entry gives up any member."""
        return len(self.kept) < len(self.demand.members)

    @property
    def has_master(self) -> bool:
        """Whether the entry keeps a master or gets one."""
        return bool(self.kept and self.kept[0].role == ROLE_MASTER) or any(
            s.role == ROLE_MASTER for s in self.placements
        )

    @property
    def replaces_master(self) -> bool:
        """Whether the job gets another master. Then no member is kept, because a group ends with its master (13)."""
        had_master = bool(self.keepable) and self.keepable[0].role == ROLE_MASTER
        return had_master and self.loses_members and any(placement.role == ROLE_MASTER for placement in self.placements)

    @property
    def has_minimum(self) -> bool:
        """Whether the entry has, or gets, its minimum. A job that gets no new pods counts as complete with any size."""
        return self.size >= self.demand.minimum and (self.has_master or not self.demand.sizes)

    @property
    def spare_workers(self) -> int:
        """The number of workers that the job can lose without falling below its minimum.

        A job without a master counts as if it had one, because its new master is still to be created.
        """
        return max(0, self.size + (not self.has_master) - self.demand.minimum)

    def is_eviction_by(self, other: Entry) -> bool:
        """Whether a preemption for the other entry is an eviction: that entry is of another team, or a foreign pod."""
        return other.team != self.team or other.is_foreign_pod

    def accounts_shared_with(self, other: Entry) -> list[Account]:
        """The accounts that are charged for both entries: that of their team, and of the parents of both teams."""
        theirs = other.account.path if other.account else ()
        return [account for account in self.account.path if account in theirs] if self.account else []

    def missing(self, size: int) -> tuple[bool, int]:
        """Whether the entry lacks the master for `size`, and how many workers it lacks."""
        no_master = not self.has_master
        return no_master, max(0, size - self.size - no_master)

    def missing_roles(self, size: int) -> list[str]:
        """The roles of the pods that the entry lacks for `size`, the master first."""
        master, workers = self.missing(size)
        return [ROLE_MASTER] * master + [ROLE_WORKER] * workers

    def gpus_missing(self, size: int) -> int:
        """The GPUs of the pods that the entry lacks for `size`."""
        master, workers = self.missing(size)
        return self.master.gpus * master + self.worker.gpus * workers

    @property
    def next_size(self) -> int | None:
        """The next larger size that the job may reach; None if there is none."""
        at = bisect_right(self.sizes, self.size)
        return self.sizes[at] if at < len(self.sizes) else None

    def is_failed_size(self, size: int, now: float) -> bool:
        """Whether that size has failed and its back-off is not over."""
        failed = self.demand.failed
        return failed is not None and failed.delays(size, now)

    def next_step(self, now: float) -> int | None:
        """The next larger size that the job may have now. If growth costs work, a job waits less long for a larger
        step, so smaller steps may be skipped (148).
        """
        size = self.next_size
        if size is None or size <= self.demand.undelayed_size or not self.demand.resize_cost:
            return size
        at = bisect_left(self.sizes, -now, lo=self.sizes.index(size), key=lambda size: -self.demand.grow_at(size))
        return self.sizes[at] if at < len(self.sizes) else None

    @property
    def is_below_maximum(self) -> bool:
        """Whether one more pod, and the master if the job lacks one, fits into the job's largest size."""
        return self.size + (not self.has_master) < self.demand.sizes[-1]

    def requirements(self, role: str) -> PodRequirements:
        return self.master if role == ROLE_MASTER else self.worker

    @property
    def occupied_nodes(self) -> frozenset[int]:
        """The numbers of the nodes on which the entry has or gets pods."""
        return frozenset(
            [self.node_of[m.uid] for m in self.kept if m.uid in self.node_of] + [s.node_number for s in self.placements]
        )

    @property
    def gpus(self) -> int:
        """The GPUs of the pods that the entry has and gets, by the requests in its present template."""
        return self.master.gpus * self.has_master + self.worker.gpus * (self.size - self.has_master)
