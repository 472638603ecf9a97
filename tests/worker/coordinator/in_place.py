"""A job in memory whose processes use the library: the deciding code of coordinator, launcher and process.

`Trainees` (the launcher's), `LineState` (the process') and the coordinator are real. This module has the lines between
them, which keep messages until a history delivers them, and the main thread of each process. It does a step when all
processes of its group have passed the boundary before it, so no process can be more than one step ahead.
"""

import contextlib
import json
from collections import deque
from pathlib import Path

from elastic_worker import wire
from elastic_worker.contract import IN_PLACE
from elastic_worker.coordinator.inbox import Inbox
from elastic_worker.coordinator.part import merge_reported, read_part
from elastic_worker.coordinator.state import CoordinatorState, Phase, Rules
from elastic_worker.launcher.trainees import Trainees
from elastic_worker.library.line_state import LineState, Turn
from elastic_worker.protocol import process_orders, process_reports, reports
from elastic_worker.protocol.codec import to_line
from tests.worker.coordinator.cluster import Cluster
from tests.worker.coordinator.states import make_pod

STORE = 4000


class TrainingPod:
    """A launcher: the messages on their way to it, and the state of its single process, if that runs.

    A restarted coordinator gets the lasting state (`lasting`), and the pod's part of the last group (`group`).
    """

    def __init__(self, uid, tell):
        self.words, self.lasting, self.group = deque(), {}, None
        self.trainees = Trainees(uid, Path("no socket"), report=tell, size=lambda: 1)
        self.process, self.runs, self.leaves = None, 0, False

    def start(self):
        """Start a process in no group."""
        self.process = TrainingProcess(self.trainees)
        return self.process.state

    def end(self):
        """End the process."""
        self.process = None
        self.trainees.clear()


class TrainingProcess:
    """The line of a process, without delays, and the place of its main thread: in a step, or at a boundary."""

    def __init__(self, trainees):
        self.trainees, self.waits, self.is_out = trainees, True, False
        self.forming = deque()
        """Groups whose connections are being made, each on a separate thread."""
        self.trainee = trainees.add(process_reports.Hello(0, IN_PLACE).to_json(), self)
        self.state = LineState(self)

    def write(self, line):
        self.state.handle_order(json.loads(line))

    def is_closing(self):
        return False

    def send(self, message):
        self.trainees.handle_report(self.trainee, json.loads(json.dumps(message.to_json())))

    def report_position(self):
        """Do nothing: no test asks for positions."""

    def form(self, _place, key, name):
        self.forming.append((key, name))

    def discard(self, formed):
        """Do nothing, since groups are only names here."""

    def abort(self, formed):
        """Do nothing: a process in a step checks by itself whether the step can end."""

    def watch(self):
        """Do nothing, since nothing hangs here."""


