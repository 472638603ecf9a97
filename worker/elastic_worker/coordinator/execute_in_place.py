"""Does what was decided for a group that changes in place: keeps the attempt, tells members, takes in their answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from elastic_worker.coordinator.changes import Changes
from elastic_worker.coordinator.choose import is_to_blame
from elastic_worker.coordinator.decision import Decision
from elastic_worker.coordinator.in_place import failed_attempts
from elastic_worker.coordinator.member import Member
from elastic_worker.coordinator.state import CoordinatorState, Regroup, Stage
from elastic_worker.coordinator.telling import Tell, tell_group
from elastic_worker.protocol import orders, reports
from elastic_worker.protocol.codec import Message

log = logging.getLogger(__name__)

MOST_MARGIN = 64


class InPlaceExecutor:
    """Carries out decisions on `state`; `handlers` take in what members answer."""

    def __init__(self, state: CoordinatorState, tell: Tell, changes: Changes) -> None:
        self._state, self._tell, self._changes = state, tell, changes
        self._progress_at_failure = -1
        self.acts: dict[str, Callable[[Decision, float], None]] = {
            "candidates": self._candidates,
            "host": self._host,
            "prepare": self._prepare,
            "ask": self._ask,
            "propose": self._propose,
            "bind": self._bind,
            "cancel": lambda _decision, _now: self.cancel(),
            "retry": lambda _decision, _now: self._retry(),
            "refuse": self._refuse,
            "park": self._park,
            "count": self._count,
        }
        self.handlers: dict[type[Message], Callable[[Member, Any, float], None]] = {
            reports.Ready: self._ready,
            reports.Stuck: self._stuck,
            reports.CutOff: self._cut_off,
            reports.Formed: self._formed,
            reports.Unformed: self._unformed,
            reports.Passed: self._passed,
            reports.SavedTogether: self._saved_together,
            reports.Agreed: self._agreed,
        }

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _candidates(self, decision: Decision, _now: float) -> None:
        for pod in decision.pods:
            self._state.members[pod.uid].get_ready()
        self._tell([pod.uid for pod in decision.pods], orders.Candidates())

    def _host(self, decision: Decision, _now: float) -> None:
        (pod,) = decision.pods
        self._state.members[pod.uid].hosts = True
        self._tell([pod.uid], orders.Host())

    def _prepare(self, decision: Decision, now: float) -> None:
        """Have the next group formed; it meets in the store that is kept ready for it."""
        state, attempt = self._state, decision.attempt
        assert attempt is not None
        attempt.since = now
        host = state.members[attempt.group.pods[0].uid]
        attempt.group = replace(attempt.group, store_port=host.store_port)
        state.attempt, state.attempts = attempt, attempt.number
        self._decided(decision, now)
        concerned = self._concerned(attempt)
        tell_group(
            state, self._tell, attempt.group, concerned, lambda told: orders.Prepare(told, attempt.key, attempt.broken)
        )

    def _decided(self, decision: Decision, now: float) -> None:
        group = self._state.group
        self._changes.decided(decision, len(group.pods) if group else 0, now)

    def _ask(self, _decision: Decision, now: float) -> None:
        attempt = self._attempt()
        if attempt.stage == Stage.PROPOSED:
            attempt.margin = min(2 * attempt.margin, MOST_MARGIN)
        if attempt.stage == Stage.FORMING:
            self._changes.mark("made", now)
        attempt.stage, attempt.passed, attempt.agreed = Stage.ASKING, {}, {}
        self._tell_old(orders.AskPassed(attempt.key))

    def _propose(self, _decision: Decision, _now: float) -> None:
        attempt = self._attempt()
        attempt.stage, attempt.tick = Stage.PROPOSED, max(attempt.passed.values()) + attempt.margin
        self._tell_old(orders.Propose(attempt.tick, attempt.key))

    def _bind(self, decision: Decision, now: float) -> None:
        """All go over, each at the step that was agreed on."""
        state, attempt, old = self._state, self._attempt(), self._state.group
        assert old is not None
        if attempt.starts_again:
            attempt.stage, attempt.since = Stage.SAVING, now
            self._tell_old(orders.Bind(None, attempt.key, save=True))
            return
        concerned = self._concerned(attempt)
        state.end_change()
        if not attempt.group.pods:
            state.parked = attempt.sentence
            self._tell_old(orders.Bind(None, attempt.key))
            return
        state.group = group = replace(attempt.group, step=state.step)
        state.members[group.pods[0].uid].store_port = 0
        self._changes.formed(group, decision.sentence, len(old.pods), now).lost = 0
        log.info("generation=%d pods=%d reason=%s in_place=1", group.number, len(group.pods), group.reason)
        for uid in concerned:
            state.members[uid].go_over(group.number if uid in group.uids else 0)
        tell_group(state, self._tell, group, concerned, lambda told: orders.Bind(told, attempt.key))

    def cancel(self) -> None:
        """Forget the change; members that wait for it go on."""
        state = self._state
        if state.attempt is not None:
            self._tell(self._concerned(state.attempt), orders.Cancel())
        state.attempt = None
        self._changes.drop_unfinished()

    def _retry(self) -> None:
        state, pods = self._state, self._attempt().group.pods
        state.tried, state.failed_attempts = pods, failed_attempts(state, pods) + 1
        self.cancel()

    def _refuse(self, _decision: Decision, _now: float) -> None:
        state, attempt = self._state, self._attempt()
        assert state.group is not None
        for pod in attempt.group.pods:
            if pod.uid not in state.group.uids:
                state.members[pod.uid].refuse()
        self.cancel()

    def _park(self, decision: Decision, now: float) -> None:
        """Too few are left, or all go: everybody waits, with the same step done."""
        state = self._state
        assert state.group is not None
        if decision.attempt is not None:
            self._decided(decision, now)
            decision.attempt.since = now
            state.attempt = decision.attempt
            return
        state.parked = decision.sentence
        self._tell_old(orders.Broken(state.group.number))

    def _count(self, decision: Decision, now: float) -> None:
        """A process failed; the job goes on without it, unless it happens again and again without a step in between."""
        state, failure = self._state, decision.failure
        assert failure is not None
        assert state.group is not None
        if is_to_blame(state, state.group, now) and not failure.is_consequence:
            state.failures = 1 if state.step > self._progress_at_failure else state.failures + 1
            self._progress_at_failure = state.step
            state.failure = failure
        log.warning("failures=%d %s", state.failures, decision.sentence)
        for member in state.members.values():
            member.failure = None

    def is_to_save(self, member: Member) -> bool:
        """Whether a pod that leaves writes a checkpoint before: it has the state, and no pod that stays has it.

        Of a group that has only just come about, its processes have the state when they are all in it.
        """
        state = self._state
        if not state.parked or state.group is None:
            return False
        members = state.members_of(state.group.pods)
        here = [each for each in members if each.where.connected and each.takes_part(state.group.number)]
        return not any(each.here for each in here) and here[:1] == [member]

    # -- answers -------------------------------------------------------------------------------------------------------

    def _stuck(self, member: Member, said: reports.Stuck, _now: float) -> None:
        member.stuck = said.rank

    def _cut_off(self, member: Member, said: reports.CutOff, _now: float) -> None:
        member.fall_out(said.generation)

    def _formed(self, member: Member, said: reports.Formed, _now: float) -> None:
        if attempt := self._attempt_of(said.at):
            attempt.formed.add(member.pod.uid)

    def _unformed(self, member: Member, said: reports.Unformed, _now: float) -> None:
        if attempt := self._attempt_of(said.at):
            attempt.problem = f"{member.pod.name}: {said.why}"

    def _passed(self, member: Member, said: reports.Passed, _now: float) -> None:
        attempt = self._attempt_of(said.at)
        if attempt is not None and attempt.stage == Stage.ASKING:
            attempt.passed[member.pod.uid] = said.boundaries

    def _saved_together(self, member: Member, said: reports.SavedTogether, _now: float) -> None:
        if attempt := self._attempt_of(said.at):
            attempt.saved[member.pod.uid] = said.is_saved

    def _agreed(self, member: Member, said: reports.Agreed, _now: float) -> None:
        attempt = self._attempt_of(said.at)
        if attempt is not None and attempt.stage == Stage.PROPOSED and said.tick == attempt.tick:
            attempt.agreed[member.pod.uid] = said.is_agreed

    def _attempt_of(self, key: list[int]) -> Regroup | None:
        """The change under way, if that is the one."""
        attempt = self._state.attempt
        return attempt if attempt is not None and attempt.key == key else None

    def _ready(self, member: Member, said: reports.Ready, now: float) -> None:
        if member.ready(said, now) and (change := self._changes.of(said.joined)):
            change.marks["joined"] = now

    # -- recipients ----------------------------------------------------------------------------------------------------

    def _attempt(self) -> Regroup:
        assert self._state.attempt is not None
        return self._state.attempt

    def _tell_old(self, message: Message) -> None:
        assert self._state.group is not None
        self._tell(self._state.group.places, message)

    def _concerned(self, attempt: Regroup) -> list[str]:
        """The connected pods of both groups."""
        assert self._state.group is not None
        uids = self._state.group.uids | attempt.group.uids
        return [uid for uid, member in self._state.members.items() if uid in uids and member.where.connected]
