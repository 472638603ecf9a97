"""Takes in what the members say: a handler for each kind of message."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from elastic_worker import wire
from elastic_worker.coordinator.execute import Executor
from elastic_worker.coordinator.member import Member
from elastic_worker.coordinator.model import Failure, Generation, Pod
from elastic_worker.coordinator.state import CoordinatorState
from elastic_worker.coordinator.succession import Succession
from elastic_worker.protocol import reports
from elastic_worker.protocol.codec import Message

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 300.0
"""A group that lived so long has made progress, whatever is known of its steps."""


class Hearing:
    """Of one coordinator."""

    def __init__(self, state: CoordinatorState, executor: Executor, succession: Succession) -> None:
        self._state, self._executor, self._succession = state, executor, succession
        self._handlers: dict[type[Message], Callable[[Member, Any, float], None]] = {
            reports.Processes: self._processes,
            reports.Warm: self._warm,
            reports.Runs: self._runs,
            reports.Unkillable: self._unkillable,
            reports.Leaving: self._leaving,
            reports.Goodbye: self._goodbye,
            reports.StorePort: self._store_port,
            reports.Idle: self._idle,
            reports.Started: self._started,
            reports.Stopped: self._stopped,
            reports.Finished: self._finished,
            reports.Failed: self._failed,
            reports.Aligned: self._aligned,
            reports.StandsStill: self._stands_still,
            reports.SaveReady: self._save_ready,
            reports.Stepped: self._stepped,
            reports.CheckpointFolder: self._checkpoint_folder,
            **executor.in_place.handlers,
            reports.Checkpoint: self._checkpoint,
            reports.Step: self._step,
            reports.LastCheckpointStep: self._last_checkpoint,
            reports.CheckpointError: self._checkpoint_error,
        }

    def enter(self, pod: Pod, group: Generation | None, hello: wire.Message, now: float) -> None:
        """A pod has connected; with it `group` is the latest one that is known."""
        state = self._state
        old = state.members.get(pod.uid)
        member = Member(pod, takes_parts=bool(hello.get(wire.PARTS)), failure=old.failure if old is not None else None)
        member.runs(int(hello.get("runs", 0)))
        state.members[pod.uid] = member
        if group is not None and (state.group is None or group.order > state.group.order):
            state.failures, state.step = group.failures, max(state.step, group.step)
            if group.epoch < state.epoch:
                state.why = "MasterLost"
        state.group = group
        log.info("%s is here: %d processes at %s", pod.name, pod.processes, pod.address)
        self._executor.check_runs(member)
        self.hear(member, hello, now)
        self._executor.saving.entered(member)

    def hear(self, member: Member, line: wire.Message, now: float) -> None:
        """Take in one line. Of what makes no sense the rest is taken in, each message by itself."""
        for kind, handle in self._handlers.items():
            if kind.key not in line:
                continue
            try:
                handle(member, kind.from_json(line), now)
            except wire.UNREADABLE as error:
                log.warning("%s says what cannot be read: %r in %.300s", member.pod.name, error, line)
        if self._state.group and now - self._state.phase_since >= PROGRESS_SECONDS:
            self._state.progressed = True

    # -- what is so ---------------------------------------------------------------------------------------------------

    def _processes(self, member: Member, said: reports.Processes, _now: float) -> None:
        member.pod = replace(member.pod, processes=said.count)

    def _warm(self, member: Member, said: reports.Warm, now: float) -> None:
        member.warm_at = (member.warm_at or now) if said.is_warm else None

    def _runs(self, member: Member, said: reports.Runs, _now: float) -> None:
        member.runs(said.generation)

    def _unkillable(self, member: Member, said: reports.Unkillable, _now: float) -> None:
        member.unkillable(said.process)

    def _leaving(self, member: Member, said: reports.Leaving, now: float) -> None:
        member.leave(now + said.seconds)

    def _goodbye(self, member: Member, _said: reports.Goodbye, _now: float) -> None:
        member.go()

    def _store_port(self, member: Member, said: reports.StorePort, _now: float) -> None:
        member.store_port = said.port

    def _idle(self, member: Member, said: reports.Idle, _now: float) -> None:
        member.idle_seconds = said.seconds

    def _checkpoint_folder(self, _member: Member, said: reports.CheckpointFolder, _now: float) -> None:
        self._succession.add(said.path)

    # -- what has happened --------------------------------------------------------------------------------------------

    def _started(self, member: Member, said: reports.Started, now: float) -> None:
        self._executor.started(member, said.generation, now)

    def _stopped(self, member: Member, said: reports.Stopped, _now: float) -> None:
        state = self._state
        if state.group and said.generation == state.group.number:
            state.step = max(state.step, said.step)
        self._executor.stopped(member, said.lost, unkillable=said.unkillable)

    def _finished(self, member: Member, said: reports.Finished, _now: float) -> None:
        member.finish(said.generation)

    def _failed(self, member: Member, said: reports.Failed, now: float) -> None:
        member.failure = Failure(
            generation=member.processes.number if said.generation is None else said.generation,
            rank=said.rank,
            exit_code=said.exit_code,
            message=said.message,
            pod=member.pod.name,
            at=now - said.ago,
            is_consequence=said.is_consequence,
        )
        member.fall_out(member.failure.generation)

    def _aligned(self, member: Member, said: reports.Aligned, now: float) -> None:
        self._executor.aligned(member, now, whole=said.whole, marked=said.marked)

    def _stands_still(self, member: Member, said: reports.StandsStill, now: float) -> None:
        self._executor.aligning.stood(member, now, still=said.still, round_=said.round)

    def _save_ready(self, member: Member, said: reports.SaveReady, now: float) -> None:
        self._executor.saving.answered(member, said, now)

    def _stepped(self, _member: Member, said: reports.Stepped, now: float) -> None:
        self._executor.stepped(said.generation, said.pause, now)

    # -- progress -----------------------------------------------------------------------------------------------------

    def _checkpoint(self, _member: Member, _said: reports.Checkpoint, _now: float) -> None:
        self._state.progressed = True

    def _step(self, member: Member, said: reports.Step, _now: float) -> None:
        """What was on its way when the group formed is of the one before: some of it is done again (104)."""
        state = self._state
        if state.group and member.tells_steps_of(state.group.number):
            state.step = max(state.step, said.count)

    def _last_checkpoint(self, _member: Member, said: reports.LastCheckpointStep, _now: float) -> None:
        self._executor.training.update(said.to_json())

    def _checkpoint_error(self, _member: Member, said: reports.CheckpointError, _now: float) -> None:
        self._executor.training.update(said.to_json())
