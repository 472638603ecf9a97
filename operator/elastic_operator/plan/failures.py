"""Pods whose main container ended badly: which of them count as failures, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from elastic_operator.api.status import JobStatus, Retry
from elastic_operator.plan.decisions import Event
from elastic_operator.plan.job import OwnPod
from elastic_operator.plan.observation import Observation, at, end_incarnation, fail, present, replace_all, seconds
from elastic_worker.contract import EXIT_DO_NOT_RETRY

DISTURBANCE_SECONDS = 120.0
"""An agent that gives up so soon after a pod joined, left or was lost is not held against the script."""
MAX_BACKOFF_SECONDS = 60


def failed_pods(seen: Observation) -> list[OwnPod]:
    """Those that nobody asked to go and nothing of the cluster's ended, the one to blame first."""
    failed = [p for p in present(seen) if has_failed(p) and not was_told_to_go(p) and p.node not in seen.lost_nodes]
    return sorted(failed, key=lambda p: (p.main.is_consequence, _failed_at(p), p.role != "master", p.index))


def give_up_after_failure(seen: Observation, now: float) -> Observation:
    """An agent that gave up ends the incarnation; whether it counts depends on what happened just before."""
    assert seen.job.spec is not None
    failed = failed_pods(seen)
    if not failed or seen.job.spec.suspend:
        return seen
    if over := over_for_good(seen, failed, now):
        return over
    seen, told, wait = count_failure(seen, failed[0], now)
    if seen.status.finished:
        return seen
    event = Event("NewIncarnation", f"{told}; all pods are replaced after {wait} s.", "Warning")
    return replace_all(seen, end_incarnation(seen.status), event)


def over_for_good(seen: Observation, failed: Sequence[OwnPod], now: float) -> Observation | None:
    """The job's end, where one of these pods says that another would fare no better; None if none does."""
    final = next((pod for pod in failed if pod.main.exit_code == EXIT_DO_NOT_RETRY), None)
    if final is None:
        return None
    return fail(seen, now, "RestartLimitReached", final.main.message.strip() or describe_failure(final))


def count_failure(seen: Observation, first: OwnPod, now: float) -> tuple[Observation, str, int]:
    """The job after that pod failed: over, if it was one failure too many, else to be tried again.

    Also what is told of it, and how many seconds to wait.
    """
    assert seen.job.spec is not None
    what = describe_failure(first)
    counts = not _disturbed(seen, min(first.main.finished_at or now, now))  # nodes' clocks may be ahead
    failures = seen.status.failures + counts
    attempt = _attempts(seen.status) + 1
    update = {"failures": failures, "restarts": seen.status.restarts + 1, "running_since": None}
    status = seen.status.model_copy(update=update)
    limit = seen.job.spec.recovery.max_failures_without_progress
    if counts and failures >= max(1, limit):
        told = f"{what} (failure {failures} in a row)"
        return fail(replace(seen, status=status), now, "RestartLimitReached", told), "", 0
    wait = min(2 ** (attempt - 1), MAX_BACKOFF_SECONDS)
    retry = Retry(reason=f"{what}.", not_before=at(now + wait + 0.999), attempt=attempt)
    kind = f"Failure {failures} of {max(1, limit)}" if counts else "Not counted as a failure (the group just changed)"
    return replace(seen, status=status.model_copy(update={"retry": retry})), f"{what}. {kind}", wait


def _attempts(status: JobStatus) -> int:
    """How often in a row it was started over; a size that could not be had is no such attempt."""
    retry = status.retry
    return retry.attempt if retry and retry.size is None and not retry.waits_for else 0


def describe_failure(pod: OwnPod) -> str:
    """One failed pod in words: who, how, and the end of what it said."""
    said = f": {pod.main.message.strip()}" if pod.main.message.strip() else ""
    return f"{pod.name} {short_failure(pod)}{said}"


def short_failure(pod: OwnPod) -> str:
    """How a pod failed, without what it said."""
    how = f"exit code {pod.main.exit_code}" if pod.main.exit_code is not None else "no exit code"
    reason = f" ({pod.main.reason})" if pod.main.reason not in ("", "Error") else ""
    return f"failed with {how}{reason}"


def has_failed(pod: OwnPod) -> bool:
    """Whether its main container ended badly by itself, or the pod without a word about it."""
    if pod.disrupted:
        return False
    return bool(pod.main.exit_code) or (pod.phase == "Failed" and pod.main.exit_code is None)


def was_told_to_go(pod: OwnPod) -> bool:
    """Whether the pod was asked to stop before its main container ended: its exit code then says nothing.

    The kubelet ends a deletion with another one, of no grace, and that moves the time: it says no more when the pod was
    asked. A pod that ended by itself is not seen so, since its deletion takes effect at once.
    """
    if pod.deleting_since is None:
        return False
    if pod.grace_seconds == 0:
        return True
    return pod.main.finished_at is None or pod.main.finished_at >= pod.deleting_since


def _disturbed(seen: Observation, failed_at: float) -> bool:
    """Whether a pod joined, left or was lost shortly before. The pods an incarnation begins with do not count."""
    changes = [seconds(c.time) for c in seen.status.history if c.from_ > 0 and c.to > 0]
    master = next((p for p in present(seen) if p.role == "master"), None)
    if master and master.main.running_since is not None:
        started = master.main.running_since
        changes += [p.main.running_since or 0.0 for p in present(seen) if p.created > started]
    changes += [p.deleting_since for p in present(seen) if p.deleting_since is not None]
    return any(0 <= failed_at - change <= DISTURBANCE_SECONDS for change in changes)


def _failed_at(pod: OwnPod) -> float:
    return pod.main.finished_at or inf
