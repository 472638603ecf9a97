"""The launcher's line to the training processes of this pod that use the library: as one towards the coordinator.

What the coordinator says goes to each of them, with its own rank; what they answer goes back when all have.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from elastic_worker.contract import IN_PLACE
from elastic_worker.coordinator.part import Part, taken
from elastic_worker.protocol import reports

log = logging.getLogger(__name__)

Message = dict[str, Any]
ANSWERS = {kind.key: kind for kind in reports.ANSWERS}
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
    progress: Message = field(default_factory=dict)
    where: Message = field(default_factory=dict)

    def send(self, message: Message) -> None:
        """Put a message on its way."""
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")


class Trainees:
    """Of one pod. `tell` reaches the coordinator, `size` is how many processes the pod has."""

    def __init__(self, uid: str, path: Path, *, tell: Callable[..., None], size: Callable[[], int]) -> None:
        self._uid, self.path, self._tell, self._size = uid, path, tell, size
        self._trainees: dict[int, Trainee] = {}
        self._answers: dict[str, dict[int, Any]] = {}
        self._ready, self._joined = False, 0
        self._saved: asyncio.Future[None] | None = None

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

    def progress(self) -> Message:
        """What its first process last said of the training; {} if nothing was said."""
        return self._trainees[min(self._trainees)].progress if self._trainees else {}

    def ask_where(self, at_least: float) -> Message | None:
        """The process that is least far of those whose step takes far too long, if all do; asks anew for the next time.

        Its `tick`, `seconds` in that step, and local `rank`.
        """
        said = [{**trainee.where, "rank": trainee.local_rank} for trainee in self._trainees.values()]
        self._each(lambda _rank: {"where": 1})
        is_stuck = [each.get("seconds", 0.0) > max(at_least, STALL_STEPS * each.get("median", 0.0)) for each in said]
        return min(said, key=lambda each: each["tick"]) if said and all(is_stuck) else None

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
                self.take(trainee, json.loads(line))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.debug("a training process is heard no more: %s", error)
        finally:
            writer.close()

    def enter(self, hello: Message, writer: Writer) -> Trainee:
        """A process has dialled in. Raises KeyError, TypeError, ValueError for what is no hello."""
        trainee = Trainee(int(hello["localRank"]), str(hello["kind"]), writer)
        self._trainees[trainee.local_rank] = trainee
        if folder := str(hello.get("checkpoints", "")):
            self._tell(reports.CheckpointFolder(folder))
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

    def take(self, trainee: Trainee, message: Message) -> None:
        """What a process says."""
        if "progress" in message:
            trainee.progress = message["progress"]
        if "where" in message:
            trainee.where = message["where"]
        if "waits" in message:
            trainee.waits, trainee.joined = bool(message["waits"]), 0
            self._look()
        if "joined" in message:
            trainee.joined, trainee.waits = int(message["joined"]), False
            self._look()
        if "saved" in message and self._saved is not None and not self._saved.done():
            self._saved.set_result(None)
        if "savedTogether" in message:
            self._collect("savedTogether", trainee, message)
        if "lastCheckpointStep" in message:
            self._tell(reports.Checkpoint(), reports.LastCheckpointStep.from_json(message))
        if "checkpointError" in message:
            self._tell(reports.CheckpointError.from_json(message))
        for name in ("formed", "passed", "agreed", "stepped"):
            if name in message:
                self._collect(name, trainee, message)
        if "lost" in message:
            self._tell(reports.CutOff(int(message["lost"])))
        if "unformed" in message:
            self._tell(reports.Unformed.from_json(message))

    def _collect(self, name: str, trainee: Trainee, message: Message) -> None:
        """An answer counts when all have given it."""
        key = f"{name} {message.get('at')} {message.get('tick')} {message.get('generation')}"
        answers = self._answers.setdefault(key, {})
        answers[trainee.local_rank] = message[name]
        if len(answers) < self._size():
            return
        del self._answers[key]
        together = max(answers.values()) if name in ("formed", "passed", "stepped") else all(answers.values())
        if name == "stepped":
            pauses = [pause for pause in answers.values() if pause > 0]
            self._tell(reports.Stepped(int(message["generation"]), max(pauses) if pauses else None))
        else:
            self._tell(ANSWERS[name].from_json({**message, name: together}))

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

    def hear(self, message: Message) -> None:
        """Hand on what concerns groups that change in place."""
        if "prepare" in message:
            self._answers.clear()
            told = message["prepare"]
            part = taken(told["group"], self._uid)
            self._each(lambda rank: {"prepare": {**told, "group": None, **_place(part, rank)}})
        for name in ("ask", "propose", "cancel", "broken"):
            if name in message:
                self._each(lambda _rank: message)
        if "bind" in message:
            if message["bind"] is None:
                self._each(lambda _rank: message)
            else:
                part = taken(message["bind"], self._uid)
                self._each(lambda rank: {"bind": _place(part, rank), "at": message.get("at")})

    def coordinator_is(self, epoch: int | None) -> None:
        """The epoch of the coordinator; None while there is none, as then nobody can say which pods are lost."""
        self._each(lambda _rank: {"away": True} if epoch is None else {"away": False, "epoch": epoch})

    async def leave(self, *, save: bool, seconds: float) -> None:
        """Have the processes end by themselves; with `save`, the first one writes a checkpoint before."""
        if not self._trainees or seconds <= 0:
            return
        first = min(self._trainees)
        if save:
            self._saved = asyncio.get_running_loop().create_future()
            self._trainees[first].send({"save": 1})
            await asyncio.wait({self._saved}, timeout=seconds)
        self._each(lambda _rank: {"leave": 1})
        for trainee in list(self._trainees.values()):
            with suppress(OSError):
                await trainee.writer.drain()

    def _each(self, message: Callable[[int], Message]) -> None:
        for rank, trainee in self._trainees.items():
            trainee.send(message(rank))


def _place(part: Part, local_rank: int) -> Message:
    """What one process needs to know of a group; rank -1 if it is not in it."""
    place = {
        "generation": part.number,
        "epoch": part.epoch,
        "world": part.world_size,
        "host": part.host,
        "port": part.store_port,
        "rank": -1,
    }
    if part.place < 0:
        return place
    return {**place, "rank": part.first_rank + local_rank, "pods": part.pods, "pod": part.place}
