"""The conditions of a job: one word and one sentence for each question a user asks.

`Ready` is the STATUS column, `FullSize` the LIMITED BY column. Truth values are kstatus's, so that `kubectl wait`,
Flux and Argo CD understand them: a job that can get no further without a person is Ready=False and Stalled=True.
"""

from __future__ import annotations

from elastic_api.leftovers import removal
from elastic_api.status import LOST, ConditionType, Phase, Retry, RetryCause, SizeReason, rfc3339
from elastic_operator.plan.facts.decisions import Grant
from elastic_operator.plan.facts.text import Reason, joined, listed, pods, pods_are, sentence
from elastic_operator.plan.facts.times import round_up, status_time
from elastic_operator.plan.facts.waits import whole_preemption
from elastic_operator.plan.job.flapping import why_held
from elastic_operator.plan.job.lifecycle import edit_ends_backoff
from elastic_operator.plan.job.master_report import awaits_first_report, is_whole, keeps_status, report_of
from elastic_operator.plan.job.observation import NodeState, Observation, is_running
from elastic_operator.plan.job.pending_reasons import why_pods_wait
from elastic_worker.contract import ROLE_MASTER

READY_TRUE = frozenset({Phase.RUNNING, Phase.RESIZING, Phase.DEGRADED, Phase.SUSPENDED, Phase.SUCCEEDED})
STALLED = frozenset({Phase.FAILED, Phase.INVALID_SPEC})
MET = frozenset({Phase.RUNNING, Phase.RESIZING, Phase.DEGRADED})
"""The phases of a job whose pods have formed a group."""


def with_conditions(obs: Observation, grant: Grant | None, now: float) -> Observation:
    """The observation with all conditions. Its status must have its counts; its members are the pods that stay."""
    ready, status, granted = _phase(obs, grant, now), obs.status, obs.status.target_replicas
    phase, stalled = ready.code, ready.code in STALLED
    suspended = Reason("Suspended", "spec.suspend is true.") if obs.job.is_suspended else Reason("NotSuspended", "")
    admitted = Reason("Admitted", f"The job is granted {pods(granted)}.") if granted else Reason("NotAdmitted", "")
    resizing: Reason | None = None
    if phase == Phase.RESIZING and status.history:
        last = status.history[0]
        resizing = Reason(last.reason, f"The size changes from {last.from_} to {pods(last.to)}.")
    answers: list[tuple[ConditionType, bool, Reason]] = [
        (ConditionType.READY, phase in READY_TRUE, ready),
        (ConditionType.STALLED, stalled, ready if stalled else Reason("Progressing", "")),
        (ConditionType.SUSPENDED, phase == Phase.SUSPENDED, suspended),
        (ConditionType.ADMITTED, granted > 0, admitted),
        (ConditionType.RESIZING, resizing is not None, resizing or Reason("Steady", "")),
    ]
    if not status.finished:
        answers += [
            (ConditionType.FULL_SIZE, *_full_size(obs, grant)),
            (ConditionType.SUCCEEDED, False, Reason("NotFinished", "")),
            (ConditionType.FAILED, False, Reason("NotFailed", "")),
        ]
    else:
        others = [c for c in status.conditions if c.type != ConditionType.FULL_SIZE]
        obs = obs.with_status(conditions=others)
    return obs.with_conditions(answers, now)


