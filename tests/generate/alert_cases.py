"""What is scraped, and which alerts fire then: at least one case for each alert that fires, and one that does not.

Series are in promtool's notation, one sample a minute: `1x30` is 1 for half an hour, `0+2x30` grows by 2 a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TOY = 'namespace="team-a",job_name="toy"'
OVERCOMMITTED = 'elastic_pytorch_quota_condition{condition="Overcommitted",policy="team-a"}'
IS_TOY = {"namespace": "team-a", "job_name": "toy"}


@dataclass(frozen=True, slots=True)
class Case:
    """One history. `fires` are the labels of each alert of that name, besides its own, at the end of it."""

    alert: str
    what: str
    series: dict[str, str]
    minutes: int
    fires: tuple[dict[str, str], ...] = field(default=())


def of_toy(metric: str, **labels: str) -> str:
    """The name of a series of one job, as an operator's pod tells it."""
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f'elastic_pytorch_{metric}{{{TOY}{more},pod="operator-1"}}'


def status(phase: str, history: str = "1x120") -> dict[str, str]:
    """A job whose STATUS is this one."""
    return {of_toy("job_status", status=phase, limited_by="AtMaximum"): history}


def pods(*, running: str, minimum: str = "2x120") -> dict[str, str]:
    """How many pods run, and must."""
    return {of_toy("job_pods", state="running"): running, of_toy("job_pods", state="minimum"): minimum}


def quota(*, pending: str, used: str, guaranteed: str = "8x120") -> dict[str, str]:
    """A team's GPUs."""
    kinds = {"pending": pending, "used": used, "guaranteed": guaranteed}
    name = 'elastic_pytorch_quota_gpus{{policy="team-a",flavor="default",kind="{}"}}'
    return {name.format(kind): history for kind, history in kinds.items()}


def reclaims(seconds: str) -> dict[str, str]:
    """One GPU given back each minute, each after so many seconds."""
    bounds = ("10", "60", "300", "+Inf")
    name = 'elastic_pytorch_reclaim_seconds_bucket{{le="{}"}}'
    return {name.format(le): "0+1x120" if le == "+Inf" or float(seconds) <= float(le) else "0x120" for le in bounds}


def leaders(first: str, second: str) -> dict[str, str]:
    """Two replicas, and when each leads."""
    return {
        f'elastic_pytorch_leader{{pod="operator-{n}"}}': history for n, history in enumerate((first, second), start=1)
    }


def requests(verb: str, code: str, history: str) -> dict[str, str]:
    """Requests to the API server with one outcome, beside those that succeed: ten a minute."""
    name = 'elastic_pytorch_api_requests_total{{verb="{}",code="{}"}}'
    return {name.format("GET", "200"): "0+10x120", name.format(verb, code): history}


_TEAM_A = {"policy": "team-a", "flavor": "default"}

