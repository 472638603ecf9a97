"""What happened to an Elastic job: losing pods, the master among them, ends no incarnation.

A launcher finds out by itself who is gone, and the others wait for a new master with what they have in memory. Masters
are counted (`status.masterEpoch`), and the number is written down before the next one is made: pods obey the newest, so
an old master that comes back can do no harm. Only a job that has none for too long starts over.
"""

from __future__ import annotations

from dataclasses import replace

from elastic_operator.api.status import JobStatus
from elastic_operator.plan.decisions import Event
from elastic_operator.plan.failures import count_failure, failed_pods, over_for_good, short_failure, too_many_in_all
from elastic_operator.plan.job import OwnPod
from elastic_operator.plan.losses import MASTER_LOST, count_losses, lost_count
from elastic_operator.plan.observation import (
    Observation,
    at,
    end_incarnation,
    fail,
    is_running,
    master_of,
    replace_all,
    seconds,
)
from elastic_operator.plan.progress import new_failures


def failure(seen: Observation, now: float) -> Observation:
    """A launcher that says that no pod would fare better ends the job; a master that fails is replaced.

    A worker that fails is a loss: whose fault a failure is, and how often there was one, is the coordinator's to say.
    """
    assert seen.job.spec is not None
    failed = failed_pods(seen)
    if not failed or seen.job.spec.suspend:
        return seen
    if over := over_for_good(seen, failed, now):
        return over
    master = next((pod for pod in failed if pod.role == "master"), None)
    return seen if master is None else _replace_failed_master(seen, master, now)


def over_after_restarts(seen: Observation, now: float) -> Observation:
    """Failures that the master tells of end the job, too, with the first that is more than are allowed.

    An edit that allows fewer than there were ends no job that trains.
    """
    new = new_failures(seen)
    in_all = seen.status.total_failures + new
    too_many = too_many_in_all(seen, in_all) if new else ""
    if not too_many:
        return seen
    status = seen.status.model_copy(update={"total_failures": in_all})
    return fail(replace(seen, status=status), now, "RestartLimitReached", too_many)


def losses(seen: Observation, now: float) -> Observation:
    """Lost pods are replaced one by one; the others go on, or wait for a new master."""
    master_is_lost = bool(seen.live and seen.status.replicas) and master_of(seen) is None
    lost = lost_count(seen)
    if master_is_lost and seen.status.master_lost_time is None:
        lost = max(lost, 1)
    if lost <= 0 or (seen.finishing and not master_is_lost):
        return seen
    if not seen.live:
        seen = count_losses(seen, lost, now)
        text = "No pod is left: all are replaced under a new rendezvous id."
        return replace_all(seen, end_incarnation(seen.status), Event("NewIncarnation", text, "Warning"))
    if not master_is_lost or (seen.status.master_lost_time is not None and not _had_master(seen)):
        return count_losses(seen, lost, now)
    seen = count_losses(seen, lost, now, reason=MASTER_LOST)
    status = next_master(seen.status, now)
    return replace(seen, status=status, events=(*seen.events, _replaced("The master is gone", status)))


def absence(seen: Observation, now: float) -> Observation:
    """The others wait for a new master only so long."""
    assert seen.job.spec is not None
    since = seen.status.master_lost_time
    if since is None:
        return seen
    master = master_of(seen)
    if master is not None and is_running(master):
        return replace(seen, status=seen.status.model_copy(update={"master_lost_time": None}))
    limit = seen.job.spec.recovery.master_loss_timeout_seconds
    until = seconds(since) + limit
    if now < until:
        return replace(seen, wake_at=(*seen.wake_at, until))
    text = f"No master has run for {limit} s (recovery.masterLossTimeoutSeconds): all pods are replaced."
    return replace_all(seen, end_incarnation(seen.status), Event("NewIncarnation", text, "Warning"))


def next_master(status: JobStatus, now: float) -> JobStatus:
    """The status under which another master is made, and the present one is on its way out."""
    since = status.master_lost_time or at(now)
    return status.model_copy(update={"master_epoch": (status.master_epoch or 0) + 1, "master_lost_time": since})


def _replace_failed_master(seen: Observation, master: OwnPod, now: float) -> Observation:
    """It counts as a failure, but the others stay."""
    seen, told, wait = count_failure(seen, master, now)
    if seen.status.finished:
        return seen
    if not seen.live:
        event = Event("NewIncarnation", f"{told}; all pods are replaced after {wait} s.", "Warning")
        return replace_all(seen, end_incarnation(seen.status), event)
    status = next_master(seen.status, now)
    status = status.model_copy(update={"replicas": max(0, status.replicas - 1)})
    gone = (*seen.gone, (master, short_failure(master)))
    return replace(seen, status=status, gone=gone, commit=True, events=(*seen.events, _replaced(told, status)))


def _had_master(seen: Observation) -> bool:
    """Whether the last status knew of a master: that one is gone, too, and its number is used."""
    return any(pod.role == "master" and pod.phase in ("Pending", "Running") for pod in seen.status.pods)


def _replaced(why: str, status: JobStatus) -> Event:
    text = f"{why.rstrip('.')}. Another one comes (number {status.master_epoch}); the other pods stay."
    return Event("MasterReplaced", text, "Warning")
