"""A training process's connection to its launcher: a thread receives orders, the main thread reads them at boundaries.

A *boundary* is a point that all processes of a group pass in the same order: before each step, and in evaluations.
Boundaries are counted from the group's start. Passing one costs the reading of a flag. The flag is set while a change
of the group is under way, and only then may the main thread have to wait.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from elastic_worker import wire
from elastic_worker.library import groups, watchdog
from elastic_worker.library.line_state import LineState, Turn, Verdict
from elastic_worker.protocol.codec import Message
from elastic_worker.protocol.orders import AttemptKey
from elastic_worker.protocol.process_orders import GroupPlace
from elastic_worker.protocol.process_reports import Hello, Position, SavedAlone, Waits
from elastic_worker.protocol.reports import Unformed

log = logging.getLogger(__name__)

Form = Callable[[GroupPlace, str], groups.Formed]
FORM_SECONDS = 5.0
HINT_SECONDS = 3.0
"""Time after an error of communication at which this process reports that it cannot reach its peers."""
CONFIRM_SECONDS = 60.0
"""An error of communication counts as the script's error if no loss of a pod is announced within this time."""


class PodLeaves(SystemExit):
    """Raised when this process has to end, since its pod leaves."""


class LauncherLine:
    """The connection at `path`; it feeds a `LineState` and carries out its actions. `form` forms a group."""

    def __init__(self, path: str, hello: Hello, *, form: Form) -> None:
        self._form = form
        self._changed = threading.Condition(threading.RLock())
        self._state = LineState(self)
        self.step_began: float | None = None
        self.median_step: float | None = None
        """Median of a step in seconds, None before enough steps were done. The job sets it, for the launcher."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self.send(hello)
        threading.Thread(target=self._listen, name="elastic-link", daemon=True).start()

    def send(self, message: Message) -> None:
        """Send a message. Errors are ignored, since this process ends with its launcher."""
        line = wire.encode(message.to_json())
        with self._changed, suppress(OSError):
            self._socket.sendall(line)

    # -- the main thread -----------------------------------------------------------------------------------------------

    @property
    def boundaries_passed(self) -> int:
        """Boundaries of the present group."""
        return self._state.boundaries_passed

    @property
    def bound(self) -> AttemptKey:
        """The key of the change that was agreed on last."""
        return self._state.bound

    @property
    def master(self) -> int:
        """The epoch of the master that this process obeys, if the group is that of an earlier one."""
        return self._state.master

    def boundary(self, save: Callable[[], None]) -> Verdict | None:
        """Pass a boundary; returns None to continue in the same group. Raises PodLeaves.

        `save` writes a checkpoint, if one is requested.
        """
        self._state.boundaries_passed += 1
        return self.wait(save) if self._state.must_ask else None

    def wait(self, save: Callable[[], None]) -> Verdict | None:
        """Wait for the decision how to continue; returns what `boundary` returns. Raises PodLeaves."""
        self._state.in_wait = True
        try:
            return self._wait(save)
        finally:
            self._state.in_wait = False

    def _wait(self, save: Callable[[], None]) -> Verdict | None:
        while True:
            with self._changed:
                turn = self._state.ask()
                if turn == Turn():
                    self._changed.wait(1.0)
                    continue
            if turn is None:
                return None
            if turn.save:
                save()
                self.send(SavedAlone())
            if turn.leave:
                raise PodLeaves(0)
            if turn.is_out:
                self.send(Waits())
            elif turn.verdict is not None and (turn.verdict.place is not None or turn.verdict.save):
                return turn.verdict

    def park(self) -> None:
        """Leave the group, and report that this process can join one."""
        with self._changed:
            self._state.park()

    def enter(self, generation: int, formed: groups.Formed | None) -> None:
        """Enter the first group, which is formed without the coordinator's help."""
        with self._changed:
            self._state.enter(generation, formed)

    def is_confirmed(self) -> bool:
        """Whether the group has lost a pod. Waits for CONFIRM_SECONDS, counted while a coordinator is connected."""
        waited, self._state.in_wait = 0.0, True
        with self._changed:
            while waited < CONFIRM_SECONDS:
                if self._state.is_broken or self._state.is_leaving:
                    return True
                if waited == HINT_SECONDS:
                    self._state.report_cut_off()
                self._changed.wait(0.5)
                waited = 0.0 if self._state.is_away else waited + 0.5
        return False

    def lost(self) -> None:
        """Record and report that the group can do no further step."""
        with self._changed:
            self._state.lose()

    # -- the listener --------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            for line in self._socket.makefile("rb"):
                self._handle_line(line)
        except OSError as error:
            log.debug("the connection to the launcher has ended: %s", error)

    def _handle_line(self, line: bytes) -> None:
        """Handle an order. An unreadable one is logged, so that another release's launcher ends no training (103)."""
        with self._changed:
            try:
                self._state.handle_order(json.loads(line))
            except wire.UNREADABLE as error:
                log.warning("an order of the launcher cannot be read: %r in %.300r", error, line, exc_info=True)
            self._changed.notify_all()

    # -- actions of the state (`line_state.Actions`) -------------------------------------------------------------------

    def report_position(self) -> None:
        """Report how long the present step has taken so far. The main thread may hang in it."""
        began, median = self.step_began, self.median_step
        seconds = 0.0 if began is None or median is None else time.monotonic() - began
        self.send(Position(self._state.boundaries_passed, round(seconds, 1), median or 0.0))

    def form(self, place: GroupPlace, key: AttemptKey, name: str) -> None:
        """Form a group on a thread, so that no error disturbs the group that trains."""
        threading.Thread(target=self._make, args=(place, key, name), name="elastic-form", daemon=True).start()

    def _make(self, place: GroupPlace, key: AttemptKey, name: str) -> None:
        try:
            formed = self._form(place, name)
        except Exception as error:  # noqa: BLE001 (reported to the coordinator, which tries again)
            self.send(Unformed(f"{type(error).__name__}: {error}"[:500], key))
            return
        with self._changed:
            is_needed = self._state.take_formed(key, formed)
        if not is_needed:
            groups.discard(formed)

    def discard(self, formed: groups.Formed) -> None:
        """Close the group's connections."""
        groups.discard(formed)

    def abort(self, formed: groups.Formed) -> None:
        """Free the threads that wait in the group's collectives."""
        groups.abort(formed)

    def watch(self) -> None:
        """End the process if its main thread does not leave the broken group."""
        watchdog.watch(lambda: self._state.in_wait or not self._state.is_broken)
