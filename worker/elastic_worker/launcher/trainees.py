"""The launcher's connections to the training processes of this pod that use the library.

The coordinator sees them as one: its orders go to each process with the process's own rank, and one answer is reported
once all processes have answered.
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
"""A step that takes that many times the median counts as stuck."""


class Writer(Protocol):
    """The methods of asyncio.StreamWriter that are used here."""

    def is_closing(self) -> bool: ...
    def write(self, data: bytes, /) -> None: ...
    def close(self) -> None: ...
    async def drain(self) -> None: ...


@dataclass
class Trainee:
    """One training process that uses the library.

    `joined` is the generation of its group, 0 for none. `waits`: it is in no group, and can join one.
    """

    local_rank: int
    change_mode: str
    writer: Writer
    joined: int = 0
    waits: bool = False
    progress: process_reports.Progress | None = None
    position: process_reports.Position | None = None

    def send(self, message: Message) -> None:
        """Send a message to the process, unless the connection is closing."""
        if not self.writer.is_closing():
            self.writer.write(wire.encode(message.to_json()))


class Trainees:
    """The training processes of one pod. `report` sends to the coordinator, `size` returns the number of processes."""

    def __init__(self, uid: str, path: Path, *, report: Callable[..., None], size: Callable[[], int]) -> None:
        self._uid, self.path, self._report, self._size = uid, path, report, size
        self._trainees: dict[int, Trainee] = {}
        self._answers: dict[tuple[Any, ...], dict[int, Any]] = {}
        self._ready, self._joined = False, 0
        self._saved: asyncio.Future[None] | None = None
        self._handlers: dict[type[Message], Callable[[Trainee, Any], None]] = {
            process_reports.Progress: self._on_progress,
            process_reports.Position: self._on_position,
            process_reports.Waits: self._on_waits,
            process_reports.Joined: self._on_joined,
            process_reports.Stepped: self._on_stepped,
            process_reports.SavedAlone: self._on_saved_alone,
            process_reports.Lost: self._on_lost,
            reports.Formed: self._on_formed,
            reports.Unformed: self._on_unformed,
            reports.AtBoundary: self._on_at_boundary,
            reports.Agreed: self._on_agreed,
            reports.SavedTogether: self._on_saved_together,
            reports.LastCheckpointStep: self._on_last_checkpoint,
            reports.CheckpointError: self._on_checkpoint_error,
        }
        self._orders: dict[type[Message], Callable[[Any], None]] = {
            orders.Prepare: self._on_prepare,
            **dict.fromkeys(process_orders.FORWARDED, self._send_to_all),
            orders.Bind: self._on_bind,
        }

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def change_mode(self) -> str:
        """How its processes change groups: in place, or by a restart after a checkpoint; "" for a plain script."""
        modes = {trainee.change_mode for trainee in self._trainees.values()}
        return modes.pop() if len(modes) == 1 and len(self._trainees) == self._size() else ""

    @property
    def in_place(self) -> bool:
        """Whether all of the pod's processes change groups without a restart."""
        return self.change_mode == IN_PLACE

    def progress(self) -> process_reports.Progress | None:
        """The last progress that the first process has reported, None without one."""
        return self._trainees[min(self._trainees)].progress if self._trainees else None

    def poll_stuck(self, at_least: float) -> tuple[int, process_reports.Position] | None:
        """The least advanced process, if the step of all processes is stuck, as local rank and position; else None.

        A step is stuck after `at_least` seconds and STALL_STEPS times the median. The positions are those that the
        processes last reported; each call asks for new ones.
        """
        positions = [(trainee.local_rank, trainee.position) for trainee in self._trainees.values()]
        self._send_to_all(process_orders.AskPosition())
        stuck = [
            (local_rank, position)
            for local_rank, position in positions
            if position is not None and position.seconds > max(at_least, STALL_STEPS * position.median)
        ]
        return min(stuck, key=lambda each: each[1].boundary) if positions and len(stuck) == len(positions) else None

    # -- the socket ----------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Accept processes until cancelled. Raises OSError if the socket cannot be made."""
        server = await asyncio.start_unix_server(self._serve_process, path=str(self.path), limit=LINE_BYTES)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for trainee in self._trainees.values():
                trainee.writer.close()
            self.path.unlink(missing_ok=True)

    async def _serve_process(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            trainee = self.add(json.loads(await reader.readline()), writer)
            while line := await reader.readline():
                self._handle_line(trainee, line)
        except (OSError, *wire.UNREADABLE) as error:
            log.debug("the connection to a training process has ended: %s", error)
        finally:
            writer.close()

    def _handle_line(self, trainee: Trainee, line: bytes) -> None:
        """Handle a report. An unreadable one is logged, so that another release's library ends no training (103)."""
        try:
            self.handle_report(trainee, json.loads(line))
        except wire.UNREADABLE as error:
            text = "a report of process %d cannot be read: %r in %.300r"
            log.warning(text, trainee.local_rank, error, line, exc_info=True)

    def add(self, line: Json, writer: Writer) -> Trainee:
        """Add a process that has connected with this first line. Raises wire.UNREADABLE if the line is no hello."""
        hello = process_reports.Hello.from_json(line)
        trainee = Trainee(hello.local_rank, hello.change_mode, writer)
        self._trainees[trainee.local_rank] = trainee
        if hello.checkpoints:
            self._report(reports.CheckpointFolder(hello.checkpoints))
        self._report_readiness()
        return trainee

    def remove(self, local_rank: int) -> None:
        """Remove a process that has failed. One that ends with 0 stays in its group until all have ended."""
        if self._trainees.pop(local_rank, None) is not None:
            self._report_readiness()

    def clear(self) -> None:
        """Remove all processes after they have ended on request."""
        self._trainees.clear()
        self._report_readiness()

    # -- from the processes to the coordinator -------------------------------------------------------------------------

    def handle_report(self, trainee: Trainee, line: Json) -> None:
        """Handle a line of a process. Raises wire.UNREADABLE."""
        for kind, handle in self._handlers.items():
            if kind.key in line:
                handle(trainee, kind.from_json(line))

    def _on_progress(self, trainee: Trainee, report: process_reports.Progress) -> None:
        trainee.progress = report

    def _on_position(self, trainee: Trainee, report: process_reports.Position) -> None:
        trainee.position = report

    def _on_waits(self, trainee: Trainee, _report: process_reports.Waits) -> None:
        trainee.waits, trainee.joined = True, 0
        self._report_readiness()

    def _on_joined(self, trainee: Trainee, report: process_reports.Joined) -> None:
        trainee.waits, trainee.joined = False, report.generation
        self._report_readiness()

    def _on_stepped(self, trainee: Trainee, report: process_reports.Stepped) -> None:
        if all_reports := self._collect(trainee, report, report.generation):
            pauses = [each.pause for each in all_reports if each.pause > 0]
            self._report(reports.Stepped(report.generation, max(pauses) if pauses else None))

    def _on_saved_alone(self, _trainee: Trainee, _report: process_reports.SavedAlone) -> None:
        if self._saved is not None and not self._saved.done():
            self._saved.set_result(None)

    def _on_lost(self, _trainee: Trainee, report: process_reports.Lost) -> None:
        self._report(reports.CutOff(report.generation))

    def _on_formed(self, trainee: Trainee, report: reports.Formed) -> None:
        if self._collect(trainee, report, *report.at):
            self._report(report)

    def _on_unformed(self, _trainee: Trainee, report: reports.Unformed) -> None:
        self._report(report)

    def _on_at_boundary(self, trainee: Trainee, report: reports.AtBoundary) -> None:
        if all_reports := self._collect(trainee, report, *report.at):
            self._report(reports.AtBoundary(max(each.boundary for each in all_reports), report.at))

    def _on_agreed(self, trainee: Trainee, report: reports.Agreed) -> None:
        if all_reports := self._collect(trainee, report, report.boundary, *report.at):
            self._report(reports.Agreed(all(each.is_agreed for each in all_reports), report.boundary, report.at))

    def _on_saved_together(self, trainee: Trainee, report: reports.SavedTogether) -> None:
        if all_reports := self._collect(trainee, report, *report.at):
            self._report(reports.SavedTogether(all(each.is_saved for each in all_reports), report.at))

    def _on_last_checkpoint(self, _trainee: Trainee, report: reports.LastCheckpointStep) -> None:
        self._report(reports.Checkpoint(), report)

    def _on_checkpoint_error(self, _trainee: Trainee, report: reports.CheckpointError) -> None:
        self._report(report)

    def _collect(self, trainee: Trainee, report: M, *about: int) -> list[M]:
        """The reports of all processes about the same thing, [] before all have reported."""
        key = type(report), *about
        answers = self._answers.setdefault(key, {})
        answers[trainee.local_rank] = report
        if len(answers) < self._size():
            return []
        del self._answers[key]
        return list(answers.values())

    def _report_readiness(self) -> None:
        """Report, when it has changed, whether all processes can join a group, and which one they are in."""
        trainees = list(self._trainees.values())
        complete = len(trainees) == self._size() and len({t.change_mode for t in trainees}) == 1
        ready = complete and all(t.waits or t.joined for t in trainees)
        joined = trainees[0].joined if ready and len({t.joined for t in trainees}) == 1 else 0
        if (ready, joined) != (self._ready, self._joined):
            self._ready, self._joined = ready, joined
            holds = any(trainee.joined for trainee in trainees)
            self._report(reports.Ready(ready, joined, holds, self.change_mode))

    # -- from the coordinator to the processes -------------------------------------------------------------------------

    def handle_order(self, line: Json) -> None:
        """Forward the orders that concern groups which change in place. Raises wire.UNREADABLE."""
        for kind, handle in self._orders.items():
            if kind.key in line:
                handle(kind.from_json(line))

    def _on_prepare(self, order: orders.Prepare) -> None:
        self._answers.clear()
        part = read_part(order.group, self._uid)
        for rank, trainee in self._trainees.items():
            trainee.send(process_orders.Prepare(_place(part, rank), order.at, order.broken))

    def _on_bind(self, order: orders.Bind) -> None:
        part = None if order.group is None else read_part(order.group, self._uid)
        for rank, trainee in self._trainees.items():
            place = None if part is None else _place(part, rank)
            trainee.send(process_orders.Bind(place, order.at, order.save))

    def set_coordinator(self, epoch: int | None) -> None:
        """Forward the coordinator's epoch; None while none is connected: no loss of a pod can be confirmed then."""
        self._send_to_all(process_orders.CoordinatorAway(epoch is None, epoch))

    async def leave(self, *, save: bool, seconds: float) -> None:
        """Ask the processes to end. With `save` the first one writes a checkpoint first, for at most `seconds`."""
        if not self._trainees or seconds <= 0:
            return
        first = min(self._trainees)
        if save:
            self._saved = asyncio.get_running_loop().create_future()
            self._trainees[first].send(process_orders.SaveAlone())
            await asyncio.wait({self._saved}, timeout=seconds)
        self._send_to_all(process_orders.Leave())
        for trainee in list(self._trainees.values()):
            with suppress(OSError):
                await trainee.writer.drain()

    def _send_to_all(self, message: Message) -> None:
        for trainee in self._trainees.values():
            trainee.send(message)


def _place(part: Part, local_rank: int) -> GroupPlace:
    """The place of one process in a group; its rank is -1 if this pod is not in the group."""
    place = GroupPlace(part.number, -1, part.world_size, part.host, part.store_port, part.epoch)
    if part.place < 0:
        return place
    return replace(place, rank=part.first_rank + local_rank, pods=part.pods, pod=part.place)
