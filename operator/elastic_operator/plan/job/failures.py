"""Handles pods whose main container failed: which of them count as failures, and the sentences about them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from elastic_api.status import JobStatus, LastFailure, Retry, RetryCause, StatusFields, Training
from elastic_operator.attempts import doubled
from elastic_operator.plan.facts.decisions import Event, EventReason
from elastic_operator.plan.facts.job import OwnPod
from elastic_operator.plan.facts.pod_order import master_first
from elastic_operator.plan.facts.text import sentence
from elastic_operator.plan.facts.times import end_of_wait, seconds, status_time
from elastic_operator.plan.facts.waits import MAX_BACKOFF_SECONDS
from elastic_operator.plan.job.observation import Observation, fail, present_pods, replace_all
from elastic_worker.contract import EXIT_DO_NOT_RETRY, ROLE_MASTER

JUST_CHANGED_SECONDS = 120.0
"""A failure this soon after a pod joined, left or was lost is not held against the script (13)."""
CAUSE_SECONDS = 5.0
"""torchrun's other agents end within a second of the agent with their store, whose kubelet may report later."""
TORCHRUN_FAILED = 1


def failed_pods(obs: Observation) -> list[OwnPod]:
    """Failed pods that were neither deleted nor ended by the cluster, the pod to blame first."""
    failed = [pod for pod in present_pods(obs) if has_failed(pod) and not was_deleted_before_exit(pod)]
    failed = [pod for pod in failed if not obs.is_lost(pod.node)]
    return sorted(failed, key=lambda p: (p.main.is_consequence, _failed_at(p), *master_first(p)))


def give_up_after_failure(obs: Observation, now: float) -> Observation:
    """End the incarnation of a failed pod. Whether the failure counts depends on what happened just before (13)."""
    failed = failed_pods(obs)
    if not failed or obs.spec.suspend:
        return obs
    if now < (until := _cause_known_by(obs, failed)) <= now + CAUSE_SECONDS:
        return obs.again_at(until)
    obs = judge(obs, failed, now)
    if obs.status.finished:
        return obs
    obs, text, wait = count_failure(obs, failed[0], now)
    if obs.status.finished:
        return obs
    event = Event(EventReason.NEW_INCARNATION, f"{text} All pods are replaced after {wait} s.", "Warning")
    return replace_all(obs, event)


def _cause_known_by(obs: Observation, failed: Sequence[OwnPod]) -> float:
    """Until when failures that are consequences of another pod's failure are not judged, because the news of the other
    pod's end may come later (165). Infinity if no node says when these pods failed. If a node's clock is ahead, the
    time is too late.
    """
    if not all(pod.main.is_consequence for pod in failed):
        return -inf
    others = any(pod.main.running_since is not None and not has_failed(pod) for pod in present_pods(obs))
    return min(_failed_at(pod) for pod in failed) + CAUSE_SECONDS if others else -inf


def _note_last_output(obs: Observation, pod: OwnPod, now: float) -> Observation:
    """Keep the pod's last output in the status, because its log is deleted with the pod.

    This discloses nothing: roles that allow reading a job's status in a namespace also allow reading its pods' logs
    (163).
    """
    last, known, ended_at = pod.main.last_output, obs.status.last_failure, pod.main.finished_at
    if last is None or (known is not None and _is_consequence_of(known, pod, now)):
        return obs
    noted = LastFailure(
        time=status_time(now if ended_at is None else ended_at),
        pod=last.pod,
        rank=last.rank,
        exit_code=last.exit_code,
        log_tail=list(last.lines),
    )
    same = known.model_copy(update={"time": noted.time}) if known is not None and ended_at is None else known
    return obs if noted == same else obs.with_status(last_failure=noted)


def _is_consequence_of(known: LastFailure, pod: OwnPod, now: float) -> bool:
    """Whether the pod failed only because of the known failure, whose pod may be deleted by now."""
    after = (pod.main.finished_at or now) - seconds(known.time)
    return pod.main.is_consequence and known.pod != pod.name and 0 <= after <= JUST_CHANGED_SECONDS


def judge(obs: Observation, failed: Sequence[OwnPod], now: float) -> Observation:
    """Keep the last output of the first of these pods. End the job if one of them reports that another try would fail,
    too (135).
    """
    obs = _note_last_output(obs, failed[0], now)
    last = next((pod for pod in failed if pod.main.exit_code == EXIT_DO_NOT_RETRY), None)
    if last is not None:
        return fail(obs, now, "RestartLimitReached", sentence(last.main.message) or describe_failure(last))
    final = obs.spec.recovery.final_exit_codes
    last = next((pod for pod in failed if not pod.main.is_consequence and _exit_code(pod) in final), None)
    if last is None or _group_had_just_changed(obs, _known_at(last, now)):
        return obs
    return fail(obs, now, "FinalExitCode", f"{describe_failure(last)} The exit code is one of recovery.finalExitCodes.")


def _exit_code(pod: OwnPod) -> int | None:
    """The code of the process that failed, as a shell shows it; None if it is not known.

    torchrun itself ends with 1 whatever the code was, and also if it gave up without a failed process. So a 1 counts
    only if torchrun's summary in the log names it (135).
    """
    code = pod.main.script_exit_code
    if code is None:
        return pod.main.exit_code if pod.main.exit_code != TORCHRUN_FAILED else None
    return code if code >= 0 else 128 - code


def too_many_in_all(obs: Observation, failures: int) -> str:
    """A sentence if there were more failures than `maxRestarts` allows; else ""."""
    most = obs.spec.recovery.max_restarts
    if most is None or failures <= most:
        return ""
    return f"The job has failed {failures} times in all, and recovery.maxRestarts is {most}."


