"""What has happened to one job since its status was written: ends, failures, losses, incarnations that are over.

The input is the job's pods and its last status. The result is the status with the news recorded, and the pods that are
still members. The allocator then says what the job gets (`allocation`), and `reconcile` what is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from elastic_api.status import ConditionType
from elastic_operator.plan.facts.decisions import Event
from elastic_operator.plan.facts.job import Job, OwnPod
from elastic_operator.plan.facts.roles import MASTER, master_first
from elastic_operator.plan.facts.text import pods
from elastic_operator.plan.facts.times import at, seconds
from elastic_operator.plan.job import elastic_rules
from elastic_operator.plan.job.active_time import active_for, holds_nodes
from elastic_operator.plan.job.avoided_nodes import avoiding
from elastic_operator.plan.job.failures import (
    FORGOTTEN,
    UNMARKED,
    give_up_after_failure,
    has_failed,
    has_progressed,
    short_failure,
    was_asked_to_go,
)
from elastic_operator.plan.job.flapping import hold_still
from elastic_operator.plan.job.losses import losses
from elastic_operator.plan.job.observation import (
    Observation,
    end_incarnation,
    fail,
    is_superseded,
    present,
    record,
    replace_all,
    set_condition,
)
from elastic_operator.plan.job.still_training import fresh_until, still_training
from elastic_operator.plan.job.survivors import ASK_SECONDS, decided_at, survivors
from elastic_operator.plan.job.unplaceable import blocked, not_started, refused, shut_out, stuck, takes_from
from elastic_operator.plan.job.warnings import warn

STEADY_SECONDS = 600.0
"""Running this long without another one forgets earlier failures and waits."""
MOST_WAITS_ENDED = 5
"""This many edits end a job's wait for what could not be had (136)."""


def observe(job: Job, unready_since: Mapping[str, float], now: float) -> Observation:
    """What has happened to `job`. `unready_since` has the nodes that are not Ready, and since when.

    The time is -inf for a node that somebody has tainted as out of service.
    """
    status = job.status if job.status.incarnation else job.status.model_copy(update={"incarnation": 1})
    if job.spec is not None and job.spec.is_elastic and status.master_epoch is None:
        status = status.model_copy(update={"master_epoch": 1})
    obs = Observation(job=job, status=status)
    if status.finished or job.deleted:
        return obs
    if job.spec is None:
        return _success(_sort_unread(obs), now)
    obs = _sort_pods(_judge_nodes(obs, unready_since, now), unready_since)
    for rule in _ELASTIC if job.spec.is_elastic else _TORCHRUN:
        before, obs = obs.status, rule(obs, now)
        if obs.status is before:
            continue
        if obs.status.finished:
            return obs
        if obs.status.incarnation != status.incarnation:
            break
    return _hold(obs, now)


def _hold(obs: Observation, now: float) -> Observation:
    """A job between two incarnations keeps its place while it waits. One that could not start lets others pass."""
    obs = avoiding(obs, now)
    retry = obs.status.retry
    if retry is None or retry.waits_for or (retry.size is not None and obs.live):
        return obs
    until = seconds(retry.not_before)
    return replace(obs, hold_until=until, held_back=retry.size is not None and now < until)


def _judge_nodes(obs: Observation, unready_since: Mapping[str, float], now: float) -> Observation:
    """Which nodes of its pods are not Ready, which of these are given up (86, 92 and 146), and when that may change."""
    assert obs.job.spec is not None
    patience, disruption = obs.job.spec.recovery.node_loss_seconds, obs.job.disruption
    unready = {node: unready_since[node] for pod in obs.job.pods if (node := pod.node) and node in unready_since}
    if not unready:
        return obs
    due = {node: since + patience for node, since in unready.items() if now >= since + patience}
    kept = disruption.kept & due.keys() if disruption else frozenset()
    asked_about = {node: time for node, time in due.items() if node not in kept and time > -inf}
    training = still_training(obs.job, obs.status, asked_about, now) if asked_about else frozenset()
    obs = _ask_the_others(obs, unready, now)
    decided = decided_at(obs.job, obs.asked, now)
    undecided = frozenset(asked_about) if now < decided else frozenset()
    wake = {node: since + patience for node, since in unready.items() if node not in due}
    wake |= dict.fromkeys(training, fresh_until(obs.job, now))
    wake |= dict.fromkeys(undecided, decided)
    wake |= dict.fromkeys(kept, disruption.until if disruption else inf)
    return replace(
        obs,
        unready_nodes=frozenset(unready),
        lost_nodes=frozenset(due) - kept - training - undecided,
        kept_nodes=kept,
        training_nodes=training,
        wake_at=(*obs.wake_at, *(time for time in wake.values() if time < inf)),
    )


