"""Stops all pods of a group right after a checkpoint: asks them to wait for one, and handles their answers.

    align ──► aligned: whole ──► (the others) still? ──► yes: aligned ──► all yes: the group may be stopped
                 │                                 └──► no: those that stand still train on, and all wait again
                 └──► aligned: in vain, time is over and nothing is being written here ──► from all: it may be stopped

A pod sees only the files that it writes itself, so its report alone is not enough (108): another pod may be in the
middle of its part of the checkpoint. Pods that answered yes are frozen, so they write nothing before the stop.
"""

from __future__ import annotations

from elastic_worker.coordinator.member import Member
from elastic_worker.coordinator.outbox import Send
from elastic_worker.coordinator.state import CoordinatorState, Phase
from elastic_worker.protocol.orders import Align, StandStill

STILL_SECONDS = 15.0
"""A pod that does not answer within this time counts as frozen: its storage hangs, or its launcher is older."""


class Aligning:
    """The alignment of one coordinator's group; `send(uids, message)` reaches the connected members."""

    def __init__(self, state: CoordinatorState, send: Send) -> None:
        self._state, self._send = state, send
        self._limits: list[float | None] = []
        self._whole: set[str] = set()
        self._in_vain: set[str] = set()
        self._still: set[str] = set()
        self._round = 0

    def begin(self, seconds: float | None, last_call: float | None, now: float) -> None:
        """Let all pods wait for a checkpoint that begins within `seconds` and is complete within `last_call` seconds.

        None: no limit.
        """
        self._limits = [None if limit is None else now + limit for limit in (seconds, last_call)]
        self._whole.clear()
        self._in_vain.clear()
        self._end_round()
        self._wait(self._state.connected_in_group(), now)

    def answered(self, member: Member, now: float, *, whole: bool, marked: bool) -> None:
        """Handle a pod's Aligned: its processes are frozen right after a checkpoint (`whole`), or none came in time."""
        if self._state.phase != Phase.ALIGNING:
            return
        uid = member.pod.uid
        (self._whole if whole else self._in_vain).add(uid)
        if whole and self._state.still_deadline is None:
            self._round += 1
            self._state.still_deadline = now + STILL_SECONDS
            self._send(self._state.connected_in_group() - self._whole, StandStill(self._round, marked))
        self._update()

    def stood(self, member: Member, now: float, *, still: bool, round_: int) -> None:
        """Handle a pod's StandsStill: its processes are frozen (`still`), or it waits for its own checkpoint."""
        if self._state.phase != Phase.ALIGNING or round_ != self._round:
            return
        uid = member.pod.uid
        if self._state.still_deadline is None:
            if still:  # another pod's "no" has ended the round before this answer came
                self._wait({uid}, now)
            return
        self._in_vain.discard(uid)
        if still:
            self._still.add(uid)
            self._update()
            return
        standing = self._whole | self._still
        self._whole.clear()
        self._end_round()
        self._wait(standing, now)

    def _update(self) -> None:
        connected, state = self._state.connected_in_group(), self._state
        if state.still_deadline is not None:
            state.aligned = connected <= self._whole | self._still
        else:
            state.aligned = connected <= self._in_vain
            state.no_checkpoint_came = state.aligned

    def _wait(self, uids: set[str], now: float) -> None:
        seconds, last_call = (None if limit is None else max(0.0, limit - now) for limit in self._limits)
        self._in_vain -= uids
        self._send(uids, Align(seconds, last_call))

    def _end_round(self) -> None:
        self._still.clear()
        self._state.aligned, self._state.no_checkpoint_came, self._state.still_deadline = False, False, None