CASES = (
    Case("JobStuckForming", "starts for 20 min", status("Starting") | pods(running="0x120"), 20, (IS_TOY,)),
    Case("JobStuckForming", "resizes for 20 min", status("Resizing") | pods(running="3x120"), 20, (IS_TOY,)),
    Case("JobStuckForming", "starts for 10 min", status("Starting") | pods(running="0x120"), 10),
    Case("JobStuckForming", "is queued", status("Queued") | pods(running="0x120"), 60),
    Case("JobStuckForming", "lacks a pod: another alert's", status("Rendezvousing") | pods(running="1x120"), 60),
    Case(
        "JobStuckForming",
        "is limited by something else meanwhile",
        {
            of_toy("job_status", status="Starting", limited_by="AtMaximum"): "1x9 _x60",
            of_toy("job_status", status="Starting", limited_by="GPUsFragmented"): "_x10 1x60",
        },
        20,
        (IS_TOY,),
    ),
    Case("JobBelowMinimum", "lacks one", status("Rendezvousing") | pods(running="1x120"), 20, (IS_TOY,)),
    Case("JobBelowMinimum", "has its minimum", status("Degraded") | pods(running="2x120"), 60),
    Case("JobBelowMinimum", "has none and waits", status("Queued") | pods(running="0x120"), 60),
    Case("JobBelowMinimum", "ends", status("Succeeded") | pods(running="1x120"), 60),
    Case("JobBelowMinimum", "lacked one for 10 min", status("Running") | pods(running="1x10 2x60"), 30),
    Case(
        "JobNoStepProgress",
        "made its last step an hour ago",
        status("Running") | {of_toy("job_last_progress_timestamp_seconds"): "0x120"},
        60,
        (IS_TOY,),
    ),
    Case(
        "JobNoStepProgress",
        "makes steps",
        status("Running") | {of_toy("job_last_progress_timestamp_seconds"): "0+60x120"},
        60,
    ),
    Case(
        "JobNoStepProgress",
        "waits in the queue",
        status("Queued") | {of_toy("job_last_progress_timestamp_seconds"): "0x120"},
        60,
    ),
    Case(
        "JobRestarting",
        "restarts every 10 min",
        {of_toy("job_restarts_total"): "0x9 1x9 2x9 3x9 4x9 5x60"},
        55,
        (IS_TOY,),
    ),
    Case("JobRestarting", "restarted twice", {of_toy("job_restarts_total"): "0x9 1x9 2x90"}, 55),
    Case(
        "JobRestarting",
        "restarted often before this operator led",
        {of_toy("job_restarts_total"): "_x10 50x90"},
        55,
    ),
    Case(
        "JobFlapping",
        "is held",
        {of_toy("job_status", status="Running", limited_by="ChangedTooOften"): "_x5 1x10"},
        10,
        (IS_TOY,),
    ),
    Case("JobFlapping", "is limited by something else", status("Running"), 10),
    Case("PolicyBelowGuarantee", "waits below it", quota(pending="4x120", used="4x120"), 20, (_TEAM_A,)),
    Case("PolicyBelowGuarantee", "waits above it", quota(pending="4x120", used="8x120"), 60),
    Case("PolicyBelowGuarantee", "waits for nothing", quota(pending="0x120", used="4x120"), 60),
    Case("PolicyOvercommitted", "holds", {OVERCOMMITTED: "0x5 1x30"}, 20, ({"policy": "team-a"},)),
    Case("PolicyOvercommitted", "held for a moment", {OVERCOMMITTED: "0x5 1x5 0x30"}, 20),
    Case("ReclaimSlow", "takes 250 s", reclaims("250"), 60, ({},)),
    Case("ReclaimSlow", "takes 50 s", reclaims("50"), 60),
    Case("ReclaimSlow", "is never asked for", dict.fromkeys(reclaims("50"), "0x120"), 60),
    Case("ReclaimStopped", "some wait", {"elastic_pytorch_reclaim_too_large": "0x5 2x10"}, 12, ({},)),
    Case("ReclaimStopped", "some waited", {"elastic_pytorch_reclaim_too_large": "2x5 0x10"}, 10),
    Case("NodesUnreachable", "are away", {"elastic_pytorch_kept_nodes": "0x5 4x10"}, 10, ({},)),
    Case("NodesUnreachable", "were away", {"elastic_pytorch_kept_nodes": "4x5 0x10"}, 10),
    Case("OperatorDown", "nobody leads", leaders("1x5 0x30", "0x35"), 10, ({},)),
    Case("OperatorDown", "nobody is there", {}, 10, ({},)),
    Case("OperatorDown", "one leads", leaders("0x30", "1x30"), 10),
    Case("OperatorDown", "the other takes over", leaders("1x5 0x30", "0x6 1x30"), 10),
    Case("TwoLeaders", "both lead", leaders("1x30", "1x30"), 10, ({},)),
    Case("TwoLeaders", "one was scraped before it gave way", leaders("1x6 0x30", "0x5 1x30"), 6),
    Case(
        "WatchSilent",
        "nothing of pods",
        {'elastic_pytorch_watch_last_event_age_seconds{kind="pods"}': "0+60x30"},
        20,
        ({"kind": "pods"},),
    ),
    Case(
        "WatchSilent", "a bookmark a minute", {'elastic_pytorch_watch_last_event_age_seconds{kind="pods"}': "55x30"}, 20
    ),
    Case("ReconcileErrors", "three a minute", {"elastic_pytorch_reconcile_errors_total": "0+3x60"}, 30, ({},)),
    Case("ReconcileErrors", "one in 5 min", {"elastic_pytorch_reconcile_errors_total": "0x4 1x4 2x4 3x60"}, 20),
    Case("PassesFail", "one a minute", {"elastic_pytorch_pass_errors_total": "0+1x60"}, 20, ({},)),
    Case("PassesFail", "three, and no more", {"elastic_pytorch_pass_errors_total": "0x4 1x0 2x0 3x60"}, 20),
    Case(
        "InternalErrors",
        "at one job",
        {'elastic_pytorch_internal_errors_total{kind="job"}': "0x9 1x60"},
        20,
        ({"kind": "job"},),
    ),
    Case("InternalErrors", "none", {'elastic_pytorch_internal_errors_total{kind="job"}': "2x60"}, 20),
    Case("Forbidden", "may not list", requests("GET", "403", "0+1x60"), 20, ({},)),
    Case("Forbidden", "may not watch", requests("WATCH", "403", "0+1x60"), 20, ({},)),
    Case("Forbidden", "a quota refuses a pod", requests("POST", "403", "0+1x60"), 20),
    Case("ApiErrors", "a third is not answered", requests("GET", "timeout", "0+5x60"), 30, ({},)),
    Case("ApiErrors", "a third is 503", requests("PATCH", "503", "0+5x60"), 30, ({},)),
    Case("ApiErrors", "a third is 409", requests("PATCH", "409", "0+5x60"), 30),
    Case("EventsDropped", "some, all the time", {"elastic_pytorch_events_dropped_total": "0+1x60"}, 40, ({},)),
    Case("EventsDropped", "none", {"elastic_pytorch_events_dropped_total": "3x60"}, 40),
)
