"""Carries out decisions for a group that changes in place: keeps the attempt, and handles the members' answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from elastic_worker.coordinator.changes import Changes
from elastic_worker.coordinator.choose import is_script_failure
from elastic_worker.coordinator.decision import Decision
from elastic_worker.coordinator.in_place import failed_attempts
from elastic_worker.coordinator.member import Member
from elastic_worker.coordinator.outbox import Send, send_group
from elastic_worker.coordinator.state import CoordinatorState, RegroupAttempt, Stage
from elastic_worker.protocol import orders, reports
from elastic_worker.protocol.codec import Message

log = logging.getLogger(__name__)

MOST_MARGIN = 64
"""The largest distance, in boundaries, between the group and the boundary that is proposed to it."""


class InPlaceExecutor:
    """Carries out decisions on `state`: `acts` by the name of the decision. `handlers` take the members' answers."""

    def __init__(self, state: CoordinatorState, send: Send, changes: Changes) -> None:
        self._state, self._send, self._changes = state, send, changes
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
            "prepare_wait": self._prepare_wait,
            "wait_broken": self._wait_broken,
            "count_failure": self._count_failure,
        }
        self.handlers: dict[type[Message], Callable[[Member, Any, float], None]] = {
            reports.Ready: self._on_ready,
            reports.Stuck: self._on_stuck,
            reports.CutOff: self._on_cut_off,
            reports.Formed: self._on_formed,
            reports.Unformed: self._on_unformed,
            reports.AtBoundary: self._on_at_boundary,
            reports.SavedTogether: self._on_saved_together,
            reports.Agreed: self._on_agreed,
        }

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _candidates(self, decision: Decision, _now: float) -> None:
        for pod in decision.pods:
            self._state.members[pod.uid].start_missing()
        self._send([pod.uid for pod in decision.pods], orders.Candidates())

    def _host(self, decision: Decision, _now: float) -> None:
        (pod,) = decision.pods
        self._state.members[pod.uid].hosts = True
        self._send([pod.uid], orders.Host())

    def _prepare(self, decision: Decision, now: float) -> None:
        """Order the forming of the next group, which meets in the store that its first pod keeps ready."""
        state, attempt = self._state, decision.attempt
        assert attempt is not None
        attempt.since = now
        host = state.members[attempt.group.pods[0].uid]
        attempt.group = replace(attempt.group, store_port=host.store_port)
        state.attempt, state.attempts = attempt, attempt.number
        self._decided(decision, now)
        recipients = self._recipients(attempt)
        send_group(
            state, self._send, attempt.group, recipients, lambda part: orders.Prepare(part, attempt.key, attempt.broken)
        )

    def _decided(self, decision: Decision, now: float) -> None:
        group = self._state.group
        self._changes.note_decision(decision, len(group.pods) if group else 0, now)

    def _ask(self, _decision: Decision, now: float) -> None:
        attempt = self._attempt()
        if attempt.stage == Stage.PROPOSED:
            attempt.margin = min(2 * attempt.margin, MOST_MARGIN)
        if attempt.stage == Stage.FORMING:
            self._changes.mark("made", now)
        attempt.stage, attempt.boundaries, attempt.agreed = Stage.ASKING, {}, {}
        self._send_to_group(orders.AskBoundary(attempt.key))

    def _propose(self, _decision: Decision, _now: float) -> None:
        attempt = self._attempt()
        attempt.stage, attempt.boundary = Stage.PROPOSED, max(attempt.boundaries.values()) + attempt.margin
        self._send_to_group(orders.Propose(attempt.boundary, attempt.key))

    def _bind(self, decision: Decision, now: float) -> None:
        """Order all processes to switch at the boundary that was agreed on."""
        state, attempt, old = self._state, self._attempt(), self._state.group
        assert old is not None
        if attempt.restarts:
            attempt.stage, attempt.since = Stage.SAVING, now
            self._send_to_group(orders.Bind(None, attempt.key, save=True))
            return
        recipients = self._recipients(attempt)
        state.end_change()
        if not attempt.group.pods:
            state.parked = attempt.sentence
            self._send_to_group(orders.Bind(None, attempt.key))
            return
        state.group = group = replace(attempt.group, step=state.step)
        state.members[group.pods[0].uid].store_port = 0
        self._changes.note_formed(group, decision.sentence, len(old.pods), now).lost = 0
        log.info("generation=%d pods=%d reason=%s in_place=1", group.number, len(group.pods), group.reason)
        for uid in recipients:
            state.members[uid].switch_to(group.number if uid in group.uids else 0)
        send_group(state, self._send, group, recipients, lambda part: orders.Bind(part, attempt.key))

    def cancel(self) -> None:
        """Give up the attempt; members that wait for it continue training."""
        state = self._state
        if state.attempt is not None:
            self._send(self._recipients(state.attempt), orders.Cancel())
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

    def _prepare_wait(self, decision: Decision, now: float) -> None:
        """Begin to hold all processes after the same step: too few pods are left, or all leave or restart."""
        assert decision.attempt is not None
        self._decided(decision, now)
        decision.attempt.since = now
        self._state.attempt = decision.attempt

    def _wait_broken(self, decision: Decision, _now: float) -> None:
        """Let the processes of a broken group wait, with the state in memory."""
        state = self._state
        assert state.group is not None
        state.parked = decision.sentence
        self._send_to_group(orders.Broken(state.group.number))

    def _count_failure(self, decision: Decision, now: float) -> None:
        """Count a failure, after which the job continues without the process. A step in between resets the count."""
        state, failure = self._state, decision.failure
        assert failure is not None
        assert state.group is not None
        if is_script_failure(state, state.group, now) and not failure.is_consequence:
            state.failures = 1 if state.step > self._progress_at_failure else state.failures + 1
            self._progress_at_failure = state.step
            state.failure = failure
        log.warning("failures=%d %s", state.failures, decision.sentence)
        for member in state.members.values():
            member.failure = None

    def is_to_save(self, member: Member) -> bool:
        """Whether a leaving pod writes a checkpoint: it is the first that has the state, and no staying pod has it.

        The pods that have the state are those whose processes are in the group, or on their way to it.
        """
        state = self._state
        if not state.parked or state.group is None:
            return False
        members = state.members_of(state.group.pods)
        holders = [each for each in members if each.is_connected and each.belongs_to(state.group.number)]
        return not any(each.is_available for each in holders) and holders[:1] == [member]

    # -- answers -------------------------------------------------------------------------------------------------------

    def _on_stuck(self, member: Member, report: reports.Stuck, _now: float) -> None:
        member.stuck = report.rank

    def _on_cut_off(self, member: Member, report: reports.CutOff, _now: float) -> None:
        member.fall_out(report.generation)

    def _on_formed(self, member: Member, report: reports.Formed, _now: float) -> None:
        if attempt := self._attempt_of(report.at):
            attempt.formed.add(member.pod.uid)

    def _on_unformed(self, member: Member, report: reports.Unformed, _now: float) -> None:
        if attempt := self._attempt_of(report.at):
            attempt.problem = f"{member.pod.name}: {report.why}"

    def _on_at_boundary(self, member: Member, report: reports.AtBoundary, _now: float) -> None:
        attempt = self._attempt_of(report.at)
        if attempt is not None and attempt.stage == Stage.ASKING:
            attempt.boundaries[member.pod.uid] = report.boundary

    def _on_saved_together(self, member: Member, report: reports.SavedTogether, _now: float) -> None:
        if attempt := self._attempt_of(report.at):
            attempt.saved[member.pod.uid] = report.is_saved

    def _on_agreed(self, member: Member, report: reports.Agreed, _now: float) -> None:
        attempt = self._attempt_of(report.at)
        if attempt is not None and attempt.stage == Stage.PROPOSED and report.boundary == attempt.boundary:
            attempt.agreed[member.pod.uid] = report.is_agreed

    def _attempt_of(self, key: list[int]) -> RegroupAttempt | None:
        """Return the attempt under way if it has that key, else None."""
        attempt = self._state.attempt
        return attempt if attempt is not None and attempt.key == key else None

    def _on_ready(self, member: Member, report: reports.Ready, now: float) -> None:
        if member.mark_ready(report, now) and (change := self._changes.leading_to(report.joined)):
            change.marks["joined"] = now

    # -- recipients ----------------------------------------------------------------------------------------------------

    def _attempt(self) -> RegroupAttempt:
        assert self._state.attempt is not None
        return self._state.attempt

    def _send_to_group(self, message: Message) -> None:
        assert self._state.group is not None
        self._send(self._state.group.places, message)

    def _recipients(self, attempt: RegroupAttempt) -> list[str]:
        """Return the connected pods of the group that trains and of the next one, by uid."""
        assert self._state.group is not None
        uids = self._state.group.uids | attempt.group.uids
        return [uid for uid, member in self._state.members.items() if uid in uids and member.is_connected]
