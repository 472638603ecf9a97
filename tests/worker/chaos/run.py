"""One run: a job, faults for a time, then none until it has finished, and the checks at the end."""

import itertools
import math
import random
import subprocess
import time
from dataclasses import dataclass

from elastic_worker import contract
from tests.worker.chaos import account
from tests.worker.chaos.faults import FEWEST, Faults
from tests.worker.chaos.operator import Operator
from tests.worker.job.exactly_once import LibraryJob, group_of
from tests.worker.job.local import LocalJob
from tests.worker.job.pod import REAL

FINISH_SECONDS = 300.0
LOOK_SECONDS = 0.1
BETWEEN_SECONDS = (1.0, 7.0)
TWO_AT_ONCE = 0.2
LIBRARY_OPTIONS = ("--checkpoint-every", 10)
SEVERAL = "two at once"
PATIENT = {contract.ENV_MAX_FAILURES: "1000"}
"""With frequent faults, three of them may hit a job before it has done a step, which must not count as its failure."""


@dataclass(frozen=True)
class Plan:
    """The times of faults: `moments` of them, `between` seconds apart, for at most `seconds`. `seed` chooses them."""

    seed: int
    moments: float = math.inf
    between: tuple[float, float] = BETWEEN_SECONDS
    seconds: float = math.inf


@dataclass(frozen=True)
class Torment:
    """The result of a plan: faults, seconds, and for each kind of fault its number and its cost.

    Simultaneous faults are a separate kind.
    """

    faults: int
    seconds: float
    by_kind: dict[str, tuple[int, float]]

    @property
    def lost(self):
        """The seconds outside of steps that counted."""
        return sum(lost for _, lost in self.by_kind.values())


@dataclass(frozen=True)
class Outcome:
    """The result of a finished job; with the library also its samples and the checkpoints read."""

    torment: Torment
    samples: int = 0
    read: int = 0


def run(folder, plan, *, say, library=False, tree=REAL):
    """Run it. Raises AssertionError, with all logs, if a check fails at the end."""
    with _job(folder, library=library, tree=tree) as job:
        operator = Operator(job, random.Random(plan.seed))
        faults = Faults(operator, random.Random(plan.seed))
        torment = _begin_and_torment(job, operator, faults, plan, say=say)
        say(f"peace: {len(job.steps())} steps so far")
        epochs = job.finish()
        _finish(job, operator, faults)
        _check(job, operator, epochs)
        if not library:
            job.assert_no_epoch_skipped()
            say(f"finished: {epochs} epochs, {job.repeated()} of them done again, {_groups(job)} groups")
            return Outcome(torment)
        samples, lost = account.count_samples(job.lineage()), job.lost_steps()
        assert lost <= faults.losses, f"{lost} steps were lost by {faults.losses} losses"
        read = account.restores(job.all_pods)
        account.assert_read_after_the_loss_of_all(read, job.steps(), faults.harmed)
        told = f"{samples} samples once each, {lost} steps done again after {faults.losses} losses"
        say(f"finished: {told}, {_groups(job)} groups, {len(read)} checkpoints read, each after the loss of all")
        return Outcome(torment, samples, len(read))


def torment_only(job, operator, plan, *, say):
    """Inject the same faults into a job of another kind, without checks at the end."""
    return _begin_and_torment(job, operator, Faults(operator, random.Random(plan.seed)), plan, say=say)


def _job(folder, *, library, tree):
    if library:
        return LibraryJob(folder, *LIBRARY_OPTIONS, fewest=FEWEST, network=True, environ=PATIENT)
    return LocalJob(folder, tree=tree, fewest=FEWEST, network=True)


def _begin_and_torment(job, operator, faults, plan, *, say):
    operator.want(0, 1, 2)
    job.wait("three pods to train", lambda: any(step["world"] == 3 for step in job.steps()), seconds=FINISH_SECONDS)
    began = time.monotonic()
    hit = _torment(operator, faults, plan, began=began, say=say)
    ended = time.monotonic()
    faults.end_due(everything=True)
    gaps = account.losses(job.steps(), began=began, ended=ended)
    moments = [(at, kinds[0] if len(kinds) == 1 else SEVERAL) for at, kinds in hit]
    return Torment(sum(len(kinds) for _, kinds in hit), ended - began, account.lost_by_kind(gaps, moments))


def _torment(operator, faults, plan, *, began, say):
    """Inject the faults, and wait after the last one as between two; return the times and kinds."""
    hit, next_at = [], began
    for number in itertools.count():
        if number >= plan.moments or time.monotonic() >= began + plan.seconds or operator.is_done:
            break
        # Each moment has its own random numbers, since the choice depends on the existing pods.
        faults.rng = rng = random.Random(f"{plan.seed} {number}")
        next_at += rng.uniform(*plan.between)
        at, kinds = time.monotonic(), []
        for _ in range(1 + (rng.random() < TWO_AT_ONCE)):
            kind, told = faults.one()
            if told:
                kinds.append(kind)
                say(f"{time.monotonic() - began:6.1f} s: {told}")
        if kinds:
            hit.append((at, kinds))
        while time.monotonic() < next_at and not operator.is_done:
            faults.end_due()
            operator.look()
            time.sleep(LOOK_SECONDS)
    return hit


def _finish(job, operator, faults):
    """Wait until all pods have ended by themselves."""

    def is_over():
        faults.end_due(everything=True)
        operator.look()
        return operator.is_done and not operator.running()

    job.wait("the job to finish", is_over, seconds=FINISH_SECONDS)


def _check(job, operator, epochs):
    steps = job.steps()
    assert [step for step in steps if step["rank"] == 0][-1]["epoch"] == epochs - 1, job.report()
    assert_one_group_at_a_time(steps)
    left = [path for pod in job.all_pods if pod.uid not in operator.killed for path in pod.scratch.glob("elastic-*")]
    assert not left, left
    for pod in job.all_pods:
        assert pod.code is not None, f"{pod.uid} still runs"
        assert not job.network.listening(pod.place), f"somebody listens where {pod.uid} was"
        assert not _processes_in(pod.place), f"processes are left where {pod.uid} was"


def assert_one_group_at_a_time(steps):
    """No group begins a step after a later group did one. Raises AssertionError.

    When a step was done is what the first of its ranks wrote: one that was frozen writes it when it is thawed. Where
    nobody is left who knows the last generation, a new master counts from one again.
    """
    first = {}
    for step in steps:
        first.setdefault((group_of(step), step["epoch"], step["step"]), step)
    latest = (0, 0)
    for step in first.values():
        group = group_of(step)
        assert group >= latest, f"master and generation {latest} had begun when {step} was made"
        latest = group


def _groups(job):
    return len({group_of(step) for step in job.steps()})


def _processes_in(place):
    return subprocess.run(["ip", "netns", "pids", place], check=True, capture_output=True, text=True).stdout.split()
