"""A job in memory: the coordinator's code, members that follow its orders, and a clock that the test sets.

The invariants are checked at each message of the coordinator.
"""

from dataclasses import replace

from elastic_worker.coordinator.choose import RECONNECT_SECONDS
from elastic_worker.coordinator.decide import decide
from elastic_worker.coordinator.execute import Executor
from elastic_worker.coordinator.member import Member
from elastic_worker.coordinator.model import Generation
from elastic_worker.coordinator.state import CoordinatorState, Phase, Rules
from tests.worker.coordinator.states import failure, make_membership, make_pod


class Cluster:
    """Pods 0 to 5; the master is pod 0. Members stop only when `settle` is called, some answer only then, too."""

    def __init__(self, *, fewest=2, rules=None):
        self.now, self.fewest = 10.0, fewest
        self.state = CoordinatorState("u0", 1, rules or Rules(), started=self.now, phase_since=self.now)
        self.executor = self._executor()
        self.formed: list[Generation] = []
        self.stopping: set[str] = set()
        self.gone: set[str] = set()
        self.writing: set[str] = set()
        self.asked: dict[str, int] = {}
        self.over = ""
        self.memberships = 0

    def _executor(self):
        return Executor(self.state, lambda uids, message: [self._post(uid, message.to_json()) for uid in uids])

    # -- events -------------------------------------------------------------------------------------------------------

    def live(self, happenings):
        """Apply events, each of which is the name of a method and its arguments."""
        for name, *values in happenings:
            getattr(self, name)(*values)

    def gather(self):
        """Have all take part that can, and new pods, if they are fewer than the fewest; their uids, none if it is over.

        New pods come under new names.
        """
        here = {index for index in range(6) if (member := self._here(index)) and not member.is_leaving}
        if 0 not in here or self.over:
            return set()
        here |= set(range(10, 10 + max(0, self.fewest - len(here))))
        for index in here:
            self.arrive(index)
            self.warm(index)
        self.write_membership(here)
        return {f"u{index}" for index in here}

    def arrive(self, index):
        pod = replace(make_pod(index), is_master=f"u{index}" == self.state.own_uid)
        if pod.uid not in self.state.members and not self.over:
            self.state.members[pod.uid] = Member(pod, store_port=4000)
        self.look()

    def warm(self, index):
        member = self._here(index)
        if member is not None:
            member.warm_at = member.warm_at or self.now
        self.look()

    def lose(self, index):
        member = self._here(index)
        if member is not None:
            member.disconnect(self.now + RECONNECT_SECONDS)
            self.gone.add(member.pod.uid)
            self.stopping.discard(member.pod.uid)
        self.look()

    def leave(self, index):
        member = self._here(index)
        if member is not None and not member.is_leaving:
            member.start_leaving(self.now + 30.0)
        self.look()

    def fail(self, index):
        member = self._here(index)
        if member is not None and (number := member.processes.number):
            member.failure = failure(index, generation=number)
        self.look()

    def write_membership(self, indices):
        self.memberships += 1
        self.state.membership = make_membership(*indices, number=self.memberships, fewest=self.fewest, most=4096)
        self.look()

    def checkpoint(self, index):
        """A pod has found a complete checkpoint."""
        member = self._here(index)
        if member is not None:
            self.writing.discard(member.pod.uid)
            if self.state.phase == Phase.ALIGNING and member.pod.uid in self.state.group.uids:
                self.executor.aligned(member, self.now, whole=True, marked=False)
        self.look()

    def write(self, index):
        """A pod begins to write a checkpoint, unless it may have been asked to stand still."""
        member = self._here(index)
        if member is not None and member.processes.number and self.state.still_deadline is None:
            self.writing.add(member.pod.uid)

    def answer(self):
        """All pods that were asked to stand still answer yes."""
        asked, self.asked = self.asked, {}
        for uid, round_ in asked.items():
            still = uid not in self.writing
            self.executor.aligning.stood(self.state.members[uid], self.now, still=still, round_=round_)
        self.look()

    def settle(self):
        """All pods that were ordered to stop have stopped."""
        for uid in sorted(self.stopping):
            self.executor.stopped(self.state.members[uid], None, unkillable="")
        self.stopping.clear()
        self.look()

    def wait(self, seconds):
        self.now += seconds
        self.look()

    def look(self):
        for _ in range(50):
            decision = decide(self.state, self.now)
            if decision.act == "stay":
                self.executor.release_leaving()
                return
            self._check_nobody_writes(decision)
            self.executor.do(decision, self.now)
        raise AssertionError(f"it decides without end: {decision}")

    # -- invariants ---------------------------------------------------------------------------------------------------

    def _post(self, uid, message):
        if "done" in message or "fail" in message:
            self.over = "done" if "done" in message else "failed"
        member = self.state.members.get(uid)
        if member is None or not member.is_connected:
            return
        if "still" in message:
            self.asked[uid] = message["still"]["round"]
        if "align" in message:
            self.asked.pop(uid, None)
        if "stop" in message:
            self.stopping.add(uid)
            self.writing.discard(uid)
        if "form" in message:
            member.store_port = 4000
            self._check(Generation.from_message(message["form"]), uid)
        if "leave" in message:
            assert not member.processes.number, f"{uid} may go while its processes run"
            member.mark_gone()
            self.gone.add(uid)

    def _check_nobody_writes(self, decision):
        planned = decision.act == "stop" and decision.reason in ("Join", "Leave")
        if planned and self.state.rules.align_seconds is not None and "; " not in decision.sentence:
            here = {uid for uid in self.state.group.uids if self.state.members[uid].is_connected}
            assert not here & self.writing, "it is stopped while it writes, and nothing is said of it"

    def _check(self, group, uid):
        assert uid in group.uids
        assert not self.stopping, f"{group.number} forms while {self.stopping} still stop"
        if self.formed and self.formed[-1].number == group.number:
            return
        assert all(group.number > earlier.number for earlier in self.formed)
        assert "u0" in group.uids
        assert self.state.membership.largest(len(group.pods)) == len(group.pods)
        assert group.uids <= self.state.membership.members | {"u0"}
        assert not group.uids & self.gone, "it counts on pods that are gone"
        before = self.formed[-1] if self.formed else None
        if before is not None and before.membership_number == group.membership_number:
            left = {m.pod.uid for m in self.state.members.values() if m.is_leaving}
            others = before.uids - left
            stay = others & group.uids
            assert 2 * len(stay) > len(others) or stay == others, "two halves may train"
        self.formed.append(group)

    def _here(self, index):
        member = self.state.members.get(f"u{index}")
        return member if member is not None and member.is_connected else None
