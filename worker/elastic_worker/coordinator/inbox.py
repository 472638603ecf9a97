"""Handles the members' reports: one handler for each class of message."""

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
"""A group that has trained for this long has made progress, even if its steps are not known."""


class Inbox:
    """The inbox of one coordinator: it changes the state, or passes reports on to the executor."""

    def __init__(self, state: CoordinatorState, executor: Executor, succession: Succession) -> None:
        self._state, self._executor, self._succession = state, executor, succession
        self._handlers: dict[type[Message], Callable[[Member, Any, float], None]] = {
            reports.Processes: self._on_processes,
            reports.Warm: self._on_warm,
            reports.Runs: self._on_runs,
            reports.Unkillable: self._on_unkillable,
            reports.Leaving: self._on_leaving,
            reports.Goodbye: self._on_goodbye,
            reports.StorePort: self._on_store_port,
            reports.Idle: self._on_idle,
            reports.Started: self._on_started,
            reports.Stopped: self._on_stopped,
            reports.Finished: self._on_finished,
            reports.Failed: self._on_failed,
            reports.Aligned: self._on_aligned,
            reports.StandsStill: self._on_stands_still,
            reports.CheckpointStepReply: self._on_checkpoint_step_reply,
            reports.Stepped: self._on_stepped,
            reports.CheckpointFolder: self._on_checkpoint_folder,
            **executor.in_place.handlers,
            reports.Checkpoint: self._on_checkpoint,
            reports.Step: self._on_step,
            reports.LastCheckpointStep: self._on_last_checkpoint_step,
            reports.CheckpointError: self._on_checkpoint_error,
        }

    def enter(self, pod: Pod, group: Generation | None, hello: wire.Message, now: float) -> None:
        """Add a pod that has connected. `group` is the latest one known now that the pod has reported its own."""
        state = self._state
        old = state.members.get(pod.uid)
        member = Member(pod, understands_parts=bool(hello.get(wire.PARTS)), failure=old.failure if old else None)
        member.mark_running(int(hello.get("runs", 0)))
        state.members[pod.uid] = member
        if group is not None and (state.group is None or group.order > state.group.order):
            state.failures, state.step = group.failures, max(state.step, group.step)
            if group.epoch < state.epoch:
                state.change_reason = "MasterLost"
        state.group = group
        log.info("%s is here: %d processes at %s", pod.name, pod.processes, pod.address)
        self._executor.check_processes(member)
        self.receive(member, hello, now)
        self._executor.checkpoint_requests.reconnected(member)

    def receive(self, member: Member, line: wire.Message, now: float) -> None:
        """Handle the messages of one line. One that cannot be decoded is logged, and does not affect the others."""
        for kind, handle in self._handlers.items():
            if kind.key not in line:
                continue
            try:
                handle(member, kind.from_json(line), now)
            except wire.UNREADABLE as error:
                log.warning("a report of %s cannot be read: %r in %.300s", member.pod.name, error, line)
        if self._state.group and now - self._state.phase_since >= PROGRESS_SECONDS:
            self._state.progressed = True

    # -- the state of a pod -------------------------------------------------------------------------------------------

    def _on_processes(self, member: Member, report: reports.Processes, _now: float) -> None:
        member.pod = replace(member.pod, processes=report.count)

    def _on_warm(self, member: Member, report: reports.Warm, now: float) -> None:
        member.warm_at = (member.warm_at or now) if report.is_warm else None

    def _on_runs(self, member: Member, report: reports.Runs, _now: float) -> None:
        member.mark_running(report.generation)

    def _on_unkillable(self, member: Member, report: reports.Unkillable, _now: float) -> None:
        member.mark_unkillable(report.process)

    def _on_leaving(self, member: Member, report: reports.Leaving, now: float) -> None:
        member.start_leaving(now + report.seconds)

    def _on_goodbye(self, member: Member, _report: reports.Goodbye, _now: float) -> None:
        member.mark_gone()

    def _on_store_port(self, member: Member, report: reports.StorePort, _now: float) -> None:
        member.store_port = report.port

    def _on_idle(self, member: Member, report: reports.Idle, _now: float) -> None:
        member.idle_seconds = report.seconds

    def _on_checkpoint_folder(self, _member: Member, report: reports.CheckpointFolder, _now: float) -> None:
        self._succession.add(report.path)

    # -- events -------------------------------------------------------------------------------------------------------

    def _on_started(self, member: Member, report: reports.Started, now: float) -> None:
        self._executor.started(member, report.generation, now)

    def _on_stopped(self, member: Member, report: reports.Stopped, _now: float) -> None:
        state = self._state
        if state.group and report.generation == state.group.number:
            state.step = max(state.step, report.step)
        self._executor.stopped(member, report.lost, unkillable=report.unkillable)

    def _on_finished(self, member: Member, report: reports.Finished, _now: float) -> None:
        member.mark_finished(report.generation)

    def _on_failed(self, member: Member, report: reports.Failed, now: float) -> None:
        member.failure = Failure(
            generation=member.processes.number if report.generation is None else report.generation,
            rank=report.rank,
            exit_code=report.exit_code,
            message=report.message,
            pod=member.pod.name,
            at=now - report.ago,
            is_consequence=report.is_consequence,
            last_lines=report.last_lines,
        )
        member.fall_out(member.failure.generation)

    def _on_aligned(self, member: Member, report: reports.Aligned, now: float) -> None:
        self._executor.aligned(member, now, whole=report.whole, marked=report.marked)

    def _on_stands_still(self, member: Member, report: reports.StandsStill, now: float) -> None:
        self._executor.aligning.stood(member, now, still=report.still, round_=report.round)

    def _on_checkpoint_step_reply(self, member: Member, report: reports.CheckpointStepReply, now: float) -> None:
        self._executor.checkpoint_requests.answered(member, report, now)

    def _on_stepped(self, _member: Member, report: reports.Stepped, now: float) -> None:
        self._executor.stepped(report.generation, report.pause, now)

    # -- progress -----------------------------------------------------------------------------------------------------

    def _on_checkpoint(self, _member: Member, _report: reports.Checkpoint, _now: float) -> None:
        self._state.progressed = True

    def _on_step(self, member: Member, report: reports.Step, _now: float) -> None:
        """Steps reported before the group formed are steps of the last group, and some of them are repeated (104)."""
        state = self._state
        if state.group and member.reports_steps_of(state.group.number):
            state.step = max(state.step, report.count)

    def _on_last_checkpoint_step(self, _member: Member, report: reports.LastCheckpointStep, _now: float) -> None:
        self._executor.training.update(report.to_json())

    def _on_checkpoint_error(self, _member: Member, report: reports.CheckpointError, _now: float) -> None:
        self._executor.training.update(report.to_json())
