"""Rules that begin and end waits and jobs, in both modes: success, the deadline, a suspension, an edit of the template
or spec, ten minutes of running without a failure.
"""

from __future__ import annotations

from typing import Unpack

from elastic_api.status import ChangeReason, ConditionType, StatusFields
from elastic_operator.plan.facts.decisions import Event, EventReason
from elastic_operator.plan.facts.text import Reason, pods_are
from elastic_operator.plan.facts.times import seconds, status_time
from elastic_operator.plan.job.active_time import active_for, uses_nodes
from elastic_operator.plan.job.failures import NO_FAILURES, has_progressed, was_deleted_before_exit
from elastic_operator.plan.job.observation import Observation, fail, present_pods, replace_all
from elastic_operator.plan.job.unplaceable import may_preempt_at
from elastic_worker.contract import ROLE_MASTER

FORGET_FAILURES_SECONDS = 600.0
"""After a job has run for this long without a failure, its earlier failures and waits are forgotten."""
MAX_WAITS_ENDED = 5
"""The most edits that end a job's wait after a failed size (136)."""


def fail_after_deadline(obs: Observation, now: float) -> Observation:
    """End a job whose deadline is over. Only time with pods counts: waiting for GPUs is not the job's fault (135)."""
    limit = obs.spec.active_deadline_seconds
    if limit is None:
        return obs
    left = limit - active_for(obs, now)
    if left > 0:
        return obs.again_at(now + left) if uses_nodes(obs) else obs
    why = (
        f"The job has had pods on nodes for its activeDeadlineSeconds ({limit})."
        " To run it longer, create it again with a larger value."
    )
    return fail(obs, now, "DeadlineExceeded", why)


def complete_on_success(obs: Observation, now: float) -> Observation:
    """End the job if the master's main container ended with exit code 0, before a deletion was requested (18)."""
    for pod in present_pods(obs):
        if pod.role == ROLE_MASTER and pod.main.exit_code == 0 and not was_deleted_before_exit(pod):
            why = Reason("Succeeded", "The master finished with exit code 0.")
            obs = obs.with_status(completion_time=status_time(now), retry=None, failed_size=None)
            obs = obs.with_condition(ConditionType.SUCCEEDED, True, why, now)
            return obs.decided(Event(EventReason.SUCCEEDED, why.message))
    return obs


def suspend(obs: Observation, now: float) -> Observation:
    """Release all pods of a suspended job. Its next pods are of another incarnation."""
    if not obs.spec.suspend or not obs.members:
        return obs
    event = Event(EventReason.SCALED_DOWN, f"{pods_are(len(obs.members))} deleted, because spec.suspend is true.")
    return _stopped(obs, now, "spec.suspend is true.", event)


def replace_outdated_pods(obs: Observation, now: float) -> Observation:
    """Replace pods of an older template: the job was suspended, changed and resumed between two passes (19)."""
    wanted = obs.job.fingerprints
    if not any(pod.template and pod.template != wanted.get(pod.role, pod.template) for pod in obs.members):
        return obs
    text = "The template was changed while the job was suspended; all pods are replaced."
    event = Event(EventReason.NEW_INCARNATION, text)
    return _stopped(obs, now, "The template was changed.", event)


def _stopped(obs: Observation, now: float, why: str, event: Event) -> Observation:
    obs = obs.with_change(now, len(obs.members), 0, ChangeReason.SUSPENDED, why)
    obs = obs.with_status(retry=None, failed_size=None, checkpoint_at_failure=None, step_at_failure=None)
    return replace_all(obs.with_status(target_replicas=0), event)


def forget_old_failures(obs: Observation, now: float) -> Observation:
    """Forget a row of failures after progress, or after ten minutes of running if progress is not known (135).

    A wait is forgotten ten minutes after it has ended (87).
    """
    status = obs.status
    if status.running_since is None:
        return obs
    running_since = seconds(status.running_since)
    progressed = has_progressed(status)
    if status.failures and progressed:
        obs = obs.with_status(**NO_FAILURES)
    elif status.failures and progressed is None:
        obs = _forgets(obs, now, running_since, **NO_FAILURES)
    if status.waits_ended_by_edits:
        obs = _forgets(obs, now, running_since, waits_ended_by_edits=None)
    if status.retry:
        obs = _forgets(obs, now, max(running_since, seconds(status.retry.not_before)), retry=None)
    if failed := status.failed_size:
        since = max(running_since, seconds(failed.not_before), may_preempt_at(failed))
        obs = _forgets(obs, now, since, failed_size=None)
    return obs


def _forgets(obs: Observation, now: float, since: float, **fields: Unpack[StatusFields]) -> Observation:
    """The observation with these status fields, if `FORGET_FAILURES_SECONDS` have passed since that time."""
    due = since + FORGET_FAILURES_SECONDS
    return obs.again_at(due) if now < due else obs.with_status(**fields)


def _waits_without_pods(obs: Observation) -> bool:
    """Whether the job has no pods, and a size of it has failed."""
    failed = obs.status.failed_size
    return failed is not None and failed.size is not None and not obs.members


def edit_ends_backoff(obs: Observation) -> bool:
    """Whether the next edit ends the wait after a failed size (136)."""
    return _waits_without_pods(obs) and (obs.status.waits_ended_by_edits or 0) < MAX_WAITS_ENDED


def end_backoff_after_edit(obs: Observation, now: float) -> Observation:  # noqa: ARG001 - a rule like the others
    """End the wait after a failed size, if a job without pods was edited or suspended (136).

    Only a few edits have this effect, until the job has run for a while. Otherwise a program that keeps editing a job
    which cannot start would make the job create pods and hold GPUs forever.
    """
    ended = obs.status.waits_ended_by_edits or 0
    if not _waits_without_pods(obs) or obs.job.generation == obs.status.observed_generation:
        return obs
    if not edit_ends_backoff(obs):
        text = (
            f"The back-off continues. {ended} edits have already ended a back-off since the job last ran for ten"
            " minutes; further edits do not."
        )
        return obs.with_event(Event(EventReason.SCALE_UP_BLOCKED, text))
    return obs.with_status(failed_size=None, waits_ended_by_edits=ended + 1)
