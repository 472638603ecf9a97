"""Requests a checkpoint from the script, on all ranks of a group after the same step (132).

    ask for the steps ──► all: step n ──► propose n + margin ──► all wait there ──► request the checkpoint
                              │                  └──► one has passed it: propose again, with twice the margin
                              └──► a process counts no steps: request it from all at once

A process that has passed a step cannot be asked there. A process that waits at a step continues only after it knows
whether it is asked. So all ranks save at the same step, provided that the answer arrives within
`processes.steps.AGREE_SECONDS`. Ranks that save together would hang at different steps. No collective is needed.

Launchers of the previous release do not answer, and then the script is not asked.
"""

from __future__ import annotations

import logging

from elastic_worker.coordinator.member import Member
from elastic_worker.coordinator.outbox import Send
from elastic_worker.coordinator.state import CoordinatorState, Phase
from elastic_worker.protocol.orders import ProposeCheckpointStep, RequestCheckpoint
from elastic_worker.protocol.reports import CheckpointStepReply

log = logging.getLogger(__name__)


class CheckpointRequests:
    """The request of one coordinator that is under way; `send(uids, message)` reaches the connected members."""

    def __init__(self, state: CoordinatorState, send: Send) -> None:
        self._state, self._send = state, send
        self._answers: dict[str, CheckpointStepReply] = {}
        self._round, self._step, self._margin = 0, 0, 1

    def begin(self) -> None:
        """Start a request; an earlier one is forgotten."""
        self._state.asked_at, self._margin = None, 1
        self._propose(0)

    def answered(self, member: Member, reply: CheckpointStepReply, now: float) -> None:
        """Handle a pod's reply: how far its processes are, and whether they wait at the proposed step."""
        state = self._state
        if state.phase != Phase.ALIGNING or state.asked_at is not None or reply.round != self._round:
            return
        self._answers[member.pod.uid] = reply
        answers = [self._answers.get(uid) for uid in state.connected_in_group()]
        received = [answer for answer in answers if answer is not None]
        if len(received) < len(answers):
            return
        if not all(answer.step for answer in received):
            self._request(0, now)
        elif self._step and all(answer.is_held for answer in received):
            self._request(self._step, now)
        else:
            self._propose(max(answer.step for answer in received) + self._margin)
            self._margin *= 2

    def reconnected(self, member: Member) -> None:
        """A disconnected pod is back: repeat the request, which it may have missed."""
        state = self._state
        if state.phase != Phase.ALIGNING or state.asked_at is None:
            return
        if member.pod.uid in state.connected_in_group():
            self._send({member.pod.uid}, RequestCheckpoint(self._step))

    def _propose(self, step: int) -> None:
        self._round, self._step = self._round + 1, step
        self._answers.clear()
        self._send(self._state.connected_in_group(), ProposeCheckpointStep(self._round, step))

    def _request(self, step: int, now: float) -> None:
        self._state.asked_at, self._step = now, step
        log.info("the script is asked for a checkpoint %s", f"after step {step} of its group" if step else "at once")
        self._send(self._state.connected_in_group(), RequestCheckpoint(step))
