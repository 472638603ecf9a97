"""A training process's line to its launcher: a thread listens, the main thread asks at each boundary.

A *boundary* is a point that all processes of a group pass in the same order: before each step, and in evaluations.
They are counted from the group's beginning. Passing one costs the look at a flag; only if it is up, because a change is
under way, is there anything to wait for.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from elastic_worker.library import groups, stuck
from elastic_worker.library.place import Place

log = logging.getLogger(__name__)

Message = dict[str, Any]
Form = Callable[[Place, str], groups.Formed]
FORM_SECONDS = 5.0
HINT_SECONDS = 3.0
"""After so long the launcher is told that this process can reach its peers no more."""
CONFIRM_SECONDS = 60.0
"""An error of communication is the script's own if nobody says within this time that the group has lost a pod."""


class Leave(SystemExit):
    """This process was told to end: its pod leaves."""


@dataclass
class Verdict:
    """How it goes on: in `place`, whose rank is -1 if others go on without this process; None if nobody goes on.

    With `save` all write a checkpoint together, and are started again.
    """

    place: Place | None
    formed: groups.Formed | None = None
    save: bool = False


class Link:
    """`form` makes a group. `current` is the group that this process is in, or is about to be."""

    def __init__(self, path: str, hello: Message, *, form: Form) -> None:
        self._form = form
        self.current: groups.Formed | None = None
        self._changed = threading.Condition(threading.RLock())
        self.passed = 0
        self.attention = False
        self._wanted_at: int | None = None
        self._key: list[int] | None = None
        self._formed: groups.Formed | None = None
        self._verdict: Verdict | None = None
        self._broken = self._parked = self._away = self._leaving = self._save = self._in_wait = False
        self.generation = 0
        self.master = 0
        """The epoch of the master that this process obeys, where the group is that of an earlier one."""
        self.bound: list[int] = []
        self.step_began: float | None = None
        self.median_step: float | None = None
        """In seconds, once enough steps were done to know it. Set by the job, told to a launcher that asks."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self.send(**hello)
        threading.Thread(target=self._listen, name="elastic-link", daemon=True).start()

    def send(self, **message: Any) -> None:
        """Say something; a launcher that is gone takes this process with it."""
        with self._changed, suppress(OSError):
            self._socket.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    # -- the main thread -----------------------------------------------------------------------------------------------

    def boundary(self, save: Callable[[], None]) -> Verdict | None:
        """Pass one; None to go on in the same group. Raises Leave. `save` writes a checkpoint, if that is asked for."""
        self.passed += 1
        return self.wait(save) if self.attention else None

    def wait(self, save: Callable[[], None]) -> Verdict | None:
        """Until it is clear whether and how to go on."""
        self._in_wait = True
        try:
            return self._wait(save)
        finally:
            self._in_wait = False

    def _wait(self, save: Callable[[], None]) -> Verdict | None:
        while True:
            with self._changed:
                if not self._has_to_wait():
                    return None
                if not (self._save or self._leaving or self._verdict):
                    self._changed.wait(1.0)
                    continue
                verdict, self._verdict = self._verdict, None
                saving, self._save = self._save, False
                leaving = self._leaving and not saving
                if verdict is not None:
                    self._settle(verdict)
            if saving:
                save()
                self.send(saved=1)
            if leaving:
                raise Leave(0)
            if verdict is not None and verdict.place is not None:
                if verdict.place.rank >= 0:
                    return verdict
                self.send(waits=1)
            elif verdict is not None and verdict.save:
                return verdict

    def park(self) -> None:
        """Be in no group, ready to be taken into one."""
        with self._changed:
            self._settle(Verdict(None))
        self.send(waits=1)

    def enter(self, generation: int, formed: groups.Formed | None) -> None:
        """Be in a group that was made without the coordinator's help: the first one."""
        with self._changed:
            self._settle(Verdict(Place(generation, 0, 1, "", 0), formed))

    def _settle(self, verdict: Verdict) -> None:
        """What comes from now on is about what is next."""
        self._wanted_at, self._broken = None, False
        self._parked = verdict.place is None or verdict.place.rank < 0
        if verdict.place is not None and not self._parked:
            self.generation, self.passed, self.current = verdict.place.generation, 0, verdict.formed
        self._look()

    def is_confirmed(self) -> bool:
        """Whether the group has lost somebody: waits until it is told, for as long as there is anybody who could."""
        waited, self._in_wait = 0.0, True
        with self._changed:
            while waited < CONFIRM_SECONDS:
                if self._broken or self._leaving:
                    return True
                if waited == HINT_SECONDS:
                    self.send(lost=self.generation)
                self._changed.wait(0.5)
                waited = 0.0 if self._away else waited + 0.5
        return False

    def lost(self) -> None:
        """The group is of no use any more, whoever else knows that."""
        with self._changed:
            self._broken = True
            self._look()
        self.send(lost=self.generation)

    # -- the listener --------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            for line in self._socket.makefile("rb"):
                self._hear(json.loads(line))
        except (OSError, ValueError) as error:
            log.debug("the launcher is heard no more: %s", error)

    def _hear(self, message: Message) -> None:
        with self._changed:
            if "prepare" in message:
                self._prepare(message["prepare"])
            if "ask" in message:
                self.send(passed=self.passed, at=message["ask"])
            if "where" in message:
                self._say_where()
            if "propose" in message:
                self._propose(int(message["propose"]), message["at"])
            if "cancel" in message:
                self._forget()
            if "bind" in message:
                self._bind(message["bind"], message["at"], together="save" in message)
            if "broken" in message and message["broken"] == self.generation:
                self._break()
            self._away = bool(message.get("away", self._away))
            self.master = max(self.master, int(message.get("epoch", 0)))
            self._save = bool(message.get("save", self._save)) and "bind" not in message
            self._leaving = bool(message.get("leave", self._leaving))
            self._look()
            self._changed.notify_all()

    def _prepare(self, told: Message) -> None:
        """Form the next group beside the present one."""
        self._forget()
        if told.get("broken"):
            self._verdict = None
            self._break()
        place = Place.from_message(told)
        if place.rank < 0:
            return
        self._key = key = told["at"]
        name = f"library-{key[0]}.{key[1]}"
        threading.Thread(target=self._make, args=(place, key, name), name="elastic-form", daemon=True).start()

    def _make(self, place: Place, key: list[int], name: str) -> None:
        try:
            formed = self._form(place, name)
        except Exception as error:  # noqa: BLE001 (whatever goes wrong, the group that trains must not notice)
            self.send(unformed=f"{type(error).__name__}: {error}"[:500], at=key)
            return
        with self._changed:
            if self._key == key:
                self._formed = formed
                self.send(formed=1, at=key)
                return
        groups.discard(formed)

    def _say_where(self) -> None:
        """How long the present step takes already, though the main thread may hang in it."""
        began, median = self.step_began, self.median_step
        seconds = 0.0 if began is None or median is None else time.monotonic() - began
        self.send(where={"tick": self.passed, "seconds": round(seconds, 1), "median": median or 0.0})

    def _propose(self, tick: int, key: list[int]) -> None:
        """Whoever has not passed that boundary agrees, and waits there."""
        self._wanted_at, self.attention = tick, True
        agreed = self.passed < tick
        if not agreed:
            self._wanted_at = None
        self.send(agreed=agreed, tick=tick, at=key)

    def _bind(self, place: Message | None, key: list[int], *, together: bool) -> None:
        formed = self._formed if self._key == key else None
        self._formed, self._key, self.bound = None, None, key
        self._verdict = Verdict(None if place is None else Place.from_message(place), formed, save=together)

    def _forget(self) -> None:
        """Of what is not certain yet nothing counts any more."""
        formed, self._formed, self._key = self._formed, None, None
        if self._verdict is None:
            self._wanted_at = None
        if formed is not None:
            groups.discard(formed)

    def _break(self) -> None:
        was_broken, self._broken = self._broken, True
        if not was_broken:
            stuck.watch(lambda: self._in_wait or not self._broken)
        if self.current is not None:
            groups.abort(self.current)

    def _look(self) -> None:
        waits = self._broken or self._parked or self._leaving or self._save or self._verdict is not None
        self.attention = waits or self._wanted_at is not None

    def _has_to_wait(self) -> bool:
        free = self._wanted_at is None
        return self._broken or self._parked or (self._leaving and free) or self._wanted_at == self.passed
