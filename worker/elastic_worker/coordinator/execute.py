"""Does what was decided: changes the board, tells the members, and keeps account of what each change cost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from elastic_worker import contract
from elastic_worker.coordinator.aligning import Aligning
from elastic_worker.coordinator.changes import Changes
from elastic_worker.coordinator.choose import is_to_blame
from elastic_worker.coordinator.decide import backoff
from elastic_worker.coordinator.decision import Decision
from elastic_worker.coordinator.execute_in_place import InPlaceExecutor
from elastic_worker.coordinator.model import Board, Failure, Generation, Member, Phase
from elastic_worker.coordinator.telling import Tell, tell_group
from elastic_worker.protocol import orders
from elastic_worker.protocol.codec import Message

log = logging.getLogger(__name__)

STOP_SECONDS = 30.0
"""What processes get to end after SIGTERM in a planned change, as torchrun gives them."""
LINGER_SECONDS = 2.0
"""A master that leaves while the others train on stays so long: of pods that are told to go together, each hears it at
a moment of its own, and a master that waits costs the training nothing."""
BROKEN_STOP_SECONDS = 5.0
"""The same where a peer is gone: no collective can end well any more, so nothing is gained by waiting."""


class Executor:
    """Carries out decisions on `board`; `tell(uids, message)` reaches those of the members that are connected."""

    def __init__(self, board: Board, tell: Tell) -> None:
        self.board, self._tell = board, tell
        self.changes = Changes()
        self.training: dict[str, Any] = {}
        self.aligning = Aligning(board, tell)
        self.in_place = InPlaceExecutor(board, tell, self.changes)

    def do(self, decision: Decision, now: float) -> None:
        """Carry out whatever is not "stay"."""
        if decision.act in self.in_place.acts:
            self.in_place.acts[decision.act](decision, now)
            return
        acts: dict[str, Callable[[], None]] = {
            "adopt": lambda: self._adopt(now),
            "align": lambda: self._align(decision, now),
            "resume": lambda: self._resume(now),
            "stop": lambda: self._stop(decision, now),
            "stopped": lambda: self._stopped(now),
            "give_up": lambda: self._give_up(decision),
            "form": lambda: self._form(decision, now),
            "done": lambda: self._done(now),
            "fail": lambda: self._fail(decision, now),
        }
        acts[decision.act]()

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _adopt(self, now: float) -> None:
        """Members that the previous coordinator has asked stop waiting."""
        self._enter(Phase.RUNNING, now)
        self._tell_all(orders.Cancel())

    def _align(self, decision: Decision, now: float) -> None:
        assert self.board.group is not None
        again = self.board.phase == Phase.ALIGNING
        self.board.why, self.board.planned_at = decision.reason, now
        if not again:
            self.changes.decided(decision, len(self.board.group.pods), now)
        self._enter(Phase.ALIGNING, now)
        self.aligning.begin(decision.seconds, decision.last_call, now)

    def _resume(self, now: float) -> None:
        assert self.board.group is not None
        self._enter(Phase.RUNNING, now)
        self.changes.drop_unfinished()
        self._tell(self.board.group.places, orders.Resume())

    def _stop(self, decision: Decision, now: float) -> None:
        board = self.board
        board.why, board.failure = decision.reason, decision.failure
        board.end_change()
        is_whole = board.aligned and not board.in_vain
        self.changes.decided(decision, len(board.group.pods) if board.group else 0, now)
        if (is_whole or decision.seconds == 0.0) and self.changes.latest is not None:
            self.changes.latest.lost = 0
        self._enter(Phase.STOPPING, now)
        stalled = decision.failure is not None and decision.failure.is_stall
        seconds = STOP_SECONDS if decision.reason in ("Join", "Leave") else BROKEN_STOP_SECONDS
        running: dict[int, list[str]] = {}
        for member in board.members.values():
            if member.connected and member.process_generation:
                running.setdefault(member.process_generation, []).append(member.pod.uid)
            elif not member.connected:
                member.process_generation = 0
        for runs, uids in running.items():
            self._tell(uids, orders.Stop(runs, seconds, dump=stalled))

    def _give_up(self, decision: Decision) -> None:
        """Pods that do not say that their processes have ended; they may train again once they say so."""
        for pod in decision.pods:
            self.board.members[pod.uid].given_up = "it does not say that its processes have ended"

    def _stopped(self, now: float) -> None:
        board = self.board
        assert board.group is not None
        self.changes.mark("stopped", now)
        if board.why == "Failure":
            self._count_failure(board.group, now)
        self._enter(Phase.WAITING, now)
        for member in board.members.values():
            # Of processes that wait in no group, nothing is stopped: what their pods last said of them holds.
            member.failure, member.finished = None, 0

    def _count_failure(self, group: Generation, now: float) -> None:
        """A failure counts, unless a pod that went has caused it."""
        board = self.board
        if not is_to_blame(board, group, now):
            board.why, board.failure = "Loss", None
            return
        board.failures = 1 if board.progressed else board.failures + 1
        board.restart_at = now + backoff(board.failures)

    def _form(self, decision: Decision, now: float) -> None:
        board, group = self.board, decision.group
        assert group is not None
        if board.group is None:
            self.changes.decided(replace(decision, reason="Start", sentence="the first group"), 0, now)
        before = len(board.group.pods) if board.group else 0
        latest = self.changes.latest
        board.step = max(0, board.step - ((latest.lost or 0) if latest and not latest.generation else 0))
        # A generation's store is its own: some versions of torch use the same keys in each.
        store_port, board.members[board.me].store_port = board.members[board.me].store_port, 0
        board.group = group = replace(group, store_port=store_port, step=board.step)
        board.progressed, board.restart_at = False, 0.0
        self.changes.formed(group, decision.sentence, before, now)
        self._enter(Phase.RUNNING, now)
        log.info(
            "generation=%d pods=%d processes=%d reason=%s",
            group.number,
            len(group.pods),
            group.world_size,
            group.reason,
        )
        for pod in group.pods:
            board.members[pod.uid].process_generation = group.number
        tell_group(board, self._tell, group, group.places, orders.Form)

    def _done(self, now: float) -> None:
        self._enter(Phase.DONE, now)
        self._tell_all(orders.Done())

    def _fail(self, decision: Decision, now: float) -> None:
        assert decision.failure is not None
        self._enter(Phase.FAILED, now)
        failure = decision.failure
        told = orders.Fail(
            exit_code=contract.EXIT_DO_NOT_RETRY,
            rank=failure.rank,
            message=failure.message,
            pod=failure.pod,
            script_exit_code=failure.exit_code,
        )
        self._tell_all(told)

    # -- what members answer ------------------------------------------------------------------------------------------

    def check_runs(self, member: Member) -> None:
        """A member that comes with processes of a group that is over stops them; one without its own has lost them."""
        board = self.board
        group = board.group
        mine = group is not None and member.pod.uid in group.uids and member.process_generation == group.number
        is_over = board.phase == Phase.STOPPING or (board.phase == Phase.WAITING and board.phase_since > board.started)
        if member.process_generation and (is_over or not mine):
            self._tell([member.pod.uid], orders.Stop(member.process_generation, BROKEN_STOP_SECONDS))
        if board.phase in (Phase.RUNNING, Phase.ALIGNING) and group and member.pod.uid in group.uids and not mine:
            told = "its processes are gone"
            member.failure = Failure(group.number, -1, -1, told, member.pod.name, is_consequence=True)

    def started(self, member: Member, generation: int, now: float) -> None:
        """All of a member's processes run."""
        change = self.changes.of(generation)
        if change is not None:
            change.marks["started"] = now
        member.process_generation = generation

    def stopped(self, member: Member, steps_lost: int | None, *, unkillable: str = "") -> None:
        """None of a member's processes runs, but for one that is `unkillable`."""
        member.process_generation, member.given_up = 0, unkillable
        change = self.changes.latest
        if change is not None and steps_lost is not None and not change.generation:
            lost = int(steps_lost)
            change.lost = lost if change.lost is None else min(change.lost, lost)

    def aligned(self, member: Member, now: float, *, whole: bool, marked: bool) -> None:
        """A member's processes stand right after a checkpoint (`whole`), or there was none in time."""
        self.aligning.answered(member, now, whole=whole, marked=marked)

    def stepped(self, generation: int, pause: float | None, now: float) -> None:
        """A member's processes did their first step of that generation; `pause` is what a survivor measured."""
        change = self.changes.of(generation)
        if change is None:
            return
        change.marks["stepped"] = now
        if pause is not None:
            change.pause = max(change.pause or 0.0, float(pause))
        change.stepped += 1
        if change.stepped == change.to:
            log.info("generation=%d first step pause=%s parts=%s", generation, change.pause, change.parts())

    def release(self) -> None:
        """Let the leaving pods go that have nothing to stop; the master last.

        Where all wait with their state in memory and no pod that stays has it, one of the leaving pods writes it down.
        """
        board = self.board
        for member in board.members.values():
            if not member.connected or member.leaving_until is None or member.goodbye:
                continue
            if member.still_runs and not board.parked:
                continue
            if member.pod.uid == board.me and self._others_stop():
                continue
            if (
                board.phase in (Phase.WAITING, Phase.DONE, Phase.FAILED)
                or board.parked
                or not self._is_in_group(member)
            ):
                after = LINGER_SECONDS if member.pod.uid == board.me and self._others_train() else 0.0
                self._tell([member.pod.uid], orders.Leave(save=self.in_place.is_to_save(member), after=after))

    # -- the account --------------------------------------------------------------------------------------------------

    def status(self, sentence: str) -> dict[str, Any]:
        """What the coordinator knows of what /status shows."""
        board, group = self.board, self.board.group
        training = board.phase in (Phase.RUNNING, Phase.ALIGNING) and group is not None and not board.parked
        return {
            "contract": contract.VERSION,
            "epoch": board.epoch,
            "generation": group.number if group else 0,
            "wish": board.wish.number if board.wish else 0,
            "state": Phase.WAITING if board.parked else board.phase,
            "reason": sentence,
            "members": [pod.name for pod in group.pods if pod.is_known] if training and group else [],
            "worldSize": group.world_size if training and group else 0,
            "failures": board.failures,
            "givenUp": [
                {"pod": m.pod.name, "why": m.given_up} for m in board.members.values() if m.connected and m.given_up
            ],
            "training": {**({"step": board.step} if board.step else {}), **self.training},
            "changes": self.changes.shown(),
        }

    def _enter(self, phase: str, now: float) -> None:
        board = self.board
        board.phase, board.phase_since = phase, now
        board.aligned, board.in_vain, board.still_until = False, False, None

    def _tell_all(self, message: Message) -> None:
        self._tell(self.board.members, message)

    def _others_stop(self) -> bool:
        others = [m for m in self.board.members.values() if m.still_runs and m.pod.uid != self.board.me]
        return bool(others) and not self.board.parked and not self._others_train()

    def _others_train(self) -> bool:
        board = self.board
        return board.phase == Phase.RUNNING and board.group is not None and board.group.is_without_master

    def _is_in_group(self, member: Member) -> bool:
        return self.board.group is not None and member.pod.uid in self.board.group.uids
