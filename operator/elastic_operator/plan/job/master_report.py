"""Puts the group of an Elastic job into its status, from its master's report (`facts/group_report.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from elastic_api.status import MAX_METRICS, Change, ChangeReason, JobStatus, Metric, Training
from elastic_api.template import nproc_of
from elastic_api.times import span
from elastic_operator.attempts import lasts
from elastic_operator.plan.facts.decisions import Event, EventReason
from elastic_operator.plan.facts.group_report import GroupChange, GroupReport
from elastic_operator.plan.facts.text import pods
from elastic_operator.plan.facts.times import seconds, status_time
from elastic_operator.plan.job.observation import Observation, is_running, master_of
from elastic_worker.contract import ROLE_WORKER

MEASURED_SECONDS = 30.0
"""The first step after a change shows how long the pause was. Its report is awaited for no longer than this."""
TRAINING_SECONDS = 20.0
"""The progress of the training is written no more often than this."""
FIRST_REPORT_SECONDS = 60.0
"""A launcher answers soon after its container runs; if it has not within this time, it may be out of reach for good."""
FAILURE = "Failure"
"""The reason of a group's change that was caused by a failure of the script."""
CLOCKS_APART_SECONDS = 60.0
"""A reported change may be this much earlier than in the history: clocks differ, and pods notice changes sooner."""


def report_of(obs: Observation) -> GroupReport | None:
    """The report of the master, if the master is a member; None without a credible report."""
    report, master = obs.job.feedback.report, master_of(obs)
    if report is None or master is None or not obs.job.is_elastic:
        return None
    return report if report.master_uid == master.uid else None


def merge_report(obs: Observation, now: float) -> Observation:
    """Put the report into the status: the training, the generation, and the cost of the latest change."""
    report = report_of(obs)
    if report is None:
        return obs.again_at(first_report_due(obs))
    if obs.finishing:
        return obs
    obs = obs.with_status(training=_training(obs.status, report), history=_with_costs(obs.status, report))
    latest = next((change for change in report.changes if change.generation == report.generation), None)
    if report.generation == (obs.status.membership_generation or 0):
        return obs
    measured_by = report.read_at + MEASURED_SECONDS
    may_be_measured = latest is not None and latest.pause_seconds is None and latest.before > 0
    if may_be_measured and report.state == "Running" and now < measured_by:
        return obs.again_at(measured_by)
    failed = obs.status.total_failures + new_failures(obs)
    obs = obs.with_status(membership_generation=report.generation, total_failures=failed)
    return obs.with_event(_formed(report, latest)) if report.members else obs


def new_failures(obs: Observation) -> int:
    """How many groups were formed after a failure since the generation in the status.

    Each incarnation counts its groups from 1.
    """
    report, known = report_of(obs), obs.status.membership_generation or 0
    if report is None or report.generation == known:
        return 0
    since = known if report.generation > known else 0
    return sum(change.reason == FAILURE and change.generation > since for change in report.changes)


def first_report_due(obs: Observation) -> float:
    """Until when (epoch seconds) a running master's first report is awaited; 0.0 if no report is awaited."""
    master = master_of(obs)
    if not obs.job.is_elastic or master is None or not is_running(master) or report_of(obs) is not None:
        return 0.0
    return (master.main.running_since or 0.0) + FIRST_REPORT_SECONDS


def awaits_first_report(obs: Observation, now: float) -> bool:
    """Whether a running master's first report is still awaited."""
    return lasts(first_report_due(obs), FIRST_REPORT_SECONDS, now)


def keeps_status(obs: Observation) -> bool:
    """Whether the status keeps what it says of the group, because a new leader has not asked the running master for
    long.
    """
    return obs.job.feedback.report_pending and first_report_due(obs) > 0.0


def is_whole(obs: Observation, now: float) -> bool:
    """Whether all members train, by the report. A group without a report for a minute counts as whole."""
    report = report_of(obs)
    if report is None:
        return not (keeps_status(obs) or awaits_first_report(obs, now))
    if report.world_size and not report.members:
        return True
    return set(report.members) == {pod.name for pod in obs.members}