def _ask_the_others(obs: Observation, unready: Mapping[str, float], now: float) -> Observation:
    """Start to read the logs of the job's pods on Ready nodes (146), or note when that is to begin."""
    assert obs.job.spec is not None
    left = survivors(obs.job, obs.status, unready)
    if left is None:
        return obs
    patience, disruption = obs.job.spec.recovery.node_loss_seconds, obs.job.disruption
    times = [time for node, time in unready.items() if disruption is None or node not in disruption.kept]
    begins = min(times, default=inf) + patience - ASK_SECONDS
    if now < begins:
        return replace(obs, wake_at=(begins,) if begins < inf else ())
    return replace(obs, asked=left)


def _sort_pods(obs: Observation, unready_since: Mapping[str, float]) -> Observation:
    """Sort the pods into members and pods that must go, each with the reason."""
    assert obs.job.spec is not None
    live: list[OwnPod] = []
    gone: list[tuple[OwnPod, str]] = []
    for pod in sorted(obs.job.pods, key=master_first):
        if pod.node and pod.node in obs.lost_nodes and not pod.ended:
            gone.append((pod, _why_lost(obs, pod.node, unready_since[pod.node])))
        elif pod.deleting_since is not None:
            continue
        elif pod.incarnation != obs.status.incarnation:
            gone.append((pod, f"incarnation {pod.incarnation} is over"))
        elif is_superseded(pod, obs.status):
            gone.append((pod, f"it is master {pod.master_epoch}, and there is a newer one"))
        elif pod.ended and pod.disrupted:
            gone.append((pod, pod.disrupted))
        elif obs.job.spec.is_elastic and pod.role != MASTER and has_failed(pod):
            gone.append((pod, short_failure(pod)))
        elif not pod.ended:
            live.append(pod)
    finishing = any(p.main.exit_code == 0 and not was_asked_to_go(p) for p in present(obs))
    return replace(obs, live=tuple(live), gone=tuple(gone), finishing=finishing)


def _sort_unread(obs: Observation) -> Observation:
    """Sort the pods of a job without a readable spec: members stay, pods of an earlier incarnation go (99)."""
    pods = sorted(obs.job.pods, key=master_first)
    staying = [pod for pod in pods if pod.deleting_since is None]
    old = [pod for pod in staying if pod.incarnation != obs.status.incarnation]
    live = tuple(pod for pod in staying if pod not in old and not pod.ended)
    return replace(obs, live=live, gone=tuple((pod, f"incarnation {pod.incarnation} is over") for pod in old))


def _why_lost(obs: Observation, node: str, since: float) -> str:
    assert obs.job.spec is not None
    patience = obs.job.spec.recovery.node_loss_seconds
    return f"node {node} is out of service" if since == -inf else f"node {node} has been unreachable for {patience} s"


def _deadline(obs: Observation, now: float) -> Observation:
    """Only time with pods counts: a job that waits for GPUs of others is not late by its own fault (135)."""
    assert obs.job.spec is not None
    limit = obs.job.spec.active_deadline_seconds
    if limit is None:
        return obs
    holds = holds_nodes(obs)
    left = limit - active_for(obs.status, holds=holds, now=now)
    if left > 0:
        return replace(obs, wake_at=(*obs.wake_at, now + left)) if holds else obs
    return fail(obs, now, "DeadlineExceeded", f"activeDeadlineSeconds ({limit}) passed; raise it to run longer.")


