"""The coordinator's server: members connect, report their state, and receive orders.

Each report, broken connection, new membership and deadline leads to the same question (`decide`), and the decision is
carried out (`execute`). Nothing is kept on disk: a restarted coordinator learns the state from the members.
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
from elastic_worker.coordinator.inbox import Inbox
from elastic_worker.coordinator.member import Gone, Member
from elastic_worker.coordinator.membership import POLL_SECONDS, MembershipFile
from elastic_worker.coordinator.model import Generation, Pod
from elastic_worker.coordinator.outbox import Outbox
from elastic_worker.coordinator.part import merge_reported
from elastic_worker.coordinator.state import CoordinatorState, Phase
from elastic_worker.coordinator.succession import LOOK_SECONDS, Succession
from elastic_worker.logs import brief
from elastic_worker.protocol import orders

log = logging.getLogger(__name__)

MOST_DIALLING = 4096
"""The backlog: all pods may connect at once. Linux lowers it to net.core.somaxconn."""
GATHER_SECONDS = 2e-5
"""Seconds for each member. A decision examines all members, so it is made once for all reports within this time
(113).
"""


class Coordinator:
    """The coordinator of one incarnation of a job."""

    def __init__(
        self,
        state: CoordinatorState,
        membership_file: MembershipFile,
        succession: Succession,
        *,
        token: str,
        job_uid: str,
        incarnation: int,
    ) -> None:
        self.state, self._membership_file, self._succession = state, membership_file, succession
        self._token, self._job_uid, self._incarnation = token, job_uid, incarnation
        self._outbox = Outbox()
        self._lines, self._send = self._outbox.lines, self._outbox.send
        self._executor = Executor(state, self._send)
        self._inbox = Inbox(state, self._executor, succession)
        self._wake = asyncio.Event()
        self._sentence = ""

    async def serve(self, port: int) -> None:
        """Serve until cancelled. Raises OSError if the port is taken."""
        server = await asyncio.start_server(self._welcome, port=port, limit=wire.LINE_BYTES, backlog=MOST_DIALLING)
        try:
            await self.run()
        finally:
            server.close()
            for line in self._lines.values():
                line.abort()

    async def run(self) -> None:
        """Watch, decide and send until cancelled."""
        watching = self._watch_membership(), self._watch_masters()
        await asyncio.gather(*watching, self._outbox.run(), self._beat(), self._decide_forever())

    # -- incoming -----------------------------------------------------------------------------------------------------

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = wire.Line(reader, writer)
        try:
            hello, proof = await wire.receive_hello(
                line, token=self._token, job_uid=self._job_uid, incarnation=self._incarnation
            )
            pod = Pod.from_message(hello["pod"], address=str(writer.get_extra_info("peername")[0]))
            group = merge_reported(self.state.group, hello.get("group"), pod)
            self._check_epoch(int(hello.get("epoch", 0)))
        except (wire.RefusedError, OSError, *wire.UNREADABLE) as error:
            log.info("refused %s: %s", writer.get_extra_info("peername"), error)
            if isinstance(error, wire.RefusedError):
                line.send({"refused": str(error)})
            await line.close()
            return
        line.send({"proof": proof, "epoch": self.state.epoch})
        await self.attend(line, pod, group, hello)

    def _check_epoch(self, obeyed_epoch: int) -> None:
        """Refuse a member that has obeyed a newer master: this one is superseded. Raises wire.RefusedError."""
        if obeyed_epoch > self.state.epoch:
            raise wire.RefusedError(f"there is a newer master than that of epoch {self.state.epoch}")

    async def attend(self, line: wire.Line, pod: Pod, group: Generation | None, hello: wire.Message) -> None:
        """Handle one member's reports until its connection ends. `group` is the latest one known, with its hello."""
        previous_line = self._lines.pop(pod.uid, None)
        if previous_line is not None:
            previous_line.abort()
        self._lines[pod.uid] = line
        self._inbox.enter(pod, group, hello, time.monotonic())
        self._wake.set()
        try:
            while True:
                message = await line.receive(seconds=self._patience(pod))
                if self._lines.get(pod.uid) is not line:
                    return
                self._receive(self.state.members[pod.uid], message)
        except ConnectionError as error:
            if self._lines.get(pod.uid) is line:
                del self._lines[pod.uid]
                has_ended = isinstance(error, wire.EndedError) or (
                    isinstance(error, wire.SilentError) and self._changes_in_place(pod)
                )
                self._lose(pod, str(error), may_return=not has_ended)
        finally:
            line.abort()

    def _patience(self, pod: Pod) -> float:
        return wire.IN_PLACE_SILENCE_SECONDS if self._changes_in_place(pod) else wire.SILENCE_SECONDS

    def _changes_in_place(self, pod: Pod) -> bool:
        return self.state.members[pod.uid].change_mode == IN_PLACE

    def _lose(self, pod: Pod, why: str, *, may_return: bool) -> None:
        """Mark a member as disconnected. It may return after a broken connection, not after a closed one."""
        member, now = self.state.members[pod.uid], time.monotonic()
        member.disconnect(now + RECONNECT_SECONDS if may_return else now)
        log.info("%s is gone: %s", pod.name, "it left" if isinstance(member.presence, Gone) else why)
        self._wake.set()

    def _receive(self, member: Member, message: wire.Message) -> None:
        self._inbox.receive(member, message, time.monotonic())
        if set(message) - {"beat", "idle", "step"}:
            self._wake.set()

    # -- outgoing -----------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Send a heartbeat and the status each second, independently of all other work."""
        due = time.monotonic()
        while True:
            self._outbox.beat()
            self._send_status()
            due = max(due + wire.BEAT_SECONDS, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    def _send_status(self) -> None:
        self._send([self.state.own_uid], orders.Status(self._executor.status(self._sentence)))

    async def _watch_membership(self) -> None:
        problem = ""
        while True:
            membership = self._membership_file.look()
            if self._membership_file.problem != problem:
                problem = self._membership_file.problem
                log.warning("%s", problem or "the membership annotation can be read again")
            if membership is not self.state.membership:
                self.state.membership = membership
                self._wake.set()
            await asyncio.sleep(POLL_SECONDS)

    async def _watch_masters(self) -> None:
        """Look for later masters, in a thread: storage may hang while the network is cut."""
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
            self._send_status()
            with contextlib.suppress(asyncio.TimeoutError):
                seconds = None if until is None else max(0.001, until - time.monotonic())
                await asyncio.wait_for(self._wake.wait(), seconds)
                await asyncio.sleep(len(self._lines) * GATHER_SECONDS)

    def _decide(self) -> float | None:
        """Decide and carry out until there is nothing to do now; return when to decide again, None: after news."""
        while True:
            now = time.monotonic()
            decision = decide(self.state, now)
            if decision.sentence != self._sentence or decision.act != "stay":
                self._sentence = decision.sentence
                level = logging.DEBUG if self.state.phase == Phase.STOPPING else logging.INFO
                log.log(level, "%s: %s", decision.act, brief(decision.sentence))
            if decision.act == "stay":
                self._executor.release_leaving()
                return decision.until
            self._executor.do(decision, now)
            if decision.act in ("done", "fail"):
                asyncio.ensure_future(asyncio.to_thread(self._succession.forget))  # noqa: RUF006 (ends with the loop)
