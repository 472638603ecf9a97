"""A job in memory whose processes use the library: the coordinator's own code, and pods that do what a launcher and its
processes do. Words travel, so each pod is a queue that is emptied when a history says so.

A group does a step when all of its pods have passed the boundary before it; no pod can be more than one ahead.
"""

from collections import deque

from elastic_worker.coordinator.model import Generation, Phase, Rules
from elastic_worker.coordinator.part import part_of
from tests.worker.coordinator.boards import failure
from tests.worker.coordinator.cluster import Cluster


class TrainingPod:
    """What the link of its processes keeps."""

    def __init__(self):
        self.words = deque()
        self.processes = self.waits = False
        self.group, self.passed, self.step = None, 0, -1
        self.key = self.formed = self.wanted = self.verdict = None
        self.broken = self.parked = self.leaves = False

    @property
    def generation(self):
        return self.group.number if self.group else 0

    @property
    def stands(self):
        """Whether it does not go on by itself."""
        return self.broken or self.parked or self.waits or self.wanted == self.passed


class LibraryJob(Cluster):
    """Processes that fail are started again for ever."""

    def __init__(self, *, fewest=2):
        super().__init__(fewest=fewest, rules=Rules(max_failures=10_000))
        self.pods: dict[str, TrainingPod] = {}
        self.moments: dict[tuple[int, int], int] = {}
        """From which group to which: after how many steps."""
        self.highest_that_stepped, self.steps_done = 0, 0

    # -- what happens -------------------------------------------------------------------------------------------------

    def arrive(self, index):
        if is_new := f"u{index}" not in self.board.members:
            self.pods[f"u{index}"] = TrainingPod()
        super().arrive(index)
        if is_new and not self.over:
            self.board.members[f"u{index}"].takes_parts = True
        self.warm(index)

    def lose(self, index):
        self.pods.pop(f"u{index}", None)
        super().lose(index)

    def crash(self, index):
        """Its process dies."""
        member = self._here(index)
        pod = self.pods.get(f"u{index}")
        if member is None or not pod.processes:
            return
        generation, words = pod.generation, pod.words
        self.pods[f"u{index}"] = pod = TrainingPod()
        pod.words = words
        if generation:
            member.failure = failure(index, generation=generation)
        self._tell(f"u{index}", {"ready": False, "joined": 0, "holds": False})
        self.look()

    def deliver(self, index):
        """One word reaches the pod."""
        pod = self.pods.get(f"u{index}")
        if pod is not None and pod.words:
            self._hear(f"u{index}", pod, pod.words.popleft())
        self.look()

    def train(self, index):
        """The pod goes on to the next boundary, if it can."""
        pod = self.pods.get(f"u{index}")
        if pod is None or not pod.processes:
            return
        if pod.verdict is not None and pod.stands:
            self._go_over(f"u{index}", pod)
        elif pod.group is not None and not pod.stands:
            peers = [self.pods.get(each.uid) for each in pod.group.pods]
            there = [p for p in peers if p is not None and p.generation == pod.generation and not p.broken]
            if len(there) < len(peers) or any(peer.passed < pod.passed for peer in there):
                return  # it waits in its collective
            pod.passed += 1
            if not pod.stands:
                self._stepped(pod)
        self.look()

    def settle(self):
        """Everything that can happen by itself does."""
        for _ in range(25):
            for uid in list(self.pods):
                index = int(uid[1:])
                while uid in self.pods and self.pods[uid].words:
                    self.deliver(index)
                self.train(index)

    # -- a pod --------------------------------------------------------------------------------------------------------

    def _hear(self, uid, pod, word):
        member = self.board.members[uid]
        if "form" in word:
            self._restart(pod)
            pod.processes, pod.group, pod.passed, pod.step = True, Generation.from_message(word["form"]), 0, 0
            member.store_port = 4000
            self._tell(uid, {"ready": True, "joined": pod.generation, "holds": True})
        if "stop" in word:
            self._restart(pod)
            self._tell(uid, {"ready": False, "joined": 0, "holds": False})
            self.carrier.stopped(member, None)
        if "candidates" in word and not pod.processes:
            pod.processes = pod.waits = True
            self._tell(uid, {"ready": True, "joined": 0, "holds": False})
        if "host" in word:
            member.store_port = 4000
        if "leave" in word:
            pod.leaves = True
            if pod.verdict is None or not pod.group:
                self._go(uid)
        if "prepare" in word:
            self._prepare(uid, pod, word["prepare"])
        if "ask" in word:
            self._tell(uid, {"passed": pod.passed, "at": word["ask"]})
        if "propose" in word:
            agreed = pod.passed < word["propose"]
            pod.wanted = word["propose"] if agreed else None
            self._tell(uid, {"agreed": agreed, "tick": word["propose"], "at": word["at"]})
        if "cancel" in word:
            pod.key = pod.formed = None
            pod.wanted = pod.wanted if pod.verdict is not None else None
        if "bind" in word:
            group = Generation.from_message(word["bind"]) if word["bind"] else None
            pod.verdict = (group, pod.formed if pod.key == word["at"] else None)
            pod.key = pod.formed = None
            if group is not None and group.pods[0].uid == uid:
                member.store_port = 4000
        if word.get("broken") == pod.generation and pod.group:
            pod.broken = True

    def _go(self, uid):
        """Not before it has done the steps that it agreed to."""
        member = self.board.members[uid]
        member.connected, member.goodbye, member.since = False, True, self.now
        del self.pods[uid]

    def _prepare(self, uid, pod, told):
        pod.key = pod.formed = None
        if pod.verdict is None:
            pod.wanted = None
        if told["broken"]:
            pod.broken, pod.verdict = True, None
        group = Generation.from_message(told["group"])
        if uid in group.uids:
            pod.key = told["at"]
            pod.formed = group.number
            self._tell(uid, {"formed": 1, "at": told["at"]})

    def _go_over(self, uid, pod):
        """All who were in the old group go over after the same step, unless that group is broken."""
        (group, formed), pod.verdict = pod.verdict, None
        was_broken, at = pod.broken, pod.passed
        pod.wanted, pod.broken, pod.parked = None, False, False
        if pod.leaves:
            self._go(uid)
            return
        if group is None:
            pod.parked = True
            return
        if uid not in group.uids:
            pod.group, pod.waits = None, True
            self._tell(uid, {"ready": True, "joined": 0, "holds": False})
            return
        if formed != group.number:
            pod.broken = True
            self._tell(uid, {"cutOff": group.number})
            return
        if pod.group is not None and not was_broken and not pod.waits:
            before = self.moments.setdefault((pod.generation, group.number), at)
            assert before == at, f"{uid} goes over at {at}, others at {before}"
        pod.group, pod.passed, pod.waits = group, 0, False
        self._tell(uid, {"ready": True, "joined": group.number, "holds": True})

    def _restart(self, pod):
        words = pod.words
        pod.__init__()
        pod.words = words

    def _stepped(self, pod):
        assert pod.generation >= self.highest_that_stepped, "an older group trains beside a newer one"
        self.highest_that_stepped = pod.generation
        self.steps_done += 1

    # -- words --------------------------------------------------------------------------------------------------------

    def _post(self, uid, word):
        """Here members know the whole of the group that they are told their part of."""
        word = {key: self._whole(uid, value) for key, value in word.items()}
        if uid in self.pods and not ("leave" in word and self.pods[uid].leaves):
            self.pods[uid].words.append(word)
        if "done" in word or "fail" in word:
            self.over = "done" if "done" in word else "failed"

    def _whole(self, uid, told):
        if isinstance(told, dict) and "group" in told:
            return {**told, "group": self._whole(uid, told["group"])}
        if not isinstance(told, dict) or "part" not in told:
            return told
        groups = [self.board.group, self.board.attempt and self.board.attempt.group]
        return next(group for group in groups if group and part_of(group, uid).to_message() == told).to_message()

    def _tell(self, uid, message):
        self.carrier.in_place.hear(self.board.members[uid], message, self.now)

    @property
    def trains(self):
        """Who does steps together now; nobody is the empty set."""
        group = self.board.group
        if self.board.phase != Phase.RUNNING or group is None:
            return set()
        pods = [self.pods.get(uid) for uid in group.uids]
        together = all(p is not None and p.generation == group.number and not p.stands for p in pods)
        return set(group.uids) if together else set()