class LibraryJob(Cluster):
    """A job whose failed processes are always restarted.

    A coordinator that `gathers` decides once on all messages of one turn of `round`, `steps` or `settle`, as it does
    with many members (113). Otherwise it decides after each message.
    """

    def __init__(self, *, fewest=2, gathers=False):
        super().__init__(fewest=fewest, rules=Rules(max_failures=10_000))
        self.inbox = Inbox(self.state, self.executor, None)
        self.gathers, self.in_turn = gathers, False
        self.pods: dict[str, TrainingPod] = {}
        self.silent: dict[str, TrainingPod] = {}
        """Frozen pods: their connections stay, and they send nothing."""
        self._slowest, self._torn = {}, {}
        """The least step of each group's pods in this turn, and whether one of them has ended."""
        self.groups = {}
        """The formed groups, by number."""
        self.moments: dict[tuple[int, int], int] = {}
        """The step at which one group was followed by another."""
        self.names: dict[int, str] = {}
        """The names that the processes of each group have formed for it."""
        self.formed_by: dict[tuple[str, str], TrainingProcess] = {}
        """The process of a pod that has formed the group of a name."""
        self.left: dict[tuple[str, int], int] = {}
        """The last step of a pod in a group that it left as agreed."""
        self.highest_that_stepped, self.steps_done, self.saved = 0, 0, 0

    # -- events -------------------------------------------------------------------------------------------------------

    def arrive(self, index):
        uid = f"u{index}"
        if is_new := uid not in self.state.members:
            self.pods[uid] = TrainingPod(uid, lambda *said: self._say(uid, *said))
        super().arrive(index)
        if is_new and not self.over:
            self.state.members[uid].understands_parts = True
        self.warm(index)

    def lose(self, index):
        self.pods.pop(f"u{index}", None)
        super().lose(index)

    def freeze(self, index):
        """The pod is silent, and the coordinator counts it as disconnected."""
        if (member := self._here(index)) is not None and f"u{index}" in self.pods:
            self.silent[f"u{index}"] = self.pods.pop(f"u{index}")
            member.disconnect(self.now)
        self.look()

    def replace_master(self, index):
        """The master's pod is lost with the messages on their way; the next coordinator learns from the others."""
        self.pods.pop(self.state.own_uid, None)
        self.state = CoordinatorState(
            f"u{index}", self.state.epoch + 1, self.state.rules, self.now, phase_since=self.now
        )
        self.executor = self._executor()
        self.inbox = Inbox(self.state, self.executor, None)
        for uid, pod in self.pods.items():
            pod.words.clear()
            introduced = make_pod(int(uid[1:]))
            group = merge_reported(self.state.group, pod.group, introduced)
            said = {**to_line(*pod.lasting.values()), "warm": True, wire.PARTS: True}
            self.inbox.enter(introduced, group, said, self.now)
            pod.trainees.set_coordinator(self.state.epoch)
        self.arrive(index)

    def crash(self, index):
        """Its process dies. Its launcher restarts one that was in no group, without a report."""
        member, pod = self._here(index), self.pods.get(f"u{index}")
        if member is None or pod.process is None:
            return
        pod.end()
        if pod.runs:
            self._say(f"u{index}", reports.Failed(pod.runs, message="boom"))
        else:
            pod.start().park()
        self.look()

    def deliver(self, index):
        """Deliver one message to the pod."""
        pod = self.pods.get(f"u{index}")
        if pod is not None and pod.words:
            self._hear(f"u{index}", pod, pod.words.popleft())
        self.look()

    def train(self, index):
        """Let the main thread continue, if it can."""
        pod = self.pods.get(f"u{index}")
        if pod is None or pod.process is None:
            return
        process, state = pod.process, pod.process.state
        if process.waits:
            self._take_turn(f"u{index}", process)
        elif self._is_step_done(process):
            state.boundaries_passed += 1
            if state.must_ask:
                process.waits = True
            else:
                self._stepped(process)
        elif state.is_broken:
            process.waits = True
        elif self._has_lost_a_peer(process):
            state.report_cut_off()
        self.look()

    def look(self):
        if not self.in_turn:
            super().look()

    @contextlib.contextmanager
    def turn(self):
        """Within this context the coordinator gets all messages together, if it `gathers`."""
        self.in_turn = self.gathers
        self._slowest, self._torn = {}, {}
        yield
        self.in_turn = False
        self.look()

    def round(self):
        """Deliver one message to each pod, and connect the groups that it forms."""
        with self.turn():
            for uid in list(self.pods):
                self.deliver(int(uid[1:]))
                self.connect(int(uid[1:]))

    def steps(self, count):
        """Do that many steps on all pods that can, without delivering messages."""
        for _ in range(count):
            with self.turn():
                for uid in list(self.pods):
                    self.train(int(uid[1:]))

    def connect(self, index):
        """Connect the latest group that forms: each connects on its own thread."""
        pod = self.pods.get(f"u{index}")
        if pod is not None and pod.process is not None and pod.process.forming:
            key, name = pod.process.forming.pop()
            self.formed_by[f"u{index}", name] = pod.process
            pod.process.state.take_formed(key, name)
        self.look()

    def settle(self, turns=25):
        """Deliver and train until nothing changes any more."""
        for _ in range(turns):
            with self.turn():
                for uid in list(self.pods):
                    index = int(uid[1:])
                    while (pod := self.pods.get(uid)) and pod.words:
                        self.deliver(index)
                    while (pod := self.pods.get(uid)) and pod.process and pod.process.forming:
                        self.connect(index)
                    self.train(index)

    # -- a launcher ---------------------------------------------------------------------------------------------------

    def _hear(self, uid, pod, word):
        member = self.state.members[uid]
        if "form" in word:
            pod.end()
            state, number = pod.start(), read_part(word["form"], uid).number
            pod.runs, pod.group = number, word["form"]
            self._say(uid, reports.Started(number), reports.Runs(number), reports.Finished(0))
            state.enter(number, f"started-{number}")
            self.formed_by[uid, f"started-{number}"] = pod.process
            pod.process.send(process_reports.Joined(number))
            pod.process.waits = False
        if "stop" in word:
            pod.end()
            pod.runs = 0
            self._say(uid, reports.Stopped(word["stop"]), reports.Runs(0))
        if word.get("bind"):
            part = read_part(word["bind"], uid)
            pod.runs, pod.group = (part.number, word["bind"]) if part.place >= 0 else (0, pod.group)
            self._say(uid, reports.Runs(pod.runs))
        if "candidates" in word and pod.process is None:
            pod.start().park()
        if (
            "host" in word
            or (word.get("bind") and read_part(word["bind"], uid).place == 0)
            or uid == self.state.own_uid
        ):
            member.store_port = member.store_port or STORE
        if "leave" in word:
            self._leave(uid, pod, save=word["save"])
        pod.trainees.handle_order(word)

    def _leave(self, uid, pod, *, save):
        if pod.process is None:
            self._go(uid)
            return
        state = pod.process.state
        if save:
            state.handle_order(process_orders.SaveAlone().to_json())
        state.handle_order(process_orders.Leave().to_json())

    def _go(self, uid):
        self.state.members[uid].mark_gone()
        del self.pods[uid]

    # -- a process ----------------------------------------------------------------------------------------------------

    def _is_step_done(self, process):
        """Whether all processes of its group do the present step, or have done it."""
        generation, step = process.state.generation, process.state.boundaries_passed
        if not self.in_turn or generation not in self._slowest:
            steps = (self._step_of(pod.uid, generation) for pod in self.groups[generation].pods)
            self._slowest[generation] = min(steps)
        return self._slowest[generation] >= step

    def _has_lost_a_peer(self, process):
        """Whether a process of the formed group has ended, so that its connection has ended."""
        generation, name = process.state.generation, process.state.current
        if not self.in_turn or (generation, name) not in self._torn:
            peers = self.groups[generation].pods
            self._torn[generation, name] = any(self._is_cut_off(pod.uid, generation, name) for pod in peers)
        return self._torn[generation, name]

    def _is_cut_off(self, uid, generation, name):
        there = self.pods.get(uid) or self.silent.get(uid)
        peer = self.formed_by.get((uid, name))
        return peer is not (there and there.process) and (uid, generation) not in self.left

    def _step_of(self, uid, generation):
        """The present or last step of the pod in that group; -1: none that the others can complete with it."""
        pod = self.pods.get(uid)
        process = pod.process if pod is not None else None
        if process is not None and process.state.generation == generation and not process.state.is_broken:
            return process.state.boundaries_passed - process.waits
        return self.left.get((uid, generation), -1)

    def _take_turn(self, uid, process):
        state = process.state
        before, at = state.generation, state.boundaries_passed
        is_whole = not state.is_broken and not process.is_out  # a process outside has no step: it gets the state
        turn = state.ask()
        if turn is None:
            process.waits = False
            self._stepped(process)
            return
        if turn == Turn():
            return
        self.saved += turn.save
        place = turn.verdict.place if turn.verdict is not None else None
        if is_whole and before and (turn.leave or place is not None):
            self.left[uid, before] = at - 1
        if turn.leave:
            self._go(uid)
        elif turn.is_out:
            process.is_out = True
            process.send(process_reports.Waits())
        elif place is not None and turn.verdict.formed is None:
            state.lose()
        elif place is not None:
            if is_whole and before:
                moment = self.moments.setdefault((before, place.generation), at)
                assert moment == at, f"{uid} goes over at {at}, others at {moment}"
            meets_in = self.names.setdefault(place.generation, turn.verdict.formed)
            assert meets_in == turn.verdict.formed, f"{uid} is in {turn.verdict.formed}, others in {meets_in}"
            assert state.boundaries_passed == 0, "it counts the boundaries of the group before"
            process.waits = process.is_out = False
            process.send(process_reports.Joined(place.generation))

    def _stepped(self, process):
        generation = process.state.generation
        assert generation >= self.highest_that_stepped, "an older group trains beside a newer one"
        self.highest_that_stepped = generation
        self.steps_done += 1

    # -- messages -----------------------------------------------------------------------------------------------------

    def _post(self, uid, word):
        if self.state.group is not None and ("form" in word or word.get("bind")):
            self.groups[self.state.group.number] = self.state.group
        pod = self.pods.get(uid)
        if pod is not None and not ("leave" in word and pod.leaves):
            pod.leaves = pod.leaves or "leave" in word
            pod.words.append(json.loads(json.dumps(word)))
        if "done" in word or "fail" in word:
            self.over = "done" if "done" in word else "failed"

    def _say(self, uid, *said):
        pod = self.pods[uid]
        pod.lasting.update({type(message): message for message in said if type(message) in reports.STATE})
        for message in said if uid in self.state.members else ():
            self.inbox._handlers[type(message)](self.state.members[uid], message, self.now)

    @property
    def trains(self):
        """The pods that do steps together now; the empty set if there are none."""
        group = self.state.group
        if self.state.phase != Phase.RUNNING or group is None:
            return set()
        pods = [self.pods.get(uid) for uid in group.uids]
        processes = [pod.process for pod in pods if pod is not None and pod.process is not None]
        together = [
            p for p in processes if p.state.generation == group.number and not p.waits and not p.state.is_broken
        ]
        return set(group.uids) if len(together) == len(pods) else set()
