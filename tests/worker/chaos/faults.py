"""The faults: each method injects one and describes it; the end of a lasting one is deferred."""

import contextlib
import os
import signal
import time

from tests.worker.chaos.operator import MASTER

MOST = 5
FEWEST = 2
LONGEST_SECONDS = 9.0
"""The seconds of a cut or a freeze, some longer than the limit for a silent member (5 s)."""


class Faults:
    """Faults of the pods of `operator`. `rng` may be replaced for each fault."""

    def __init__(self, operator, rng):
        self.operator, self.job, self.rng = operator, operator.job, rng
        self._later = []
        self.harmed = []
        """The times in which a pod was silent: (uid, begun, ended)."""
        self.losses = 0
        """The number of faults that killed processes, or cut them off, without notice."""
        self._planned = [self.join, self.leave, self.drain_master, self.kill_coordinator, self.kill_warm_parent]
        self.kinds = [
            self.join,
            self.leave,
            self.drain_master,
            self.kill_process,
            self.kill_coordinator,
            self.kill_warm_parent,
            self.kill_worker,
            self.kill_master,
            self.freeze_process,
            self.freeze_pod,
            self.cut,
            self.give_up_master,
        ]

    def one(self):
        """Inject a random fault; return its name and its description, None for that if there was no target."""
        kind = self.rng.choice(self.kinds)
        told = kind() if self.operator.running() or kind == self.join else None
        if told and kind not in self._planned:
            self.losses += 1
        return kind.__name__.replace("_", " "), told

    def end_due(self, *, everything=False):
        """End faults whose time is over."""
        now = time.monotonic()
        due = [later for later in self._later if everything or later[0] <= now]
        self._later = [later for later in self._later if later not in due]
        for _, undo in due:
            undo()

    # -- actions of the operator --------------------------------------------------------------------------------------

    def join(self):
        free = [index for index in range(1, MOST) if index not in self.operator.wanted and self._is_free(index)]
        if not free:
            return None
        self.operator.want(free[0])
        return f"pod {free[0]} joins"

    def leave(self):
        index = self._worker()
        if index is None or len(self.operator.wanted) <= FEWEST:
            return None
        self.operator.drop(index)
        return f"pod {index} is told to leave"

    def drain_master(self):
        self.job.pods[MASTER].terminate()
        return "the master is told to go"

    # -- deaths -------------------------------------------------------------------------------------------------------

    def kill_process(self):
        return self._kill("a training process", lambda pod: self.rng.choice(pod.training() or [None]))

    def kill_coordinator(self):
        pid = self.job.pods[MASTER].coordinator()
        return self._end(pid) and "the coordinator is killed"

    def kill_warm_parent(self):
        return self._kill("the warm parent", lambda pod: pod.zygote())

    def kill_worker(self):
        index = self._worker()
        if index is None:
            return None
        self.operator.kill(index)
        return f"pod {index} is killed"

    def kill_master(self):
        self.operator.kill(MASTER)
        return "the master is killed"

    # -- temporary faults ---------------------------------------------------------------------------------------------

    def freeze_process(self):
        index = self._any()
        pids = self.job.pods[index].training()
        if not pids or not self._end(pids[0], signal.SIGSTOP):
            return None
        seconds = self._put_off(lambda: self._end(pids[0], signal.SIGCONT), self.job.pods[index])
        return f"a training process of pod {index} is frozen for {seconds:.1f} s"

    def freeze_pod(self):
        index = self._any()
        pod = self.job.pods[index]
        pids = [pid for pid in [*pod.processes(), pod.pid] if pid is not None]
        for pid in pids:
            self._end(pid, signal.SIGSTOP)
        seconds = self._put_off(lambda: [self._end(pid, signal.SIGCONT) for pid in reversed(pids)], pod)
        return f"pod {index} is frozen for {seconds:.1f} s"

    def cut(self):
        index = self._any()
        pod = self.job.pods[index]
        self.job.network.cut(pod.place)
        seconds = self._put_off(lambda: self.job.network.heal(pod.place), pod)
        return f"pod {index} is cut off for {seconds:.1f} s"

    def give_up_master(self):
        """Cut the master off and replace it; it returns for a while."""
        old = self.job.pods[MASTER]
        self.job.network.cut(old.place)
        self.operator.killed.add(old.uid)
        self.operator.replace(MASTER)
        seconds = self._put_off(lambda: self._return(old), old)
        return f"the master is cut off, replaced, and returns after {seconds:.1f} s"

    def _return(self, old):
        self.job.network.heal(old.place)
        self._put_off(old.kill, old)

    # -- targets ------------------------------------------------------------------------------------------------------

    def _any(self):
        return self.rng.choice(self.operator.running())

    def _worker(self):
        workers = [index for index in self.operator.running() if index != MASTER]
        return self.rng.choice(workers) if workers else None

    def _is_free(self, index):
        pod = self.job.pods.get(index)
        return pod is None or pod.code is not None

    def _kill(self, what, pid_of):
        index = self._any()
        with contextlib.suppress(OSError, ValueError):  # the pod has none now, or it ends this moment
            if self._end(pid_of(self.job.pods[index])):
                return f"{what} of pod {index} is killed"
        return None

    @staticmethod
    def _end(pid, number=signal.SIGKILL):
        """Send the signal; return whether there was such a process."""
        with contextlib.suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, number)
                return True
        return False

    def _put_off(self, undo, pod):
        seconds, now = self.rng.uniform(0.5, LONGEST_SECONDS), time.monotonic()
        self._later.append((now + seconds, undo))
        self.harmed.append((pod.uid, now, now + seconds))
        return seconds
