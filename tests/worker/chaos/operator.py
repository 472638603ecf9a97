"""Stands for the operator and the kubelets: replaces dead pods, and names those that take part."""

import time

from elastic_worker import contract

MASTER = 0
PATIENCE_SECONDS = 2.0


class FailedError(Exception):
    """The job gave up."""


class Operator:
    """`wanted` are the wanted pods, by index. A pod is replaced at most `patience` seconds after its end."""

    def __init__(self, job, rng):
        self.job, self.wanted = job, set()
        self.killed = set()
        self._rng, self._replace_at = rng, {}

    def want(self, *indices):
        """Add these pods to the wanted ones."""
        self.wanted.update(indices)
        self.job.start(*indices)

    def drop(self, index):
        """Remove a pod: it is terminated, and not named any more."""
        self.wanted.discard(index)
        self.job.pods[index].terminate()
        self.write_membership()

    def kill(self, index):
        """Kill the pod with all its processes, without notice."""
        self.killed.add(self.job.pods[index].uid)
        self.job.pods[index].kill()

    def replace(self, index):
        """Start another pod for one that has ended or is given up."""
        self.job.start(index)

    def write_membership(self):
        """Name the existing wanted pods."""
        there = [index for index in self.running() if index in self.wanted]
        if there:
            self.job.write_membership(*there)

    def running(self):
        """Indices of the pods that have not ended."""
        return [index for index, pod in self.job.pods.items() if pod.code is None]

    @property
    def is_done(self):
        """Whether the master has ended well."""
        return self.job.pods[MASTER].code == 0

    def look(self):
        """Replace dead pods. Raises FailedError if a pod reports that another one would fail in the same way."""
        for index in self.wanted:
            pod = self.job.pods[index]
            if pod.code == contract.EXIT_DO_NOT_RETRY:
                raise FailedError(f"{pod.name} gave up:\n{self.job.report()}")
            if pod.code in (None, 0) or self.is_done:
                continue
            due = self._replace_at.setdefault(pod.uid, time.monotonic() + self._rng.uniform(0, PATIENCE_SECONDS))
            if time.monotonic() >= due:
                self.replace(index)