def _success(obs: Observation, now: float) -> Observation:
    """The exit code of the master's main container decides. It says nothing if the pod was asked to go before (18)."""
    for pod in present(obs):
        if pod.role == MASTER and pod.main.exit_code == 0 and not was_asked_to_go(pod):
            told = "The master finished with exit code 0."
            status = obs.status.model_copy(update={"completion_time": at(now), "retry": None})
            status = set_condition(status, ConditionType.SUCCEEDED, "True", "Succeeded", told, obs.job.generation, now)
            event = Event("Succeeded", told)
            return replace(obs, status=status, commit=True, events=(*obs.events, event))
    return obs


def _suspension(obs: Observation, now: float) -> Observation:
    assert obs.job.spec is not None
    if not obs.job.spec.suspend or not obs.live:
        return obs
    status = record(obs.status, now, len(obs.live), 0, "Suspended", "spec.suspend is true")
    event = Event("ScaledDown", f"Suspended: {pods(len(obs.live))} stopped.")
    return replace_all(obs, end_incarnation(status, target_replicas=0, retry=None, **UNMARKED), event)


def _outdated(obs: Observation, now: float) -> Observation:
    """Replace pods of an older template: the job was suspended, changed and resumed between two looks (19)."""
    wanted = obs.job.fingerprints
    if not any(pod.template and pod.template != wanted.get(pod.role, pod.template) for pod in obs.live):
        return obs
    status = record(obs.status, now, len(obs.live), 0, "Suspended", "the template was changed")
    event = Event("NewIncarnation", "The template was changed while suspended; all pods are replaced.")
    return replace_all(obs, end_incarnation(status, target_replicas=0, retry=None, **UNMARKED), event)


def _steady(obs: Observation, now: float) -> Observation:
    """Progress ends a row of failures; ten minutes of running do if progress cannot be told (135).

    A wait is forgotten ten minutes after its time has come (87).
    """
    status = obs.status
    if status.running_since is None:
        return obs
    running_since = seconds(status.running_since)
    progressed = has_progressed(status)
    if status.failures and progressed:
        obs = replace(obs, status=status.model_copy(update=FORGOTTEN))
    elif status.failures and progressed is None:
        obs = _forgets(obs, now, running_since, **FORGOTTEN)
    if status.waits_ended_by_edits:
        obs = _forgets(obs, now, running_since, waits_ended_by_edits=None)
    if status.retry:
        obs = _forgets(
            obs, now, max(running_since, seconds(status.retry.not_before), takes_from(status.retry)), retry=None
        )
    return obs


def _forgets(obs: Observation, now: float, since: float, **fields: object) -> Observation:
    """The job with these fields of its status, if it has been quiet for long enough since then."""
    due = since + STEADY_SECONDS
    if now < due:
        return replace(obs, wake_at=(*obs.wake_at, due))
    return replace(obs, status=obs.status.model_copy(update=fields))


def _edited(obs: Observation, now: float) -> Observation:  # noqa: ARG001 - a rule like the others
    """An edit of a job without pods, or its suspension, ends its wait for what could not be had (136).

    Only a few edits do, until it has run for a while. Else a script that edits a job which cannot start, again and
    again, would have it create pods and hold GPUs for ever.
    """
    retry, ended = obs.status.retry, obs.status.waits_ended_by_edits or 0
    if retry is None or retry.size is None or obs.live or obs.job.generation == obs.status.observed_generation:
        return obs
    if ended >= MOST_WAITS_ENDED:
        told = f"{ended} edits have ended a wait of this job since it last ran for ten minutes: the wait goes on."
        return replace(obs, events=(*obs.events, Event("ScaleUpBlocked", told)))
    return replace(obs, status=obs.status.model_copy(update={"retry": None, "waits_ended_by_edits": ended + 1}))


_TORCHRUN = (
    _edited,
    _deadline,
    _success,
    give_up_after_failure,
    _suspension,
    _outdated,
    hold_still,
    warn,
    shut_out,
    losses,
    refused,
    blocked,
    stuck,
    not_started,
    _steady,
)
_ELASTIC = (
    _edited,
    _deadline,
    _success,
    elastic_rules.over_after_restarts,
    elastic_rules.failure,
    _suspension,
    _outdated,
    hold_still,
    warn,
    shut_out,
    elastic_rules.losses,
    elastic_rules.absence,
    refused,
    blocked,
    stuck,
    not_started,
    _steady,
)
