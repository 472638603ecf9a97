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
from elastic_worker.coordinator.model import Board, Member, Regroup, Stage
from elastic_worker.coordinator.telling import Tell, tell_group

log = logging.getLogger(__name__)

MOST_MARGIN = 64


class InPlaceExecutor:
    """Of one executor."""

    def __init__(self, board: Board, tell: Tell, changes: Changes) -> None:
        self._board, self._tell, self._changes = board, tell, changes
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

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _candidates(self, decision: Decision, _now: float) -> None:
        for pod in decision.pods:
            self._board.members[pod.uid].starting = True
        self._tell([pod.uid for pod in decision.pods], {"candidates": 1})

    def _host(self, decision: Decision, _now: float) -> None:
        (pod,) = decision.pods
        self._board.members[pod.uid].hosts = True
        self._tell([pod.uid], {"host": 1})

    def _prepare(self, decision: Decision, now: float) -> None:
        """Have the next group formed; it meets in the store that is kept ready for it."""
        board, attempt = self._board, decision.attempt
        assert attempt is not None
        attempt.since = now
        host = board.members[attempt.group.pods[0].uid]
        attempt.group = replace(attempt.group, store_port=host.store_port)
        board.attempt, board.attempts = attempt, attempt.number
        self._decided(decision, now)
        about = {"at": attempt.key, "broken": attempt.broken}
        concerned = self._concerned(attempt)
        tell_group(board, self._tell, attempt.group, concerned, lambda told: {"prepare": {"group": told, **about}})

    def _decided(self, decision: Decision, now: float) -> None:
        group = self._board.group
        self._changes.decided(decision, len(group.pods) if group else 0, now)

    def _ask(self, _decision: Decision, now: float) -> None:
        attempt = self._attempt()
        if attempt.stage == Stage.PROPOSED:
            attempt.margin = min(2 * attempt.margin, MOST_MARGIN)
        if attempt.stage == Stage.FORMING:
            self._changes.mark("made", now)
        attempt.stage, attempt.passed, attempt.agreed = Stage.ASKING, {}, {}
        self._tell_old({"ask": attempt.key})

    def _propose(self, _decision: Decision, _now: float) -> None:
        attempt = self._attempt()
        attempt.stage, attempt.tick = Stage.PROPOSED, max(attempt.passed.values()) + attempt.margin
        self._tell_old({"propose": attempt.tick, "at": attempt.key})

    def _bind(self, decision: Decision, now: float) -> None:
        """All go over, each at the step that was agreed on."""
        board, attempt, old = self._board, self._attempt(), self._board.group
        assert old is not None
        if attempt.starts_again:
            attempt.stage, attempt.since = Stage.SAVING, now
            self._tell_old({"bind": None, "at": attempt.key, "save": 1})
            return
        concerned = self._concerned(attempt)
        board.attempt, board.attempts, board.parked = None, 0, ""
        board.tried, board.failed_attempts = (), 0
        if not attempt.group.pods:
            board.parked = attempt.sentence
            self._tell_old({"bind": None, "at": attempt.key})
            return
        board.group = group = replace(attempt.group, step=board.step)
        board.members[group.pods[0].uid].store_port, board.in_place = 0, group.number
        self._changes.formed(group, decision.sentence, len(old.pods), now).lost = 0
        log.info("generation=%d pods=%d reason=%s in_place=1", group.number, len(group.pods), group.reason)
        for uid in concerned:
            member = board.members[uid]
            member.process_generation = group.number if uid in group.uids else 0
            member.refused = False
        tell_group(board, self._tell, group, concerned, lambda told: {"bind": told, "at": attempt.key})

    def cancel(self) -> None:
        """Forget the change; members that wait for it go on."""
        board = self._board
        if board.attempt is not None:
            self._tell(self._concerned(board.attempt), {"cancel": 1})
        board.attempt = None
        self._changes.drop_unfinished()

    def _retry(self) -> None:
        board, pods = self._board, self._attempt().group.pods
        board.tried, board.failed_attempts = pods, failed_attempts(board, pods) + 1
        self.cancel()

    def _refuse(self, _decision: Decision, _now: float) -> None:
        board, attempt = self._board, self._attempt()
        assert board.group is not None
        for pod in attempt.group.pods:
            if pod.uid not in board.group.uids:
                board.members[pod.uid].refused = True
        self.cancel()

    def _park(self, decision: Decision, now: float) -> None:
        """Too few are left, or all go: everybody waits, with the same step done."""
        board = self._board
        assert board.group is not None
        if decision.attempt is not None:
            self._decided(decision, now)
            decision.attempt.since = now
            board.attempt = decision.attempt
            return
        board.parked = decision.sentence
        self._tell_old({"broken": board.group.number})

    def _count(self, decision: Decision, now: float) -> None:
        """A process failed; the job goes on without it, unless it happens again and again without a step in between."""
        board, failure = self._board, decision.failure
        assert failure is not None
        assert board.group is not None
        if is_to_blame(board, board.group, now) and not failure.is_consequence:
            board.failures = 1 if board.step > self._progress_at_failure else board.failures + 1
            self._progress_at_failure = board.step
            board.failure = failure
        log.warning("failures=%d %s", board.failures, decision.sentence)
        for member in board.members.values():
            member.failure = None

    def is_to_save(self, member: Member) -> bool:
        """Whether a pod that leaves writes a checkpoint before: it has the state, and no pod that stays has it.

        Of a group that has only just come about, its processes have the state when they are all in it.
        """
        board = self._board
        if not board.parked or board.group is None:
            return False
        number = board.group.number
        known = [board.members[uid] for uid in board.group.places if uid in board.members]
        here = [
            each
            for each in known
            if each.connected and each.process_generation == number and each.lost_generation != number
        ]
        return not any(each.here for each in here) and here[:1] == [member]

    # -- answers -------------------------------------------------------------------------------------------------------

    def hear(self, member: Member, message: dict[str, Any], now: float) -> None:
        """What concerns groups that change in place."""
        if "ready" in message:
            self._take_ready(member, message, now)
        if "stuck" in message:
            member.stuck = message["stuck"]
        if "cutOff" in message:
            member.lost_generation = int(message["cutOff"])
        attempt = self._board.attempt
        if attempt is None or message.get("at") != attempt.key:
            return
        uid = member.pod.uid
        if "formed" in message:
            attempt.formed.add(uid)
        if "unformed" in message:
            attempt.problem = f"{member.pod.name}: {message['unformed']}"
        if "passed" in message and attempt.stage == Stage.ASKING:
            attempt.passed[uid] = int(message["passed"])
        if "savedTogether" in message:
            attempt.saved[uid] = bool(message["savedTogether"])
        if "agreed" in message and attempt.stage == Stage.PROPOSED and message.get("tick") == attempt.tick:
            attempt.agreed[uid] = bool(message["agreed"])

    def _take_ready(self, member: Member, message: dict[str, Any], now: float) -> None:
        """A pod whose processes have all left their group has lost it."""
        ready, joined = bool(message["ready"]), int(message.get("joined", 0))
        member.ready_at = (member.ready_at or now) if ready else None
        member.starting = member.starting and not ready
        member.has_state = bool(message.get("holds"))
        member.kind = str(message.get("kind", ""))
        if member.joined_generation and not joined:
            member.lost_generation = member.joined_generation
        if joined != member.joined_generation and (change := self._changes.of(joined)):
            change.marks["joined"] = now
        member.joined_generation = joined

    # -- recipients ----------------------------------------------------------------------------------------------------

    def _attempt(self) -> Regroup:
        assert self._board.attempt is not None
        return self._board.attempt

    def _tell_old(self, message: dict[str, Any]) -> None:
        assert self._board.group is not None
        self._tell(self._board.group.places, message)

    def _concerned(self, attempt: Regroup) -> list[str]:
        """The connected pods of both groups."""
        assert self._board.group is not None
        uids = self._board.group.uids | attempt.group.uids
        return [uid for uid, member in self._board.members.items() if uid in uids and member.connected]
