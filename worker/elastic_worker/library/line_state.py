"""The state of a training process between groups: its group, and the change under way.

It has no thread, socket or clock. `LauncherLine` passes the launcher's orders to it, and reads it at each boundary; the
random histories of the tests do the same.

    (trains) ──prepare──► forms the next group ──propose──► waits at that boundary ──bind──► (trains in the next group)
        └──── broken, or parked: in no group that can do a step; waits for prepare and bind ────►┘
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from elastic_worker.protocol import orders, process_orders, process_reports, reports
from elastic_worker.protocol.codec import Json, Message
from elastic_worker.protocol.orders import AttemptKey
from elastic_worker.protocol.process_orders import GroupPlace


@dataclass(frozen=True)
class Verdict:
    """The coordinator's decision on how the process continues.

    `place` is its place in the next group. Its rank is -1 if the others continue without it; `place` is None if there
    is no next group. `formed` is that group, None if it was not formed here. With `save` all ranks write a checkpoint
    together, and are restarted.
    """

    place: GroupPlace | None
    formed: Any = None
    save: bool = False


@dataclass(frozen=True)
class Turn:
    """The main thread's tasks at a boundary, in this order. Without a task it waits, and asks again.

    `save`: write a checkpoint. `leave`: end the process. `verdict`: follow it, or wait outside of a group (`is_out`).
    """

    save: bool = False
    leave: bool = False
    verdict: Verdict | None = None

    @property
    def is_out(self) -> bool:
        """Whether the others continue without this process, which can join another group."""
        return self.verdict is not None and self.verdict.place is not None and self.verdict.place.rank < 0


class Actions(Protocol):
    """The immediate consequences of an order. None of them may block."""

    def send(self, message: Message) -> None:
        """Send a message to the launcher."""

    def report_position(self) -> None:
        """Report how long the present step has taken so far. The main thread may hang in it."""

    def form(self, place: GroupPlace, key: AttemptKey, name: str) -> None:
        """Form a group beside the present one. Call `take_formed` when it exists, or report why it was not formed."""

    def discard(self, formed: Any) -> None:
        """Close a group that was formed and is not needed."""

    def abort(self, formed: Any) -> None:
        """Free the threads that wait in collectives of the present group, which can do no further step."""

    def watch(self) -> None:
        """Make sure that the main thread does not hang in the broken group."""


class LineState:
    """The state of one process. `current` is its present group, or the one that it enters next."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self.current: Any = None
        self.generation = 0
        self.boundaries_passed = 0
        """Number of boundaries of the present group that were passed."""
        self.must_ask = False
        """Whether the main thread has to `ask` at the next boundary."""
        self.bound: AttemptKey = []
        """The key of the change that was agreed on last."""
        self.master = 0
        """Epoch of the master that this process obeys. The group may be an earlier master's."""
        self.in_wait = self.is_broken = self.is_leaving = self.is_away = False
        """The main thread waits here; the group has lost a pod; the pod leaves; no coordinator is connected."""
        self._parked = self._save = False
        self._wanted_at: int | None = None
        self._key: AttemptKey | None = None
        self._formed: Any = None
        self._verdict: Verdict | None = None
        self._handlers: dict[type[Message], Callable[[Any], None]] = {
            process_orders.Prepare: self._on_prepare,
            orders.AskBoundary: self._on_ask_boundary,
            orders.Propose: self._on_propose,
            orders.Cancel: self._on_cancel,
            orders.Broken: self._on_broken,
            process_orders.SaveAlone: self._on_save_alone,
            process_orders.Bind: self._on_bind,
            process_orders.CoordinatorAway: self._on_coordinator_away,
            process_orders.Leave: self._on_leave,
            process_orders.AskPosition: self._on_ask_position,
        }
        """The handlers, in the order in which the orders of one line are handled (`process_orders.ALL`)."""

    # -- for the main thread -------------------------------------------------------------------------------------------

    def ask(self) -> Turn | None:
        """The tasks at this boundary; None to continue in the same group."""
        if not self._has_to_wait():
            return None
        if not (self._save or self.is_leaving or self._verdict):
            return Turn()
        verdict, self._verdict = self._verdict, None
        saving, self._save = self._save, False
        if verdict is not None:
            self._follow(verdict)
        return Turn(saving, self.is_leaving and not saving, verdict)

    def park(self) -> None:
        """Leave the group, and report that this process can join one."""
        self._follow(Verdict(None))
        self._actions.send(process_reports.Waits())

    def enter(self, generation: int, formed: Any) -> None:
        """Enter the first group, which is formed without the coordinator's help."""
        self._follow(Verdict(GroupPlace(generation, 0, 1, "", 0), formed))

    def lose(self) -> None:
        """Record and report that the group can do no further step."""
        self.is_broken = True
        self._update_must_ask()
        self._actions.send(process_reports.Lost(self.generation))

    def report_cut_off(self) -> None:
        """Report that a peer's connection has ended, so that the present step cannot be completed.

        If the process is bound for a next group, that group cannot have its state after this step (202). A process
        without a place there needs no further step.
        """
        place = self._verdict.place if self._verdict is not None else None
        if place is not None and place.rank < 0:
            self._break()
            self._update_must_ask()
            return
        self._actions.send(process_reports.Lost(place.generation if place is not None else self.generation))

    def take_formed(self, key: AttemptKey, formed: Any) -> bool:
        """Take the group formed for that change; False if the change was given up meanwhile."""
        if self._key != key:
            return False
        self._formed = formed
        self._actions.send(reports.Formed(key))
        return True

    # -- orders of the launcher ----------------------------------------------------------------------------------------

    def handle_order(self, line: Json) -> None:
        """Handle one line. Raises wire.UNREADABLE if it cannot be understood."""
        for kind, handle in self._handlers.items():
            if kind.key in line:
                handle(kind.from_json(line))
        self._update_must_ask()

    def _on_prepare(self, order: process_orders.Prepare) -> None:
        """Form the next group beside the present one."""
        self._forget()
        if order.broken:
            self._verdict = None
            self._break()
        if order.place.rank >= 0:
            self._key = key = order.at
            self._actions.form(order.place, key, f"library-{key[0]}.{key[1]}")

    def _on_ask_boundary(self, order: orders.AskBoundary) -> None:
        self._actions.send(reports.AtBoundary(self.boundaries_passed, order.at))

    def _on_propose(self, order: orders.Propose) -> None:
        """Agree to wait at that boundary if it was not passed yet.

        The main thread counts a boundary first and reads `must_ask` then, without a lock. So the order is reversed
        here: `must_ask` is set first, and the count is read then.
        """
        self._wanted_at, self.must_ask = order.boundary, True
        agreed = self.boundaries_passed < order.boundary
        if not agreed:
            self._wanted_at = None
        self._actions.send(reports.Agreed(agreed, order.boundary, order.at))

    def _on_cancel(self, _order: orders.Cancel) -> None:
        self._forget()

    def _on_broken(self, order: orders.Broken) -> None:
        if order.generation == self.generation:
            self._break()

    def _on_save_alone(self, _order: process_orders.SaveAlone) -> None:
        self._save = True

    def _on_bind(self, order: process_orders.Bind) -> None:
        formed = self._formed if self._key == order.at else None
        self._formed, self._key, self.bound, self._save = None, None, order.at, False
        self._verdict = Verdict(order.place, formed, save=bool(order.save))

    def _on_coordinator_away(self, order: process_orders.CoordinatorAway) -> None:
        self.is_away, self.master = order.is_away, max(self.master, order.epoch or 0)

    def _on_leave(self, _order: process_orders.Leave) -> None:
        self.is_leaving = True

    def _on_ask_position(self, _order: process_orders.AskPosition) -> None:
        self._actions.report_position()

    def _forget(self) -> None:
        """Discard a group that was formed but not bound."""
        formed, self._formed, self._key = self._formed, None, None
        if self._verdict is None:
            self._wanted_at = None
        if formed is not None:
            self._actions.discard(formed)

    def _break(self) -> None:
        if not self.is_broken:
            self.is_broken = True
            self._actions.watch()
        if self.current is not None:
            self._actions.abort(self.current)

    # -- for both ------------------------------------------------------------------------------------------------------

    def _follow(self, verdict: Verdict) -> None:
        """Follow a verdict, and count the boundaries of the next group from 0."""
        self._wanted_at, self.is_broken = None, False
        self._parked = verdict.place is None or verdict.place.rank < 0
        if verdict.place is not None and not self._parked:
            self.generation, self.boundaries_passed, self.current = verdict.place.generation, 0, verdict.formed
        self._update_must_ask()

    def _update_must_ask(self) -> None:
        waits = self.is_broken or self._parked or self.is_leaving or self._save or self._verdict is not None
        self.must_ask = waits or self._wanted_at is not None

    def _has_to_wait(self) -> bool:
        free = self._wanted_at is None
        return self.is_broken or self._parked or (self.is_leaving and free) or self._wanted_at == self.boundaries_passed
