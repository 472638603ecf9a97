"""The entries of all jobs and foreign pods, in the order in which they are served, by team and by account."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import count
from operator import attrgetter

from elastic_operator.memory import Changes, drop_older_half
from elastic_operator.plan.allocation.accounts import Account, Accounts
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.node_board import NodeBoard
from elastic_operator.plan.allocation.scale_up_queues import ScaleUpQueues
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.foreign_pod import ForeignPod
from elastic_operator.plan.facts.pod_order import keep_order

_MAX_CLASSES = 10_000
"""The most equivalence classes whose numbers are kept. If a number is dropped, the allocation does some work twice."""


class Queues:
    """The entries of all jobs and foreign pods, kept up to date with the input.

    Beside all of them:
        unserved       wait for their minimum
        scale_up       may grow
        handled_first  must be handled before anything is decided: they have members to release, members without a
                       node, or a nomination
        between_sizes  have a size that is not allowed
        provisioning   have pods that request new nodes; by account
        gangs          the foreign pods of each gang
    """

    def __init__(self, board: NodeBoard, accounts: Accounts) -> None:
        self._board, self._accounts = board, accounts
        self._changes = Changes[JobDemand | ForeignPod](attrgetter("uid"))
        self.by_uid: dict[str, Entry] = {}
        self._class_numbers = defaultdict[Hashable, int](count().__next__)
        """A new number for each equivalence class, because numbers are compared faster than the parts of a class."""
        self.entries: tuple[Entry, ...] = ()
        self.by_account: dict[Account, list[Entry]] = {}
        self.by_team: dict[str, list[Entry]] = {}
        self.unserved: set[Entry] = set()
        self.scale_up = ScaleUpQueues()
        self.handled_first: set[Entry] = set()
        self.between_sizes: set[Entry] = set()
        self.provisioning: dict[Account, set[Entry]] = {}
        self.provisioning_gpus: Counter[Account] = Counter()
        """The GPUs of the whole minima of `provisioning`, including the part that the entries have."""
        self.gangs: dict[str, set[Entry]] = {}

    def renew(
        self, inputs: AllocationInputs, *, leave: Callable[[Entry], None], join: Callable[[Iterable[Entry]], None]
    ) -> None:
        """Renew the entries of changed jobs: `leave` is called with each old one, `join` with all new ones."""
        foreign_pods = [
            pod
            for pod in inputs.foreign_pods
            if not pod.unplannable or pod.nominated in self._board.number  # it holds its room (206)
        ]
        changed, changed_to = self._changes.take((*inputs.jobs, *foreign_pods))
        gone = {one.uid: self.by_uid[one.uid] for one in changed}
        for entry in gone.values():
            leave(entry)
            self._forget(entry)
        new = [self._entry(one) for one in changed_to]
        join(new)
        for entry in new:
            self._classify(entry, inputs.now)
        self._sort_in(gone, new)

    def _sort_in(self, gone: Mapping[str, Entry], new: Iterable[Entry]) -> None:
        """Put the new entries into their places: into those of the entries that they replace, if all can be there."""
        replaced = [(gone[entry.demand.uid], entry) for entry in new if entry.demand.uid in gone]
        entries = list(self.entries)
        for before, entry in replaced:
            entry.position = before.position
            entries[entry.position] = entry
        if len(replaced) < len(gone) or len(entries) < len(self.by_uid) or any(a.order != b.order for a, b in replaced):
            entries = sorted(self.by_uid.values(), key=attrgetter("order"))
            for rank, entry in enumerate(entries):
                entry.position = rank
        self.entries = tuple(entries)

    def _entry(self, one: JobDemand | ForeignPod) -> Entry:
        job, foreign_pod = (one.demand, one) if isinstance(one, ForeignPod) else (one, None)
        shape = job.shape
        master, worker = self._board.requirements(shape.master), self._board.requirements(shape.worker)
        rules = self._accounts.teams.team_of(job.namespace)
        team = rules.name
        order = _order(job, in_turns=rules.quantum_seconds is not None)
        entry = Entry(job, order, team, job.sizes, master, worker)
        if foreign_pod is not None:
            entry.foreign_pod, entry.gang, entry.may_be_split = foreign_pod, foreign_pod.gang, foreign_pod.may_be_split
            entry.reserved_node, entry.promised_node = foreign_pod.reserved, foreign_pod.promised_node
        if shape.flavor and shape.flavor in self._accounts.capacity and (master.gpus or worker.gpus):
            entry.account = self._accounts.account_of(job.namespace, shape.flavor)
            self.by_account.setdefault(entry.account, []).append(entry)
        foreign = foreign_pod and (foreign_pod.preempts, foreign_pod.may_be_split)
        rights = shape.flavor, job.priority, job.preemptible, foreign
        entry.equivalence_class = self._class_numbers[team, entry.account, master, worker, rights]
        drop_older_half(self._class_numbers, _MAX_CLASSES)
        entry.sizes = _allowed_sizes(entry)
        entry.keepable = entry.kept = tuple(sorted(job.members, key=keep_order))
        self.by_team.setdefault(team, []).append(entry)
        self.by_uid[job.uid] = entry
        if entry.gang:
            self.gangs.setdefault(entry.gang, set()).add(entry)
        return entry

    def _forget(self, entry: Entry) -> None:
        del self.by_uid[entry.demand.uid]
        self.by_team[entry.team].remove(entry)
        if entry.account:
            self.by_account[entry.account].remove(entry)
        if entry.gang:
            self.gangs[entry.gang].discard(entry)
            if not self.gangs[entry.gang]:
                del self.gangs[entry.gang]
        self.scale_up.discard(entry)
        for group in (self.unserved, self.handled_first, self.between_sizes):
            group.discard(entry)
        if entry.account and entry in self.provisioning.get(entry.account, ()):
            self.provisioning[entry.account].remove(entry)
            self.provisioning_gpus[entry.account] -= entry.demand.gpus_of_size(entry.demand.minimum)

    def _classify(self, entry: Entry, now: float) -> None:
        demand = entry.demand
        entry.admitted = not demand.sizes or (bool(entry.sizes) and demand.wants_pods and entry.has_minimum)
        too_many = bool(demand.sizes) and len(entry.kept) > demand.sizes[-1] - (not entry.has_master)
        releases = bool(entry.kept) and (too_many or not demand.wants_pods)
        if entry.promised_node or releases or any(member.node is None for member in entry.kept):
            self.handled_first.add(entry)
        if demand.provisioning_pods and entry.account and demand.sizes:
            self.provisioning.setdefault(entry.account, set()).add(entry)
            self.provisioning_gpus[entry.account] += entry.demand.gpus_of_size(entry.demand.minimum)
        if not (demand.wants_pods and entry.sizes):
            return
        if not entry.admitted:
            self.unserved.add(entry)
        elif entry.next_size is not None:
            self.scale_up.add(entry, now)
        if entry.admitted and entry.size not in demand.sizes:
            self.between_sizes.add(entry)


def over_per_job_limit(entry: Entry, size: int) -> bool:
    """Whether a job of that size would have more GPUs than one job of its team may have."""
    most = entry.account.team.max_gpus_per_job if entry.account else None
    return most is not None and entry.demand.gpus_of_size(size) > most


def _allowed_sizes(entry: Entry) -> tuple[int, ...]:
    """The sizes that a job may have. Those up to its present size are always among them."""
    demand, has = entry.demand, len(entry.demand.members)
    limit = entry.account.team.max_gpus_per_job if entry.account else None
    if limit is None and not demand.shape.flavor_problem:
        return demand.sizes
    return tuple(
        n for n in demand.sizes if n <= has or not (demand.shape.flavor_problem or over_per_job_limit(entry, n))
    )


def _order(job: JobDemand, *, in_turns: bool) -> tuple[int, bool, float, str]:
    """Sort key: priority, whether the job has its minimum, age, uid. If the team's jobs take turns, the job that has
    waited longest counts as the oldest.
    """
    at_minimum = bool(job.sizes) and not job.lacks_minimum
    holds = job.is_admitted or at_minimum
    age = job.waiting_since if in_turns and not holds and job.waiting_since else job.created
    return -job.priority, not holds, age, job.uid
