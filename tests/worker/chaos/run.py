"""One run: a job, faults for a while, then peace until it has finished, and what must be so in the end."""

import random
import subprocess
import time

from tests.worker.chaos.faults import FEWEST, Faults
from tests.worker.chaos.operator import Operator
from tests.worker.job.exactly_once import LibraryJob
from tests.worker.job.local import LocalJob
from tests.worker.job.pod import REAL

EPOCHS_PER_SECOND = 2.0
"""About what a job does while faults keep it busy; it finishes soon after them."""
FINISH_SECONDS = 120.0
ENDING_SECONDS = 60.0
LOOK_SECONDS = 0.1
BETWEEN_SECONDS = (1.0, 7.0)
TWO_AT_ONCE = 0.2


def run(folder, *, seed, seconds, say, library=False, tree=REAL):
    """Raises AssertionError, with all logs, where something does not hold at the end."""
    epochs = max(20, int(seconds * EPOCHS_PER_SECOND))
    with _job(folder, epochs, library=library, tree=tree) as job:
        rng = random.Random(seed)
        operator = Operator(job, rng)
        faults = Faults(operator, rng)
        operator.want(0, 1, 2)
        job.wait("three pods to train", lambda: any(step["world"] == 3 for step in job.steps()))
        _torment(operator, faults, rng, until=time.monotonic() + seconds, say=say)
        faults.end_due(everything=True)
        say(f"peace: {len(job.steps())} steps so far")
        _finish(job, operator, faults, seconds=FINISH_SECONDS + epochs)
        _check(job, operator, epochs)
        if library:
            steps, lost = job.assert_exactly_once(), job.lost_steps()
            assert lost <= faults.losses, f"{lost} steps were lost by {faults.losses} losses"
            say(f"finished: {steps} steps, {lost} done again after {faults.losses} losses, {_groups(job)} groups")
        else:
            job.assert_no_epoch_skipped()
            say(f"finished: {epochs} epochs, {job.repeated()} of them done again, {_groups(job)} groups")


def _job(folder, epochs, *, library, tree):
    if library:
        return LibraryJob(folder, "--epochs", epochs, "--checkpoint-every", 10, fewest=FEWEST, network=True)
    return LocalJob(folder, tree=tree, fewest=FEWEST, network=True, options=["--epochs", epochs])


def _torment(operator, faults, rng, *, until, say):
    began, next_at = time.monotonic(), time.monotonic()
    while time.monotonic() < until and not operator.is_done:
        if time.monotonic() >= next_at:
            for _ in range(1 + (rng.random() < TWO_AT_ONCE)):
                told = faults.one()
                if told:
                    say(f"{time.monotonic() - began:6.1f} s: {told}")
            next_at = time.monotonic() + rng.uniform(*BETWEEN_SECONDS)
        faults.end_due()
        operator.look()
        time.sleep(LOOK_SECONDS)


def _finish(job, operator, faults, *, seconds):
    """Until all pods have ended by themselves."""

    def is_over():
        faults.end_due(everything=True)
        operator.look()
        return operator.is_done and not operator.running()

    job.wait("the job to finish", is_over, seconds=seconds)


def _check(job, operator, epochs):
    steps = [step for step in job.steps() if step["rank"] == 0]
    assert steps[-1]["epoch"] == epochs - 1, job.report()
    _assert_one_group_at_a_time(steps)
    left = [path for pod in job.all_pods if pod.uid not in operator.killed for path in pod.scratch.glob("elastic-*")]
    assert not left, left
    for pod in job.all_pods:
        assert pod.code is not None, f"{pod.uid} still runs"
        assert not job.network.listening(pod.place), f"somebody listens where {pod.uid} was"
        assert not _processes_in(pod.place), f"processes are left where {pod.uid} was"


def _assert_one_group_at_a_time(steps):
    """Rank 0 of an older group never steps after one of a newer group.

    Where nobody is left who knows the last generation, a new master counts from one again.
    """
    latest = (0, 0)
    for step in steps:
        group = (step["master"], step["generation"])
        assert group >= latest, f"master and generation {latest} had begun when {step} was made"
        latest = group


def _groups(job):
    return len({(step["master"], step["generation"]) for step in job.steps()})


def _processes_in(place):
    return subprocess.run(["ip", "netns", "pids", place], check=True, capture_output=True, text=True).stdout.split()
