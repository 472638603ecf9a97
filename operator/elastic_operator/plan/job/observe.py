"""Finds what has happened to one job since its status was written: ends, failures, losses, incarnations that are
over.

The input is the job's pods and its last status. The result is the status with the news recorded, and the pods that are
still members. Then `allocation` decides the job's grant, and `reconcile` plans the writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from elastic_api.status import Retry, RetryCause
from elastic_operator.plan.facts.job import Job
from elastic_operator.plan.facts.times import seconds
from elastic_operator.plan.job import elastic_rules, lifecycle
from elastic_operator.plan.job.avoided_nodes import avoiding
from elastic_operator.plan.job.classify_pods import classify_pods, classify_pods_without_spec
from elastic_operator.plan.job.failures import give_up_after_failure
from elastic_operator.plan.job.flapping import hold_if_flapping
from elastic_operator.plan.job.losses import record_lost_pods
from elastic_operator.plan.job.lost_nodes import find_lost_nodes
from elastic_operator.plan.job.not_started import delete_pods_not_started
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.resize import record_unwritten_evictions
from elastic_operator.plan.job.unplaceable import (
    back_off_after_rejection,
    delete_rejected_pods,
    delete_unschedulable_pods,
    recreate_misplaced_pods,
)
from elastic_operator.plan.job.warnings import warn

_Rule: TypeAlias = Callable[[Observation, float], Observation]


def observe(job: Job, now: float) -> Observation:
    """Observe the job. Of a deleted job only the status is taken."""
    obs = Observation(job, job.status)
    if job.deleted:
        return obs
    if not obs.status.incarnation:
        obs = obs.with_status(incarnation=1)
    if job.is_elastic and obs.status.master_epoch is None:
        obs = obs.with_status(master_epoch=1)
    if obs.status.finished:
        return obs
    if job.spec is None:
        return lifecycle.complete_on_success(classify_pods_without_spec(obs), now)
    incarnation, obs = obs.status.incarnation, classify_pods(find_lost_nodes(obs, now))
    for rule in _ELASTIC if job.is_elastic else _TORCHRUN:
        before, obs = obs.status, rule(obs, now)
        if obs.status is before:
            continue
        if obs.status.finished:
            return obs
        if obs.status.incarnation != incarnation:
            break
    return _back_off(obs, now)


def _back_off(obs: Observation, now: float) -> Observation:
    """Make the job wait, if a back-off says so. Between two incarnations the job keeps its place in the order. If it
    could not start, other jobs are served before it.

    If the job can start with fewer pods than the failed size, it does not wait: it trained on so few pods before, and
    has lost them.
    """
    obs = avoiding(obs, now)
    retry, failed = obs.status.retry, obs.status.failed_size
    waits = seconds(failed.not_before) if failed is not None and _is_needed(obs, failed) else 0.0
    no_pods_before = max(waits, seconds(retry.not_before) if retry else 0.0)
    return replace(obs, no_pods_before=no_pods_before, is_in_backoff=now < waits) if no_pods_before else obs


def _is_needed(obs: Observation, failed: Retry) -> bool:
    """Whether the job cannot start without the failed size."""
    if obs.members or failed.cause is RetryCause.NODES_NOT_PROVISIONED:
        return False
    return failed.size is None or failed.size <= obs.spec.minimum


def _rules(failures: Iterable[_Rule], losses: Iterable[_Rule]) -> tuple[_Rule, ...]:
    """The rules of a mode in their order, with its own rules about failures and lost pods."""
    return (
        lifecycle.end_backoff_after_edit,
        lifecycle.fail_after_deadline,
        lifecycle.complete_on_success,
        *failures,
        lifecycle.suspend,
        lifecycle.replace_outdated_pods,
        hold_if_flapping,
        warn,
        recreate_misplaced_pods,
        record_unwritten_evictions,
        *losses,
        delete_rejected_pods,
        back_off_after_rejection,
        delete_unschedulable_pods,
        delete_pods_not_started,
        lifecycle.forget_old_failures,
    )


_TORCHRUN = _rules([give_up_after_failure], [record_lost_pods])
_ELASTIC = _rules(
    [elastic_rules.fail_at_max_restarts, elastic_rules.handle_failed_pods],
    [elastic_rules.replace_lost_pods, elastic_rules.end_without_master],
)
