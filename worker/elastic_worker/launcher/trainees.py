"""The launcher's line to the training processes of this pod that use the library: as one towards the coordinator.

What the coordinator says goes to each of them, with its own rank; what they answer goes back when all have.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from elastic_worker import wire
from elastic_worker.contract import IN_PLACE
from elastic_worker.coordinator.part import Part, read_part
from elastic_worker.protocol import orders, process_orders, process_reports, reports
from elastic_worker.protocol.codec import Json, Message
from elastic_worker.protocol.process_orders import GroupPlace

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)
LINE_BYTES = 1 << 20
STALL_STEPS = 10.0
"""A step that takes this many times the median will not end."""


class Writer(Protocol):
    """The way to a process: what is used of asyncio.StreamWriter."""

    def is_closing(self) -> bool: ...
    def write(self, data: bytes, /) -> None: ...
    def close(self) -> None: ...
    async def drain(self) -> None: ...


@dataclass
class Trainee:
    """One training process. `joined`: the generation it is in. `waits`: it is in none, and can be brought into one."""

    local_rank: int
    kind: str
    writer: Writer
    joined: int = 0
    waits: bool = False
    progress: process_reports.Progress | None = None
    where: process_reports.Position | None = None

    def send(self, message: Message) -> None:
        """Put a message on its way."""
        if not self.writer.is_closing():
            self.writer.write(wire.encode(message.to_json()))


class Trainees:
    """Of one pod. `tell` reaches the coordinator, `size` is how many processes the pod has."""

    def __init__(self, uid: str, path: Path, *, tell: Callable[..., None], size: Callable[[], int]) -> None:
        self._uid, self.path, self._tell, self._size = uid, path, tell, size
        self._trainees: dict[int, Trainee] = {}
        self._answers: dict[tuple[Any, ...], dict[int, Any]] = {}
        self._ready, self._joined = False, 0
        self._saved: asyncio.Future[None] | None = None
        self._handlers: dict[type[Message], Callable[[Trainee, Any], None]] = {
            process_reports.Progress: self._progress,
            process_reports.Position: self._where,
            process_reports.Waits: self._waits,
            process_reports.Joined: self._is_in,
            process_reports.Stepped: self._stepped,
            process_reports.SavedAlone: self._has_saved,
            process_reports.Lost: self._lost,
            reports.Formed: self._formed,
            reports.Unformed: self._unformed,
            reports.AtBoundary: self._passed,
            reports.Agreed: self._agreed,
            reports.SavedTogether: self._saved_together,
            reports.LastCheckpointStep: self._last_checkpoint,
            reports.CheckpointError: self._checkpoint_error,
        }
        self._orders: dict[type[Message], Callable[[Any], None]] = {
            orders.Prepare: self._prepare,
            **dict.fromkeys(process_orders.FORWARDED, self._each),
            orders.Bind: self._bind,
        }

    # -- what is known -------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """How its processes change groups: in place, or started again after a checkpoint; "" for a plain script."""
        kinds = {trainee.kind for trainee in self._trainees.values()}
        return kinds.pop() if len(kinds) == 1 and len(self._trainees) == self._size() else ""

    @property
    def in_place(self) -> bool:
        """Whether all of its processes go from group to group as they are."""
        return self.kind == IN_PLACE

    def progress(self) -> process_reports.Progress | None:
        """What its first process last said of the training, if it said something."""
        return self._trainees[min(self._trainees)].progress if self._trainees else None

    def ask_where(self, at_least: float) -> tuple[int, process_reports.Position] | None:
        """The process that is least far of those whose step takes far too long, if all do, by its local rank.

        Asks anew for the next time.
        """
        said = [(trainee.local_rank, trainee.where) for trainee in self._trainees.values()]
        self._each(process_orders.AskPosition())
        stuck = [
            (local_rank, where)
            for local_rank, where in said
            if where is not None and where.seconds > max(at_least, STALL_STEPS * where.median)
        ]
        return min(stuck, key=lambda each: each[1].boundary) if said and len(stuck) == len(said) else None

    # -- the socket ----------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Until cancelled. Raises OSError where the socket cannot be made."""
        server = await asyncio.start_unix_server(self._attend, path=str(self.path), limit=LINE_BYTES)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for trainee in self._trainees.values():
                trainee.writer.close()
            self.path.unlink(missing_ok=True)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            trainee = self.enter(json.loads(await reader.readline()), writer)
            while line := await reader.readline():
                self._hear(trainee, line)
        except (OSError, *wire.UNREADABLE) as error:
            log.debug("a training process is heard no more: %s", error)
        finally:
            writer.close()

    def _hear(self, trainee: Trainee, line: bytes) -> None:
        """What cannot be read, of a library of another release, ends nobody's training (103)."""
        try:
            self.take(trainee, json.loads(line))
        except wire.UNREADABLE as error:
            told = "process %d says what cannot be read: %r in %.300r"
            log.warning(told, trainee.local_rank, error, line, exc_info=True)

    def enter(self, line: Json, writer: Writer) -> Trainee:
        """A process has dialled in. Raises wire.UNREADABLE for what is no hello."""
        hello = process_reports.Hello.from_json(line)
        trainee = Trainee(hello.local_rank, hello.change_mode, writer)
        self._trainees[trainee.local_rank] = trainee
        if hello.checkpoints:
            self._tell(reports.CheckpointFolder(hello.checkpoints))
        self._look()
        return trainee

    def gone(self, local_rank: int) -> None:
        """That process has failed. One that ends well stays in its group until all have."""
        if self._trainees.pop(local_rank, None) is not None:
            self._look()

    def forget(self) -> None:
        """All processes have ended, as they were told."""
        self._trainees.clear()
        self._look()

    # -- from the processes to the coordinator -------------------------------------------------------------------------

    def take(self, trainee: Trainee, line: Json) -> None:
        """What a process says. Raises wire.UNREADABLE."""
        for kind, handle in self._handlers.items():
            if kind.key in line:
                handle(trainee, kind.from_json(line))

    def _progress(self, trainee: Trainee, said: process_reports.Progress) -> None:
        trainee.progress = said

    def _where(self, trainee: Trainee, said: process_reports.Position) -> None:
        trainee.where = said

    def _waits(self, trainee: Trainee, _said: process_reports.Waits) -> None:
        trainee.waits, trainee.joined = True, 0
        self._look()

    def _is_in(self, trainee: Trainee, said: process_reports.Joined) -> None:
        trainee.waits, trainee.joined = False, said.generation
        self._look()

    def _stepped(self, trainee: Trainee, said: process_reports.Stepped) -> None:
        if all_said := self._collect(trainee, said, said.generation):
            pauses = [each.pause for each in all_said if each.pause > 0]
            self._tell(reports.Stepped(said.generation, max(pauses) if pauses else None))

    def _has_saved(self, _trainee: Trainee, _said: process_reports.SavedAlone) -> None:
        if self._saved is not None and not self._saved.done():
            self._saved.set_result(None)

    def _lost(self, _trainee: Trainee, said: process_reports.Lost) -> None:
        self._tell(reports.CutOff(said.generation))

    def _formed(self, trainee: Trainee, said: reports.Formed) -> None:
        if self._collect(trainee, said, *said.at):
            self._tell(said)

    def _unformed(self, _trainee: Trainee, said: reports.Unformed) -> None:
        self._tell(said)

    def _passed(self, trainee: Trainee, said: reports.AtBoundary) -> None:
        if all_said := self._collect(trainee, said, *said.at):
            self._tell(reports.AtBoundary(max(each.boundary for each in all_said), said.at))

    def _agreed(self, trainee: Trainee, said: reports.Agreed) -> None:
        if all_said := self._collect(trainee, said, said.boundary, *said.at):
            self._tell(reports.Agreed(all(each.is_agreed for each in all_said), said.boundary, said.at))

    def _saved_together(self, trainee: Trainee, said: reports.SavedTogether) -> None:
        if all_said := self._collect(trainee, said, *said.at):
            self._tell(reports.SavedTogether(all(each.is_saved for each in all_said), said.at))

    def _last_checkpoint(self, _trainee: Trainee, said: reports.LastCheckpointStep) -> None:
        self._tell(reports.Checkpoint(), said)

    def _checkpoint_error(self, _trainee: Trainee, said: reports.CheckpointError) -> None:
        self._tell(said)

    def _collect(self, trainee: Trainee, said: M, *about: int) -> list[M]:
        """What all processes have said about the same; nothing before all have."""
        key = type(said), *about
        answers = self._answers.setdefault(key, {})
        answers[trainee.local_rank] = said
        if len(answers) < self._size():
            return []
        del self._answers[key]
        return list(answers.values())

    def _look(self) -> None:
        """Tell when all of them can be brought into a group, or when that is no more so; and which one they are in."""
        trainees = list(self._trainees.values())
        complete = len(trainees) == self._size() and len({t.kind for t in trainees}) == 1
        ready = complete and all(t.waits or t.joined for t in trainees)
        joined = trainees[0].joined if ready and len({t.joined for t in trainees}) == 1 else 0
        if (ready, joined) != (self._ready, self._joined):
            self._ready, self._joined = ready, joined
            holds = any(trainee.joined for trainee in trainees)
            self._tell(reports.Ready(ready, joined, holds, self.kind))

    # -- from the coordinator to the processes -------------------------------------------------------------------------

    def hear(self, line: Json) -> None:
        """Hand on what concerns groups that change in place. Raises wire.UNREADABLE."""
        for kind, handle in self._orders.items():
            if kind.key in line:
                handle(kind.from_json(line))

    def _prepare(self, told: orders.Prepare) -> None:
        self._answers.clear()
        part = read_part(told.group, self._uid)
        for rank, trainee in self._trainees.items():
            trainee.send(process_orders.Prepare(_place(part, rank), told.at, told.broken))

    def _bind(self, told: orders.Bind) -> None:
        part = None if told.group is None else read_part(told.group, self._uid)
        for rank, trainee in self._trainees.items():
            place = None if part is None else _place(part, rank)
            trainee.send(process_orders.Bind(place, told.at, told.save))

    def coordinator_is(self, epoch: int | None) -> None:
        """The epoch of the coordinator; None while there is none, as then nobody can say which pods are lost."""
        self._each(process_orders.CoordinatorAway(epoch is None, epoch))

    async def leave(self, *, save: bool, seconds: float) -> None:
        """Have the processes end by themselves; with `save`, the first one writes a checkpoint before."""
        if not self._trainees or seconds <= 0:
            return
        first = min(self._trainees)
        if save:
            self._saved = asyncio.get_running_loop().create_future()
            self._trainees[first].send(process_orders.SaveAlone())
            await asyncio.wait({self._saved}, timeout=seconds)
        self._each(process_orders.Leave())
        for trainee in list(self._trainees.values()):
            with suppress(OSError):
                await trainee.writer.drain()

    def _each(self, message: Message) -> None:
        for trainee in self._trainees.values():
            trainee.send(message)


def _place(part: Part, local_rank: int) -> GroupPlace:
    """What one process needs to know of a group; rank -1 if it is not in it."""
    place = GroupPlace(part.number, -1, part.world_size, part.host, part.store_port, part.epoch)
    if part.place < 0:
        return place
    return replace(place, rank=part.first_rank + local_rank, pods=part.pods, pod=part.place)
