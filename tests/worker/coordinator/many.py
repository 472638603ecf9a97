"""A coordinator with any number of members, in virtual time: the members are lines that answer like launchers.

Messages in both directions are counted. A line may be slow (`seconds_a_byte`): while one message is written, no other
can be, as on a machine whose processor encodes and copies it.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter

from elastic_worker import wire
from elastic_worker.coordinator.membership import MembershipFile
from elastic_worker.coordinator.part import merge_reported
from elastic_worker.coordinator.server import Coordinator
from elastic_worker.coordinator.state import CoordinatorState, Rules
from elastic_worker.coordinator.succession import Succession
from tests.worker.coordinator.states import make_pod

APART_SECONDS = 2e-5
"""The time between two answers."""


class Played:
    """One member: a line whose other end answers in turn, and sends a heartbeat every second.

    Its processes use the library if it is `in_place`. `longest_silence`: of the coordinator, in seconds.
    """

    def __init__(self, index, job):
        self.pod, self.job, self.delay = make_pod(index), job, index * APART_SECONDS
        self.words, self.heard_at, self.longest_silence = asyncio.Queue(), time.monotonic(), 0.0
        self.part = None

    def send(self, message):
        self.send_line(wire.encode(message))

    def send_line(self, line):
        self.job.write(line)
        self.longest_silence = max(self.longest_silence, time.monotonic() - self.heard_at)
        self.heard_at = time.monotonic()
        self._hear(json.loads(line))

    async def receive(self, *, seconds):
        assert seconds > wire.BEAT_SECONDS
        try:
            return await asyncio.wait_for(self.words.get(), wire.BEAT_SECONDS)
        except TimeoutError:
            return {"beat": 1}

    def abort(self):
        pass

    def say(self, **message):
        self.job.counted["bytes said"] += len(wire.encode(message))
        self.job.counted["messages said"] += 1
        asyncio.get_running_loop().call_later(self.delay, self.words.put_nowait, message)

    def _hear(self, message):
        for word in ("form", "prepare", "ask", "propose", "bind", "stop"):
            if word in message:
                self.job.counted[word] += 1
                getattr(self, f"_{word}")(message)

    def _form(self, message):
        self.part = message["form"]
        number = self.part.get("part", self.part)["number"]
        self.say(started=number, runs=number, finished=0, step=0, idle=0.0, **self._store())
        if self.job.in_place:
            self.say(ready=True, joined=number, holds=True, kind="in-place")

    def _prepare(self, message):
        self.say(formed=True, at=message["prepare"]["at"])

    def _ask(self, message):
        self.say(passed=7, at=message["ask"])

    def _propose(self, message):
        self.say(agreed=True, tick=message["propose"], at=message["at"])

    def _bind(self, message):
        self.part = message["bind"]
        number = self.part.get("part", self.part)["number"]
        self.say(runs=number, finished=0, **self._store())
        self.say(ready=True, joined=number, holds=True, kind="in-place")

    def _stop(self, message):
        self.say(stopped=message["stop"], runs=0, step=0, **self._store())

    def _store(self):
        return {"store": 4000} if self.pod.is_master else {}


class Job:
    """A job of `members`, by index; `older` ones are of a release without parts."""

    def __init__(self, folder, *, in_place=False, older=False, seconds_a_byte=0.0):
        now = time.monotonic()
        self.state, self.file = CoordinatorState("u0", 1, Rules(), started=now, phase_since=now), folder / "membership"
        masters = Succession("", job_uid="job", epoch=1)
        self.coordinator = Coordinator(
            self.state, MembershipFile(self.file), masters, token="secret", job_uid="job", incarnation=3
        )
        self.in_place, self.older, self.seconds_a_byte = in_place, older, seconds_a_byte
        self.members, self.counted, self.memberships, self._tasks = {}, Counter(), 0, []

    def write(self, line):
        """Send a message."""
        self.counted["bytes told"] += len(line)
        self.counted["messages told"] += 1
        asyncio.get_running_loop().keep_busy(len(line) * self.seconds_a_byte)

    def dial(self, *indices, **state):
        """Connect these members, warm."""
        for index in indices:
            self.members[index] = member = Played(index, self)
            kind = {"ready": True, "joined": 0, "kind": "in-place"} if self.in_place and self.state.group else {}
            hello = {"warm": True, "runs": 0, "parts": not self.older, **kind, **member._store(), **state}
            group = merge_reported(self.state.group, hello.get("group"), member.pod)
            attending = self.coordinator.attend(member, member.pod, group, hello)
            self._tasks.append(asyncio.ensure_future(attending))

    def write_membership(self, *indices):
        """Write the operator's membership."""
        self.memberships += 1
        members = [{"uid": f"u{index}"} for index in indices]
        told = {"wish": self.memberships, "members": members, "min": 1, "max": 4096}
        self.file.write_text(json.dumps(told))

    async def until(self, what, *, seconds=60):
        """Wait until the condition holds."""
        for _ in range(10 * seconds):
            if what(self.state):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"not so after {seconds} s: {self.state.phase}, {len(self.state.members)} members")

    async def end(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


@contextlib.asynccontextmanager
async def playing(folder, **about):
    """A job with a serving coordinator."""
    job = Job(folder, **about)
    job._tasks.append(asyncio.ensure_future(job.coordinator.run()))
    try:
        yield job
    finally:
        await job.end()


@contextlib.contextmanager
def calls_counted(into):
    """Count the calls of Python functions within this context."""

    def count(_frame, event, _argument):
        if event == "call":
            into["calls"] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)
