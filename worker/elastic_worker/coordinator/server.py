"""The coordinator at work: members dial in, say what they are, and are told what to do.

Every message, broken connection, wish and passing of time leads to the same question (`decide`), and the answer is
carried out here. Nothing is kept on disk: a coordinator that starts anew learns from the members.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from elastic_worker import wire
from elastic_worker.contract import IN_PLACE
from elastic_worker.coordinator.choose import RECONNECT_SECONDS
from elastic_worker.coordinator.decide import decide
from elastic_worker.coordinator.execute import Executor
from elastic_worker.coordinator.hearing import Hearing
from elastic_worker.coordinator.member import Gone, Member
from elastic_worker.coordinator.model import Generation, Pod
from elastic_worker.coordinator.part import remembered
from elastic_worker.coordinator.state import CoordinatorState, Phase
from elastic_worker.coordinator.succession import LOOK_SECONDS, Succession
from elastic_worker.coordinator.telling import Telling
from elastic_worker.coordinator.wish import POLL_SECONDS, WishFile
from elastic_worker.logs import brief
from elastic_worker.protocol import orders

log = logging.getLogger(__name__)

MOST_DIALLING = 4096
"""All pods may dial in at one moment; Linux lowers it to net.core.somaxconn."""
GATHER_SECONDS = 2e-5
"""For each member: a decision looks at all of them, so what they say within this time is answered together (113)."""


class Coordinator:
    """Serves the members of one incarnation."""

    def __init__(
        self,
        state: CoordinatorState,
        wishes: WishFile,
        succession: Succession,
        *,
        token: str,
        job_uid: str,
        incarnation: int,
    ) -> None:
        self.state, self._wishes, self._succession = state, wishes, succession
        self._token, self._job_uid, self._incarnation = token, job_uid, incarnation
        self._telling = Telling()
        self._lines, self._tell = self._telling.lines, self._telling.tell
        self._executor = Executor(state, self._tell)
        self._hearing = Hearing(state, self._executor, succession)
        self._wake = asyncio.Event()
        self._said = ""

    async def serve(self, port: int) -> None:
        """Until cancelled. Raises OSError where the port is taken."""
        server = await asyncio.start_server(self._welcome, port=port, limit=wire.LINE_BYTES, backlog=MOST_DIALLING)
        try:
            await self.run()
        finally:
            server.close()
            for line in self._lines.values():
                line.abort()

    async def run(self) -> None:
        """Decide and tell, until cancelled."""
        watching = self._watch_wishes(), self._watch_masters()
        await asyncio.gather(*watching, self._telling.run(), self._beat(), self._decide_forever())

    # -- what comes in ------------------------------------------------------------------------------------------------

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = wire.Line(reader, writer)
        try:
            hello, proof = await wire.receive_hello(
                line, token=self._token, job_uid=self._job_uid, incarnation=self._incarnation
            )
            pod = Pod.from_message(hello["pod"], address=str(writer.get_extra_info("peername")[0]))
            group = remembered(self.state.group, hello.get("group"), pod)
            self._check_epoch(int(hello.get("epoch", 0)))
        except (wire.RefusedError, OSError, *wire.UNREADABLE) as error:
            log.info("refused %s: %s", writer.get_extra_info("peername"), error)
            if isinstance(error, wire.RefusedError):
                line.send({"refused": str(error)})
            await line.close()
            return
        line.send({"proof": proof, "epoch": self.state.epoch})
        await self.attend(line, pod, group, hello)

    def _check_epoch(self, seen: int) -> None:
        """A member that has obeyed a newer master shows that this one is the past."""
        if seen > self.state.epoch:
            raise wire.RefusedError(f"there is a newer master than that of epoch {self.state.epoch}")

    async def attend(self, line: wire.Line, pod: Pod, group: Generation | None, hello: wire.Message) -> None:
        """Listen to one member until its connection ends; with it `group` is the latest one that is known."""
        before = self._lines.pop(pod.uid, None)
        if before is not None:
            before.abort()
        self._lines[pod.uid] = line
        self._hearing.enter(pod, group, hello, time.monotonic())
        self._wake.set()
        try:
            while True:
                message = await line.receive(seconds=self._patience(pod))
                if self._lines.get(pod.uid) is not line:
                    return
                self._hear(self.state.members[pod.uid], message)
        except ConnectionError as error:
            if self._lines.get(pod.uid) is line:
                del self._lines[pod.uid]
                is_over = isinstance(error, wire.EndedError) or (
                    isinstance(error, wire.SilentError) and self._changes_in_place(pod)
                )
                self._lose(pod, str(error), may_return=not is_over)
        finally:
            line.abort()

    def _patience(self, pod: Pod) -> float:
        return wire.IN_PLACE_SILENCE_SECONDS if self._changes_in_place(pod) else wire.SILENCE_SECONDS

    def _changes_in_place(self, pod: Pod) -> bool:
        return self.state.members[pod.uid].kind == IN_PLACE

    def _lose(self, pod: Pod, why: str, *, may_return: bool) -> None:
        """A process that closes its connection has ended; a connection that breaks may be made again."""
        member, now = self.state.members[pod.uid], time.monotonic()
        member.lose(now + RECONNECT_SECONDS if may_return else now)
        log.info("%s is gone: %s", pod.name, "it left" if isinstance(member.where, Gone) else why)
        self._wake.set()

    def _hear(self, member: Member, message: wire.Message) -> None:
        self._hearing.hear(member, message, time.monotonic())
        if set(message) - {"beat", "idle", "step"}:
            self._wake.set()

    # -- what goes out ------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Every second, however long other things take."""
        due = time.monotonic()
        while True:
            self._telling.beat()
            self._tell_status()
            due = max(due + wire.BEAT_SECONDS, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    def _tell_status(self) -> None:
        self._tell([self.state.me], orders.Status(self._executor.status(self._said)))

    async def _watch_wishes(self) -> None:
        problem = ""
        while True:
            wish = self._wishes.look()
            if self._wishes.problem != problem:
                problem = self._wishes.problem
                log.warning("%s", problem or "the membership annotation can be read again")
            if wish is not self.state.wish:
                self.state.wish = wish
                self._wake.set()
            await asyncio.sleep(POLL_SECONDS)

    async def _watch_masters(self) -> None:
        """In a thread: storage may hang where the network is cut."""
        while self.state.phase not in (Phase.DONE, Phase.FAILED):
            newest = await asyncio.to_thread(self._succession.look)
            if newest > self.state.newest_epoch:
                self.state.newest_epoch = newest
                self._wake.set()
            await asyncio.sleep(LOOK_SECONDS)

    async def _decide_forever(self) -> None:
        while True:
            self._wake.clear()
            until = self._decide()
            self._tell_status()
            with contextlib.suppress(asyncio.TimeoutError):
                seconds = None if until is None else max(0.001, until - time.monotonic())
                await asyncio.wait_for(self._wake.wait(), seconds)
                await asyncio.sleep(len(self._lines) * GATHER_SECONDS)

    def _decide(self) -> float | None:
        """Decide and do until there is nothing more to do now; when to look again."""
        while True:
            now = time.monotonic()
            decision = decide(self.state, now)
            if decision.sentence != self._said or decision.act != "stay":
                self._said = decision.sentence
                level = logging.DEBUG if self.state.phase == Phase.STOPPING else logging.INFO
                log.log(level, "%s: %s", decision.act, brief(decision.sentence))
            if decision.act == "stay":
                self._executor.release()
                return decision.until
            self._executor.do(decision, now)
            if decision.act in ("done", "fail"):
                asyncio.ensure_future(asyncio.to_thread(self._succession.forget))  # noqa: RUF006 (ends with the loop)