def _phase(obs: Observation, grant: Grant | None, now: float) -> Reason:
    """The reason of Ready; its code is a `Phase`."""
    status, job = obs.status, obs.job
    for kind, phase in ((ConditionType.FAILED, Phase.FAILED), (ConditionType.SUCCEEDED, Phase.SUCCEEDED)):
        outcome = status.condition(kind)
        if status.finished and outcome and outcome.status == "True":
            return Reason(phase, outcome.message)
    if job.needs_edit:
        return Reason(Phase.INVALID_SPEC, _why_it_needs_an_edit(obs))
    if job.spec is None or job.spec.suspend:
        stopping = sum(not pod.ended for pod in job.pods)
        return Reason(
            Phase.SUSPENDED,
            f"{pods_are(stopping)} still stopping." if stopping else "Set spec.suspend to false to resume.",
        )
    if obs.is_in_backoff and status.failed_size:
        return Reason(Phase.QUEUED, _why_in_backoff(obs, status.failed_size))
    if not obs.members and (held := why_held(status)):
        return Reason(Phase.QUEUED, held)
    if now < obs.no_pods_before and status.retry:
        wait = round_up(obs.no_pods_before - now)
        again = joined(status.retry.reason, f"The operator retries in about {max(5, -(-wait // 5) * 5)} s.")
        return Reason(Phase.DEGRADED if _enough(obs) else Phase.RESTARTING, again)
    if job.feedback.write_error:
        return Reason(
            Phase.DEGRADED if _enough(obs) else Phase.STARTING, _left_behind(obs) or sentence(job.feedback.write_error)
        )
    asks = grant is not None and grant.size_reason.code == SizeReason.WAITING_FOR_NODES
    if status.target_replicas == 0 or (asks and not any(map(is_running, obs.members))):
        preemption = whole_preemption(status)  # its message names the preemptors
        texts = (grant.message if grant else "", preemption.message if preemption else "", _left_behind(obs))
        return Reason(Phase.QUEUED, joined(*texts))
    return _group_phase(obs, now)


def _why_it_needs_an_edit(obs: Observation) -> str:
    """The mistakes in the job's spec, and the fate of its pods until the spec is corrected."""
    if not obs.members:
        return sentence(obs.job.needs_edit)
    return joined(
        obs.job.needs_edit, f"Until the job is edited, it continues with {pods(len(obs.members))} and gets no more."
    )


def _why_in_backoff(obs: Observation, failed: Retry) -> str:
    """Why a job without pods waits, until when, and whether an edit ends the wait."""
    again = f"The operator retries at {rfc3339(failed.not_before)}"
    return joined(failed.reason, f"{again}, or at once after an edit of the job." if edit_ends_backoff(obs) else again)


def _group_phase(obs: Observation, now: float) -> Reason:
    """The phase of a job that has its grant: the progress of its group."""
    status = obs.status
    running = sum(is_running(pod) for pod in obs.members)
    text = f"{running} of {pods(status.target_replicas)} {'runs' if running == 1 else 'run'}."
    why_not_ready = " ".join(filter(None, [*why_pods_wait(obs, now), _name_in_use(obs), _left_behind(obs)]))
    text = f"{text} {why_not_ready}".strip() + _kept(obs)
    if not _enough(obs):
        if running == 0:
            again = status.incarnation > 1 and status.restarts > 0
            return Reason(Phase.RESTARTING if again else Phase.STARTING, text)
        until = f"the minimum of {obs.spec.minimum} runs" if status.master_lost_time is None else "a new master runs"
        return Reason(Phase.RENDEZVOUSING, f"{text} Training waits until {until}.")
    run = "runs" if status.target_replicas == 1 else "run"
    all_run = f"{pods(status.target_replicas)} {run} with world size {status.world_size}."
    if (kept := _kept_phase(obs, text, all_run)) is not None:
        return kept
    if not _have_met(obs, now):
        report = report_of(obs)
        why = report.reason if report and report.reason else "The pods have not formed a group yet"
        return Reason(Phase.RENDEZVOUSING, joined(text, why))
    if obs.finishing or (_is_settled(obs) and is_whole(obs, now)):
        return Reason(Phase.RUNNING, f"{all_run}{_failed_before(obs)}{_silence(obs)}{_kept(obs)}")
    lost = bool(status.history) and status.history[0].reason in LOST
    return Reason(Phase.DEGRADED if lost or why_not_ready else Phase.RESIZING, text)


def _kept_phase(obs: Observation, *texts: str) -> Reason | None:
    """The reason of Ready as the last leader wrote it, if the status keeps it: it still begins with one of these texts
    about the pods.
    """
    ready = obs.status.condition(ConditionType.READY)
    if ready is None or not keeps_status(obs) or not _is_settled(obs) or not ready.message.startswith(texts):
        return None
    return Reason(ready.reason, ready.message)


def _failed_before(obs: Observation) -> str:
    """How the last start failed, until the failure is forgotten: running pods do not prove that the script works.

    The last failure may be one that does not count (13), so it has no number.
    """
    status, retry = obs.status, obs.status.retry
    if retry is None or retry.cause is not RetryCause.POD_FAILED or not status.failures:
        return ""
    limit = max(1, obs.spec.recovery.max_failures_without_progress)
    times = "once" if status.failures == 1 else f"{status.failures} times"
    so_far = f"The job has failed {times} without progress, and ends at {limit}."
    return f" {joined(so_far, f'The last failure was: {retry.reason}')}"


