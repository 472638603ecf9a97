"""The rules of an Elastic job's observation. A lost pod, even the master, ends no incarnation (51).

The launchers find out which pods are lost, and the other pods wait for a new master with their state in
memory. Masters are counted (`status.masterEpoch`), and the number is written down before the next one is created. Pods
obey the newest master, so an old master that comes back does no harm (52). A job starts over only if it has no master
for too long.
"""

from __future__ import annotations

from dataclasses import replace

from elastic_api.status import ChangeReason
from elastic_operator.plan.facts.decisions import Event, EventReason
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.text import joined
from elastic_operator.plan.facts.times import seconds, status_time
from elastic_operator.plan.job.failures import count_failure, failed_pods, judge, short_failure, too_many_in_all
from elastic_operator.plan.job.losses import count_losses, end_backoff_for_master, has_no_master_yet, lost_count
from elastic_operator.plan.job.master_report import new_failures
from elastic_operator.plan.job.observation import Observation, fail, is_running, master_of, replace_all
from elastic_worker.contract import ROLE_MASTER


def handle_failed_pods(obs: Observation, now: float) -> Observation:
    """End the job if a launcher reports that another try would fail as well (135). Replace a failed master.

    A failed worker counts as a lost pod here: the coordinator reports the cause and the number of failures.
    """
    failed = failed_pods(obs)
    if not failed or obs.spec.suspend:
        return obs
    obs = judge(obs, failed, now)
    master = next((pod for pod in failed if pod.role == ROLE_MASTER), None)
    return obs if master is None or obs.status.finished else _replace_failed_master(obs, master, now)


def fail_at_max_restarts(obs: Observation, now: float) -> Observation:
    """End the job with the first failure in its master's report beyond `maxRestarts` (135).

    If an edit lowers `maxRestarts` below the number of failures so far, a job that trains does not end.
    """
    new = new_failures(obs)
    in_all = obs.status.total_failures + new
    too_many = too_many_in_all(obs, in_all) if new else ""
    return fail(obs.with_status(total_failures=in_all), now, "RestartLimitReached", too_many) if too_many else obs


def replace_lost_pods(obs: Observation, now: float) -> Observation:
    """Replace lost pods one by one. The other pods continue, or wait for a new master."""
    master_is_lost = bool(obs.members and obs.status.replicas) and master_of(obs) is None
    lost = lost_count(obs)
    if master_is_lost and obs.status.master_lost_time is None and not has_no_master_yet(obs):
        lost = max(lost, 1)
    if lost <= 0 or (obs.finishing and not master_is_lost):
        return obs
    if not obs.members:
        obs = count_losses(obs, lost, now)
        text = "No pod is left: all are replaced under a new rendezvous id."
        return replace_all(obs, Event(EventReason.NEW_INCARNATION, text, "Warning"))
    # If the last status lists a master as alive, it is lost, and its epoch is used.
    had_master = any(pod.role == ROLE_MASTER and pod.is_alive for pod in obs.status.pods)
    if not master_is_lost or (obs.status.master_lost_time is not None and not had_master):
        return count_losses(obs, lost, now)
    obs = next_master(count_losses(obs, lost, now, reason=ChangeReason.MASTER_LOST), now)
    return obs.with_event(_replaced("The master is gone", obs))


def end_without_master(obs: Observation, now: float) -> Observation:
    """End the incarnation if the other pods have waited too long for a new master."""
    since = obs.status.master_lost_time
    if since is None:
        return obs
    master = master_of(obs)
    if master is not None and is_running(master):
        return obs.with_status(master_lost_time=None)
    timeout = obs.spec.recovery.master_loss_timeout_seconds
    until = seconds(since) + timeout
    if now < until:
        return obs.again_at(until)
    text = f"No master has run for {timeout} s (recovery.masterLossTimeoutSeconds): all pods are replaced."
    return replace_all(obs, Event(EventReason.NEW_INCARNATION, text, "Warning"))


def next_master(obs: Observation, now: float) -> Observation:
    """The observation with the status by which another master is created and the present one is deleted."""
    since = obs.status.master_lost_time or status_time(now)
    return obs.with_status(master_epoch=(obs.status.master_epoch or 0) + 1, master_lost_time=since)


def _replace_failed_master(obs: Observation, master: OwnPod, now: float) -> Observation:
    """Replace a failed master. This counts as a failure of the job, but the other pods stay. Only the back-off of this
    failure delays the next master.

    The failed master is no longer a member, even if a sidecar keeps its pod in the phase Running.
    """
    others = tuple(pod for pod in obs.members if pod is not master)
    obs = replace(end_backoff_for_master(obs, now), members=others)
    obs, text, wait = count_failure(obs, master, now)
    if obs.status.finished:
        return obs
    if not obs.members:
        event = Event(EventReason.NEW_INCARNATION, f"{text} All pods are replaced after {wait} s.", "Warning")
        return replace_all(obs, event)
    obs = next_master(obs, now).with_status(replicas=len(others))
    return obs.decided(_replaced(text, obs), [obs.deletion(master, short_failure(master))])


def _replaced(why: str, obs: Observation) -> Event:
    text = joined(why, f"The operator creates master {obs.status.master_epoch}.", "The other pods stay.")
    return Event(EventReason.MASTER_REPLACED, text, "Warning")