NO_FAILURES: StatusFields = {"failures": 0, "checkpoint_at_failure": None, "step_at_failure": None}
"""The fields of a status without failures in a row."""


def has_progressed(status: JobStatus) -> bool | None:
    """Whether the training is further than at the failures in a row; None if that is not known (135).

    Checkpoints are compared with checkpoints. Steps are compared with steps if no checkpoint is known. A script that
    counts from 0 in each run has fewer steps than before: whether these repeat old ones is unknown. A run without a
    checkpoint is no further than one that had some. A report from before the job ran again does not count for this run.
    """
    training, since = status.training or Training(), status.running_since
    if since is not None and (training.last_updated_time is None or training.last_updated_time < since):
        return None
    if status.checkpoint_at_failure is not None and training.last_checkpoint_step is None:
        return False
    reached, before = training.last_checkpoint_step, status.checkpoint_at_failure
    if reached is None:
        reached, before = training.step, status.step_at_failure
    if reached is None or before is None or reached < before:
        return None
    return reached > before


def _progress_marks(status: JobStatus) -> StatusFields:
    """The progress of the training at this failure, or at an earlier failure of the row if that was further."""
    training, in_a_row = status.training or Training(), status.failures and not has_progressed(status)
    before = status if in_a_row else JobStatus()
    return {
        "checkpoint_at_failure": _furthest(training.last_checkpoint_step, before.checkpoint_at_failure),
        "step_at_failure": _furthest(training.step, before.step_at_failure),
    }


def _furthest(*steps: int | None) -> int | None:
    return max((step for step in steps if step is not None), default=None)


def count_failure(obs: Observation, first: OwnPod, now: float) -> tuple[Observation, str, int]:
    """The job after that pod's failure: ended if there were too many (15), else to be tried again.

    Returns also the sentences for the event, and how many seconds to wait.
    """
    what = describe_failure(first)
    counts = not _group_had_just_changed(obs, _known_at(first, now))
    failures = (0 if has_progressed(obs.status) else obs.status.failures) + counts
    in_all, attempt = obs.status.total_failures + counts, (obs.status.retry.attempt if obs.status.retry else 0) + 1
    obs = obs.with_status(
        failures=failures, total_failures=in_all, restarts=obs.status.restarts + 1, running_since=None
    ).with_status(**_progress_marks(obs.status))
    limit = obs.spec.recovery.max_failures_without_progress
    in_a_row = f"This is failure {failures} in a row without progress"
    over = too_many_in_all(obs, in_all)
    if failures >= max(1, limit):
        over = f"{in_a_row}, and recovery.maxFailuresWithoutProgress is {limit}."
    if counts and over:
        return fail(obs, now, "RestartLimitReached", f"{what} {over}"), "", 0
    wait = doubled(1, MAX_BACKOFF_SECONDS, attempt)
    retry = Retry(reason=what, not_before=end_of_wait(now + wait), attempt=attempt, cause=RetryCause.POD_FAILED)
    kind = "It does not count as a failure, because pods joined or left shortly before."
    if counts:
        kind = f"{in_a_row}; the job ends at {max(1, limit)}."
    return obs.with_status(retry=retry), f"{what} {kind}", wait


def describe_failure(pod: OwnPod) -> str:
    """A sentence on one failed pod: its name, how it failed, and the end of its message."""
    detail = f": {pod.main.message.strip()}" if pod.main.message.strip() else ""
    return sentence(f"{pod.name} {short_failure(pod)}{detail}")


def short_failure(pod: OwnPod) -> str:
    """How a pod failed, without its message."""
    how = f"exit code {pod.main.exit_code}" if pod.main.exit_code is not None else "no exit code"
    reason = f" ({pod.main.reason})" if pod.main.reason not in ("", "Error") else ""
    return f"failed with {how}{reason}"


def has_failed(pod: OwnPod) -> bool:
    """Whether the pod's main container ended badly on its own, or the pod failed without an exit code."""
    if pod.disrupted:
        return False
    return bool(pod.main.exit_code) or (pod.phase == "Failed" and pod.main.exit_code is None)


def was_deleted_before_exit(pod: OwnPod) -> bool:
    """Whether the pod's deletion was requested before its main container ended: its exit code then does not count
    (18).

    The kubelet ends each deletion with a second one of grace 0, which moves the deletion's time. So that time does not
    show when the deletion was requested. A pod that ended on its own has no second deletion, because the first takes
    effect at once.
    """
    if pod.deleting_since is None:
        return False
    if pod.grace_seconds == 0:
        return True
    return pod.main.finished_at is None or pod.main.finished_at >= pod.deleting_since


def _group_had_just_changed(obs: Observation, failed_at: float) -> bool:
    """Whether a pod joined, left or was lost shortly before (13). The first pods of an incarnation do not count."""
    changes = [seconds(change.time) for change in obs.status.history if change.from_ > 0 and change.to > 0]
    master = next((p for p in present_pods(obs) if p.role == ROLE_MASTER), None)
    if master and master.main.running_since is not None:
        started = master.main.running_since
        changes += [p.main.running_since or 0.0 for p in present_pods(obs) if p.created > started]
    changes += [p.deleting_since for p in present_pods(obs) if p.deleting_since is not None]
    return any(0 <= failed_at - change <= JUST_CHANGED_SECONDS for change in changes)


def _failed_at(pod: OwnPod) -> float:
    return pod.main.finished_at or inf


def _known_at(pod: OwnPod, now: float) -> float:
    """When the pod failed, but no later than now: nodes' clocks may be ahead."""
    return min(pod.main.finished_at or now, now)