def _silence(obs: Observation) -> str:
    """A sentence if the state of the training is unknown; else ""."""
    report = report_of(obs)
    if report is None or report.silent_since is None:
        return ""
    since = rfc3339(status_time(report.silent_since))
    return (
        f" The master has not answered since {since}. The operator does not know whether it trains. Look at the"
        " master's log and node."
    )


def _kept(obs: Observation) -> str:
    """A sentence if nodes are not Ready and not given up: too many are not Ready (86), or the pods there train (92)."""
    if training := obs.nodes_in(NodeState.TRAINING):
        return (
            f" These nodes are not Ready: {listed(training)}. The job's pods there still train, so"
            " the operator keeps them."
        )
    kept = obs.nodes_in(NodeState.KEPT)
    if not kept or obs.job.context.node_outage is None:
        return ""
    many = f"{obs.job.context.node_outage.unready} of {obs.job.context.node_outage.total} nodes"
    return f" {many} are not Ready, {listed(kept)} among them. The operator keeps the job's pods there for now."


def _enough(obs: Observation) -> bool:
    """Whether the minimum runs, and does not wait for a new master."""
    return obs.status.master_lost_time is None and sum(map(is_running, obs.members)) >= obs.spec.minimum


def _have_met(obs: Observation, now: float) -> bool:
    """Whether a group has formed, by the report of an Elastic job's master."""
    report, ready = report_of(obs), obs.status.condition(ConditionType.READY)
    if keeps_status(obs):
        return ready is not None and ready.reason in MET
    if report is None:
        return not awaits_first_report(obs, now)
    return report.state != "Waiting" or report.world_size > 0


def _is_settled(obs: Observation) -> bool:
    """Whether all pods of the wanted size run, and none leaves."""
    leaving = any(
        (pod.deleting_since is not None or pod.uid in obs.planned_deletions) and not pod.ended for pod in obs.job.pods
    )
    all_run = len(obs.members) == obs.status.target_replicas and all(map(is_running, obs.members))
    return all_run and not leaving


def _name_in_use(obs: Observation) -> str:
    """A sentence on the previous master, while a start waits until its name is free."""
    terminating = [pod.name for pod in obs.job.pods if pod.role == ROLE_MASTER and pod.deleting_since is not None]
    if not terminating or obs.members:
        return ""
    return f"{terminating[0]} is still being deleted. The job continues when it is deleted."


def _left_behind(obs: Observation) -> str:
    """A sentence on foreign pods that use names of the job's pods while the job has no pods, with the remedy (82)."""
    if obs.members or not obs.job.foreign_names:
        return ""
    job, names = obs.job, sorted(obs.job.foreign_names)
    one = "does not belong to this job, but has a name"
    what = one if len(names) == 1 else "do not belong to this job, but have names"
    return (
        f"{listed(names)} {what} that this job needs. This command deletes what an earlier job of this name left"
        f" behind: `{removal(job.namespace, job.name, job.uid)}`."
    )


def _full_size(obs: Observation, grant: Grant | None) -> tuple[bool, Reason]:
    """Whether the job has its full size, and why it is not bigger or not running."""
    if obs.job.needs_edit:
        return False, Reason(Phase.INVALID_SPEC, _why_it_needs_an_edit(obs))
    if obs.job.is_suspended:
        return False, Reason(SizeReason.SUSPENDED, "spec.suspend is true. Set it to false to resume.")
    if held := why_held(obs.status):
        return False, Reason(SizeReason.CHANGED_TOO_OFTEN, held)
    condition = obs.status.condition(ConditionType.FULL_SIZE)
    if obs.finishing and condition:
        return condition.status == "True", Reason(condition.reason, condition.message)
    failed = obs.status.failed_size
    if failed and obs.is_in_backoff:
        return False, Reason(SizeReason.SCALE_UP_FAILED, _why_in_backoff(obs, failed))
    assert grant is not None, "only suspended, backing-off and unreadable jobs have no grant"
    return grant.size_reason.code == SizeReason.AT_MAXIMUM, grant.size_reason
