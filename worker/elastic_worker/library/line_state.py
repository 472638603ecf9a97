"""What a training process knows of its group, and of the change that is under way: no thread, no socket, no clock.

`LauncherLine` feeds it what the launcher says and asks it at each boundary. The random histories of the tests do the
same.

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
    """How the process goes on: in `place`, whose rank is -1 if the others go on without it; None if nobody goes on.

    `formed` is the group of that place, None if it was not formed here. With `save` all ranks write a checkpoint
    together, and are started again.
    """

    place: GroupPlace | None
    formed: Any = None
    save: bool = False


@dataclass(frozen=True)
class Turn:
    """What the main thread does at a boundary, in this order. Nothing of it: it waits, and asks again.

    `save`: write a checkpoint. `leave`: end. `verdict`: go on by it, or wait in no group (`is_out`).
    """

    save: bool = False
    leave: bool = False
    verdict: Verdict | None = None

    @property
    def is_out(self) -> bool:
        """Whether the others go on without this process, which can be taken into another group."""
        return self.verdict is not None and self.verdict.place is not None and self.verdict.place.rank < 0


class Actions(Protocol):
    """What follows at once from what was heard. None of it may wait for anything."""

    def send(self, message: Message) -> None:
        """Say something to the launcher."""

    def say_where(self) -> None:
        """Say how long the present step takes already, though the main thread may hang in it."""

    def form(self, place: GroupPlace, key: AttemptKey, name: str) -> None:
        """Form a group beside the present one. Call `take_formed`, or say why not, when it is there."""

    def discard(self, formed: Any) -> None:
        """Give up a group that was formed and is not needed."""

    def abort(self, formed: Any) -> None:
        """Free the threads that wait in collectives of the present group, which can do no further step."""

    def watch(self) -> None:
        """See to it that the main thread comes out of the broken group."""


class LineState:
    """Of one process. `current` is the group that it is in, or is about to be."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self.current: Any = None
        self.generation = 0
        self.passed = 0
        """Boundaries of the present group."""
        self.attention = False
        """Whether the next boundary is more than a number."""
        self.bound: AttemptKey = []
        """The key of the change that was agreed on last."""
        self.master = 0
        """The epoch of the master that this process obeys, where the group is that of an earlier one."""
        self.in_wait = self.is_broken = self.is_leaving = self.is_away = False
        """The main thread waits here; the group has lost a pod; the pod leaves; nobody coordinates."""
        self._parked = self._save = False
        self._wanted_at: int | None = None
        self._key: AttemptKey | None = None
        self._formed: Any = None
        self._verdict: Verdict | None = None
        self._handlers: dict[type[Message], Callable[[Any], None]] = {
            process_orders.Prepare: self._prepare,
            orders.AskBoundary: self._say_passed,
            orders.Propose: self._propose,
            orders.Cancel: self._cancel,
            orders.Broken: self._hear_broken,
            process_orders.SaveAlone: self._hear_save,
            process_orders.Bind: self._bind,
            process_orders.CoordinatorAway: self._hear_away,
            process_orders.Leave: self._hear_leave,
            process_orders.AskPosition: self._say_where,
        }
        """In the order in which they are taken in (`process_orders.ALL`)."""

    # -- the main thread asks ------------------------------------------------------------------------------------------

    def ask(self) -> Turn | None:
        """What to do at this boundary; None to go on in the same group."""
        if not self._has_to_wait():
            return None
        if not (self._save or self.is_leaving or self._verdict):
            return Turn()
        verdict, self._verdict = self._verdict, None
        saving, self._save = self._save, False
        if verdict is not None:
            self._settle(verdict)
        return Turn(saving, self.is_leaving and not saving, verdict)

    def park(self) -> None:
        """Be in no group, ready to be taken into one."""
        self._settle(Verdict(None))
        self._actions.send(process_reports.Waits())

    def enter(self, generation: int, formed: Any) -> None:
        """Be in a group that was made without the coordinator's help: the first one."""
        self._settle(Verdict(GroupPlace(generation, 0, 1, "", 0), formed))

    def lose(self) -> None:
        """The group can do no further step, as this process has seen."""
        self.is_broken = True
        self._look()
        self._actions.send(process_reports.Lost(self.generation))

    def take_formed(self, key: AttemptKey, formed: Any) -> bool:
        """The group of that change is there; False if the change is none any more."""
        if self._key != key:
            return False
        self._formed = formed
        self._actions.send(reports.Formed(key))
        return True

    # -- the launcher says ---------------------------------------------------------------------------------------------

    def hear(self, line: Json) -> None:
        """Take in one line. Raises wire.UNREADABLE for what makes no sense."""
        for kind, handle in self._handlers.items():
            if kind.key in line:
                handle(kind.from_json(line))
        self._look()

    def _prepare(self, told: process_orders.Prepare) -> None:
        """Form the next group beside the present one."""
        self._forget()
        if told.broken:
            self._verdict = None
            self._break()
        if told.place.rank >= 0:
            self._key = key = told.at
            self._actions.form(told.place, key, f"library-{key[0]}.{key[1]}")

    def _say_passed(self, told: orders.AskBoundary) -> None:
        self._actions.send(reports.AtBoundary(self.passed, told.at))

    def _propose(self, told: orders.Propose) -> None:
        """A process that has not passed that boundary agrees, and waits there.

        The main thread counts a boundary first and looks then, without a lock: so here it is the other way round.
        """
        self._wanted_at, self.attention = told.boundary, True
        agreed = self.passed < told.boundary
        if not agreed:
            self._wanted_at = None
        self._actions.send(reports.Agreed(agreed, told.boundary, told.at))

    def _cancel(self, _told: orders.Cancel) -> None:
        self._forget()

    def _hear_broken(self, told: orders.Broken) -> None:
        if told.generation == self.generation:
            self._break()

    def _hear_save(self, _told: process_orders.SaveAlone) -> None:
        self._save = True

    def _bind(self, told: process_orders.Bind) -> None:
        formed = self._formed if self._key == told.at else None
        self._formed, self._key, self.bound, self._save = None, None, told.at, False
        self._verdict = Verdict(told.place, formed, save=bool(told.save))

    def _hear_away(self, told: process_orders.CoordinatorAway) -> None:
        self.is_away, self.master = told.is_away, max(self.master, told.epoch or 0)

    def _hear_leave(self, _told: process_orders.Leave) -> None:
        self.is_leaving = True

    def _say_where(self, _told: process_orders.AskPosition) -> None:
        self._actions.say_where()

    def _forget(self) -> None:
        """Drop a group that was formed but not bound."""
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

    # -- both ----------------------------------------------------------------------------------------------------------

    def _settle(self, verdict: Verdict) -> None:
        """Start counting for the next group."""
        self._wanted_at, self.is_broken = None, False
        self._parked = verdict.place is None or verdict.place.rank < 0
        if verdict.place is not None and not self._parked:
            self.generation, self.passed, self.current = verdict.place.generation, 0, verdict.formed
        self._look()

    def _look(self) -> None:
        waits = self.is_broken or self._parked or self.is_leaving or self._save or self._verdict is not None
        self.attention = waits or self._wanted_at is not None

    def _has_to_wait(self) -> bool:
        free = self._wanted_at is None
        return self.is_broken or self._parked or (self.is_leaving and free) or self._wanted_at == self.passed