def first_ranks(obs: Observation) -> dict[str, int]:
    """The rank of the first training process of each pod that trains, by the pod's name."""
    report = report_of(obs)
    if keeps_status(obs):
        members = {pod.uid for pod in obs.members}
        return {pod.name: pod.rank for pod in obs.status.pods if pod.uid in members and pod.rank is not None}
    if report is None:
        return {}
    role_of = {pod.name: pod.role for pod in obs.members}
    counts = (nproc_of(obs.spec, role_of.get(name, ROLE_WORKER)) for name in report.members)
    return dict(zip(report.members, accumulate(counts, initial=0), strict=False))


def _training(status: JobStatus, report: GroupReport) -> Training | None:
    """The training as reported, or the one in the status if that was written recently: a change of the group should not
    write each new step.

    If the status has no remaining time and the report has one, the report is used: the pace is known only from the
    second report on.
    """
    known, left = status.training, report.estimated_remaining_seconds
    is_first = left is not None and known is not None and known.estimated_remaining_seconds is None
    if known is not None and not is_first and 0 <= report.read_at - seconds(known.last_updated_time) < TRAINING_SECONDS:
        return known
    training = Training(
        step=report.step,
        epoch=report.epoch,
        samples_seen=report.samples_seen,
        last_checkpoint_step=report.last_checkpoint_step,
        checkpoint_error=report.checkpoint_error,
        goodput=round(report.goodput.share, 3) if report.goodput is not None else None,
        progress_percentage=report.progress_percentage,
        estimated_remaining_seconds=left,
        eta=span(left) if left is not None else None,
        metrics=[Metric(name=name, value=value) for name, value in _metrics(report)][:MAX_METRICS],
    )
    if training == Training():
        return None
    return training.model_copy(update={"last_updated_time": status_time(report.read_at)})


def _metrics(report: GroupReport) -> Iterator[tuple[str, str]]:
    """The metrics that the script reports. The library's loss comes first, unless the script reports one."""
    if report.loss is not None and "loss" not in dict(report.metrics):
        yield "loss", f"{report.loss:.6g}"
    yield from report.metrics


def _with_costs(status: JobStatus, report: GroupReport) -> list[Change]:
    """The history, in which each change of a running group has its cost once the cost is reported.

    The newest change is looked up first, then earlier ones, because the next change may be decided before the cost is
    reported.
    """
    history = list(status.history)
    reported = [one for one in reversed(report.changes) if one.generation >= (status.membership_generation or 0)]
    for index, change in enumerate(history):
        resized = change.from_ > 0 and change.to > 0
        found = next((one for one in reported if resized and _is_of(one, change)), None)
        if found is None:
            continue
        if change.pause_seconds is None:
            cost = {"pause_seconds": found.pause_seconds, "lost_steps": found.lost_steps}
            history[index] = change.model_copy(update=cost)
        reported = [one for one in reported if one.generation < found.generation]
    return history


def _is_of(reported: GroupChange, change: Change) -> bool:
    """Whether this change of the group, which is newer than the known generation, is that change in the history."""
    in_time = reported.time >= seconds(change.time) - CLOCKS_APART_SECONDS and reported.pause_seconds is not None
    if reported.reason == change.reason == ChangeReason.MASTER_LOST:
        return in_time
    same_way = (reported.after > reported.before) == (change.to > change.from_) and reported.after != reported.before
    return in_time and same_way and reported.after == change.to


def _formed(report: GroupReport, latest: GroupChange | None) -> Event:
    processes = "1 process" if report.world_size == 1 else f"{report.world_size} processes"
    because = f" because of {latest.reason}" if latest is not None else ""
    texts = [f"Generation {report.generation} has formed{because}: {pods(len(report.members))} with {processes}."]
    if latest is not None and latest.pause_seconds is not None:
        texts.append(f"No step ran for {latest.pause_seconds:g} s.")
    if latest is not None and latest.lost_steps:
        steps = "1 step is" if latest.lost_steps == 1 else f"{latest.lost_steps} steps are"
        texts.append(f"{steps} repeated.")
    return Event(EventReason.GENERATION_FORMED, " ".join(texts))
