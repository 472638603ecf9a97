"""Has all pods of a group stop right after a checkpoint: asks them to wait for one, and takes in what they answer.

    align ──► aligned: whole ──► (the others) still? ──► yes: aligned ──► all yes: the group may be stopped
                 │                                 └──► no: those that stand still go on, and all wait further
                 └──► aligned: in vain, time is over and nothing is being written here ──► from all: it may be stopped

A pod sees only what it writes itself, so its word is not enough (108): another one may be in the middle of its part.
Pods that said yes stand still, so nothing is begun between their answer and the stop.
"""

from __future__ import annotations

from elastic_worker.coordinator.member import Member
from elastic_worker.coordinator.state import CoordinatorState, Phase
from elastic_worker.coordinator.telling import Tell
from elastic_worker.protocol.orders import Align, StandStill

STILL_SECONDS = 15.0
"""After so long without an answer a pod counts as standing still: its storage hangs, or its launcher is older."""


class Aligning:
    """Of one coordinator; `tell(uids, message)` reaches those of the members that are connected."""

    def __init__(self, state: CoordinatorState, tell: Tell) -> None:
        self._state, self._tell = state, tell
        self._limits: list[float | None] = []
        self._whole: set[str] = set()
        self._in_vain: set[str] = set()
        self._still: set[str] = set()
        self._round = 0

    def begin(self, seconds: float | None, last_call: float | None, now: float) -> None:
        """Have all wait for a checkpoint that begins within `seconds`, and for its end until `last_call` seconds."""
        self._limits = [None if limit is None else now + limit for limit in (seconds, last_call)]
        self._whole.clear()
        self._in_vain.clear()
        self._end_round()
        self._wait(self._state.here(), now)

    def answered(self, member: Member, now: float, *, whole: bool, marked: bool) -> None:
        """A pod's processes stand right after a checkpoint (`whole`), a `marked` one or not; or none came in time."""
        if self._state.phase != Phase.ALIGNING:
            return
        uid = member.pod.uid
        (self._whole if whole else self._in_vain).add(uid)
        if whole and self._state.still_until is None:
            self._round += 1
            self._state.still_until = now + STILL_SECONDS
            self._tell(self._state.here() - self._whole, StandStill(self._round, marked))
        self._look()

    def stood(self, member: Member, now: float, *, still: bool, round_: int) -> None:
        """A pod's processes stand still and write nothing; or they do write, and it waits for a checkpoint itself."""
        if self._state.phase != Phase.ALIGNING or round_ != self._round:
            return
        uid = member.pod.uid
        if self._state.still_until is None:
            if still:  # another one's "no" has ended the round before this answer came
                self._wait({uid}, now)
            return
        self._in_vain.discard(uid)
        if still:
            self._still.add(uid)
            self._look()
            return
        standing = self._whole | self._still
        self._whole.clear()
        self._end_round()
        self._wait(standing, now)

    def _look(self) -> None:
        here, state = self._state.here(), self._state
        if state.still_until is not None:
            state.aligned = here <= self._whole | self._still
        else:
            state.aligned = here <= self._in_vain
            state.in_vain = state.aligned

    def _wait(self, uids: set[str], now: float) -> None:
        seconds, last_call = (None if limit is None else max(0.0, limit - now) for limit in self._limits)
        self._in_vain -= uids
        self._tell(uids, Align(seconds, last_call))

    def _end_round(self) -> None:
        self._still.clear()
        self._state.aligned, self._state.in_vain, self._state.still_until = False, False, None
