"""Carries out decisions: changes the state, sends orders to the members, and records what each change cost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from elastic_worker import contract
from elastic_worker.coordinator.aligning import Aligning
from elastic_worker.coordinator.changes import Changes
from elastic_worker.coordinator.checkpoint_requests import CheckpointRequests
from elastic_worker.coordinator.choose import is_script_failure
from elastic_worker.coordinator.decide import backoff
from elastic_worker.coordinator.decision import Decision
from elastic_worker.coordinator.execute_in_place import InPlaceExecutor
from elastic_worker.coordinator.member import GivenUp, Leaving, Member
from elastic_worker.coordinator.model import Failure, Generation
from elastic_worker.coordinator.outbox import Send, send_group
from elastic_worker.coordinator.state import CoordinatorState, Phase
from elastic_worker.protocol import orders
from elastic_worker.protocol.codec import Message

log = logging.getLogger(__name__)

STOP_SECONDS = 30.0
"""How long processes may take to end after SIGTERM in a planned change, as under torchrun."""
BROKEN_STOP_SECONDS = 5.0
"""The same time after the loss of a peer: no collective can complete any more, so waiting longer has no use."""
LINGER_SECONDS = 2.0
"""How long a leaving master stays while the others continue: pods that are deleted together receive SIGTERM one after
the other, and a waiting master costs the training nothing.
"""


class Executor:
    """Carries out decisions on `state`; `send(uids, message)` reaches the connected ones of these members."""

    def __init__(self, state: CoordinatorState, send: Send) -> None:
        self.state, self._send = state, send
        self.changes = Changes()
        self.training: dict[str, Any] = {}
        self.aligning = Aligning(state, send)
        self.checkpoint_requests = CheckpointRequests(state, send)
        self.in_place = InPlaceExecutor(state, send, self.changes)

    def do(self, decision: Decision, now: float) -> None:
        """Carry out a decision other than "stay"."""
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
        """Adopt a running group. Members that wait for an answer of the previous coordinator continue, too."""
        self._enter(Phase.RUNNING, now)
        self._send_to_all(orders.Cancel())

    def _align(self, decision: Decision, now: float) -> None:
        assert self.state.group is not None
        again = self.state.phase == Phase.ALIGNING
        self.state.change_reason, self.state.planned_at = decision.reason, now
        if not again:
            self.changes.note_decision(decision, len(self.state.group.pods), now)
        self._enter(Phase.ALIGNING, now)
        self.aligning.begin(decision.seconds, decision.last_call, now)
        self.checkpoint_requests.begin()

    def _resume(self, now: float) -> None:
        assert self.state.group is not None
        self._enter(Phase.RUNNING, now)
        self.changes.drop_unfinished()
        self._send(self.state.group.places, orders.Resume())

    def _stop(self, decision: Decision, now: float) -> None:
        state = self.state
        state.change_reason, state.failure = decision.reason, decision.failure
        state.end_change()
        is_whole = state.aligned and not state.no_checkpoint_came
        self.changes.note_decision(decision, len(state.group.pods) if state.group else 0, now)
        if (is_whole or decision.seconds == 0.0) and self.changes.latest is not None:
            self.changes.latest.lost = 0
        self._enter(Phase.STOPPING, now)
        stalled = decision.failure is not None and decision.failure.is_stall
        seconds = STOP_SECONDS if decision.reason in ("Join", "Leave") else BROKEN_STOP_SECONDS
        running: dict[int, list[str]] = {}
        for member in state.members.values():
            if member.is_connected and (number := member.processes.number):
                running.setdefault(number, []).append(member.pod.uid)
        for number, uids in running.items():
            self._send(uids, orders.Stop(number, seconds, dump=stalled))

    def _give_up(self, decision: Decision) -> None:
        """Give up pods that do not report the end of their processes; they may train again once they do."""
        for pod in decision.pods:
            self.state.members[pod.uid].give_up("it does not say that its processes have ended")

    def _stopped(self, now: float) -> None:
        state = self.state
        assert state.group is not None
        self.changes.mark("stopped", now)
        if state.change_reason == "Failure":
            self._count_failure(state.group, now)
        self._enter(Phase.WAITING, now)
        for member in state.members.values():
            member.failure = None

    def _count_failure(self, group: Generation, now: float) -> None:
        """Count a failure, unless a pod that left has caused it."""
        state = self.state
        if not is_script_failure(state, group, now):
            state.change_reason, state.failure = "Loss", None
            return
        state.failures = 1 if state.progressed else state.failures + 1
        state.restart_at = now + backoff(state.failures)

    def _form(self, decision: Decision, now: float) -> None:
        state, group = self.state, decision.group
        assert group is not None
        if state.group is None:
            self.changes.note_decision(replace(decision, reason="Start", sentence="the first group"), 0, now)
        previous_pods = len(state.group.pods) if state.group else 0
        latest = self.changes.latest
        state.step = max(0, state.step - ((latest.lost or 0) if latest and not latest.generation else 0))
        # Each generation has its own store, because some versions of torch use the same keys in each.
        store_port, state.members[state.own_uid].store_port = state.members[state.own_uid].store_port, 0
        state.group = group = replace(group, store_port=store_port, step=state.step)
        state.progressed, state.restart_at = False, 0.0
        self.changes.note_formed(group, decision.sentence, previous_pods, now)
        self._enter(Phase.RUNNING, now)
        log.info(
            "generation=%d pods=%d processes=%d reason=%s",
            group.number,
            len(group.pods),
            group.world_size,
            group.reason,
        )
        for pod in group.pods:
            state.members[pod.uid].assign(group.number)
        send_group(state, self._send, group, group.places, orders.Form)

    def _done(self, now: float) -> None:
        self._enter(Phase.DONE, now)
        self._send_to_all(orders.Done())

    def _fail(self, decision: Decision, now: float) -> None:
        assert decision.failure is not None
        self._enter(Phase.FAILED, now)
        failure = decision.failure
        order = orders.Fail(
            exit_code=contract.EXIT_DO_NOT_RETRY,
            rank=failure.rank,
            message=failure.message,
            pod=failure.pod,
            script_exit_code=failure.exit_code,
            last_lines=failure.last_lines,
        )
        self._send_to_all(order)

    # -- reports of members -------------------------------------------------------------------------------------------

    def check_processes(self, member: Member) -> None:
        """Stop a new member's processes if they are of an earlier group; count them as failed if they have ended."""
        state = self.state
        group = state.group
        runs = member.processes.number
        is_current = group is not None and member.pod.uid in group.uids and runs == group.number
        is_over = state.phase == Phase.STOPPING or (state.phase == Phase.WAITING and state.phase_since > state.started)
        if runs and (is_over or not is_current):
            self._send([member.pod.uid], orders.Stop(runs, BROKEN_STOP_SECONDS))
        if state.phase in (Phase.RUNNING, Phase.ALIGNING) and group and member.pod.uid in group.uids and not is_current:
            problem = "its processes are gone"
            member.failure = Failure(group.number, -1, -1, problem, member.pod.name, is_consequence=True)

    def started(self, member: Member, generation: int, now: float) -> None:
        """Record that all of a member's processes run."""
        change = self.changes.leading_to(generation)
        if change is not None:
            change.marks["started"] = now
        member.mark_running(generation)

    def stopped(self, member: Member, steps_lost: int | None, *, unkillable: str = "") -> None:
        """Record that none of a member's processes runs, except one that is `unkillable`."""
        member.mark_stopped(unkillable)
        change = self.changes.latest
        if change is not None and steps_lost is not None and not change.generation:
            lost = int(steps_lost)
            change.lost = lost if change.lost is None else min(change.lost, lost)

    def aligned(self, member: Member, now: float, *, whole: bool, marked: bool) -> None:
        """Handle the report that processes are frozen after a checkpoint (`whole`), or that none came in time."""
        self.aligning.answered(member, now, whole=whole, marked=marked)

    def stepped(self, generation: int, pause: float | None, now: float) -> None:
        """Record the first step of a member in that generation; `pause` is what a survivor measured."""
        change = self.changes.leading_to(generation)
        if change is None:
            return
        change.marks["stepped"] = now
        if pause is not None:
            change.pause = max(change.pause or 0.0, float(pause))
        change.stepped += 1
        if change.stepped == change.to:
            log.info("generation=%d first step pause=%s parts=%s", generation, change.pause, change.parts())

    def release_leaving(self) -> None:
        """Let leaving pods without processes to stop end; the master last.

        If all wait with their state in memory and no staying pod has it, one of the leaving pods writes a checkpoint.
        """
        state = self.state
        for member in state.members.values():
            if not isinstance(member.presence, Leaving):
                continue
            if member.still_runs and not state.parked:
                continue
            if member.pod.uid == state.own_uid and self._others_stop():
                continue
            if (
                state.phase in (Phase.WAITING, Phase.DONE, Phase.FAILED)
                or state.parked
                or not self._is_in_group(member)
            ):
                seconds = LINGER_SECONDS if member.pod.uid == state.own_uid and self._others_train() else 0.0
                self._send([member.pod.uid], orders.Leave(save=self.in_place.is_to_save(member), after=seconds))

    # -- status -------------------------------------------------------------------------------------------------------

    def status(self, sentence: str) -> dict[str, Any]:
        """Return the coordinator's part of /status; `sentence` is that of the last decision."""
        state, group = self.state, self.state.group
        training = state.phase in (Phase.RUNNING, Phase.ALIGNING) and group is not None and not state.parked
        return {
            "contract": contract.VERSION,
            "epoch": state.epoch,
            "generation": group.number if group else 0,
            "wish": state.membership.number if state.membership else 0,
            "state": Phase.WAITING if state.parked else state.phase,
            "reason": sentence,
            "members": [pod.name for pod in group.pods if pod.is_known] if training and group else [],
            "worldSize": group.world_size if training and group else 0,
            "failures": state.failures,
            "givenUp": [
                {"pod": m.pod.name, "why": m.readiness.why}
                for m in state.members.values()
                if m.is_connected and isinstance(m.readiness, GivenUp)
            ],
            "training": {**({"step": state.step} if state.step else {}), **self.training},
            "changes": self.changes.to_status(),
        }

    def _enter(self, phase: str, now: float) -> None:
        state = self.state
        state.phase, state.phase_since = phase, now
        state.aligned, state.no_checkpoint_came, state.still_deadline, state.asked_at = False, False, None, None

    def _send_to_all(self, message: Message) -> None:
        self._send(self.state.members, message)

    def _others_stop(self) -> bool:
        running = [m for m in self.state.members.values() if m.still_runs and m.pod.uid != self.state.own_uid]
        return bool(running) and not self.state.parked and not self._others_train()

    def _others_train(self) -> bool:
        state = self.state
        return state.phase == Phase.RUNNING and state.group is not None and state.group.is_without_master

    def _is_in_group(self, member: Member) -> bool:
        return self.state.group is not None and member.pod.uid in self.state.group.uids
