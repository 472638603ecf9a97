"""Builders for the tests of a job's life: jobs, pods and grants with defaults, times in seconds from START."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from math import inf

from elastic_api.job import JobSpec
from elastic_api.status import Condition, JobStatus, SizeReason
from elastic_operator.plan.facts.decisions import Assignment, Grant, Plan, Slot
from elastic_operator.plan.facts.job import Job, MainContainer, OwnPod
from elastic_operator.plan.facts.node import UnreadyNode
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.job.observation import Observation
from elastic_operator.plan.job.observe import observe
from elastic_operator.plan.job.reconcile import reconcile

START = 1_800_000_000.0
TEMPLATE = {
    "spec": {
        "containers": [
            {"name": "pytorch", "image": "x:1", "args": ["t.py"], "resources": {"limits": {"nvidia.com/gpu": 1}}}
        ]
    }
}


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START + seconds, UTC)


def make_spec(**fields):
    return JobSpec.model_validate({"minReplicas": 2, "maxReplicas": 4, "template": TEMPLATE, **fields})


def make_status(**fields):
    defaults = {"incarnation": 1, "target_replicas": 2, "replicas": 2, "start_time": at(0), "observed_generation": 1}
    return JobStatus(**{**defaults, **fields})


def make_pod(name="worker-0", **fields):
    """A bound, running pod of incarnation 1."""
    role, _, index = name.partition("-")
    defaults = {
        "namespace": "team-a",
        "name": f"toy-{role}-{index}",
        "uid": f"uid-{role}-{index}",
        "role": role,
        "index": int(index),
        "incarnation": 1,
        "phase": "Running",
        "created": START,
        "node": "n1",
        "bound": True,
        "ready": True,
        "requests": {"nvidia.com/gpu": 1},
        "gpus": 1,
        "main": MainContainer(running_since=START + 5),
        "nnodes": (2, 4096),
        "pod_ip": "10.0.0.1",
    }
    return OwnPod(**{**defaults, **fields})


def group(workers=1, **fields):
    """A master and its workers."""
    return (make_pod("master-0", **fields), *(make_pod(f"worker-{i}", **fields) for i in range(workers)))


def ended(pod, exit_code, *, finished=100.0, message="boom", **fields):
    """The pod after its main container ended."""
    main = MainContainer(exit_code=exit_code, finished_at=START + finished, reason="Error", message=message)
    return replace(pod, phase="Succeeded" if exit_code == 0 else "Failed", ready=False, main=main, **fields)


def make_condition(kind, status, since):
    return Condition(type=kind, status=status, reason="Test", last_transition_time=at(since))


def make_job(pods=None, *, spec=None, status=None, **fields):
    pods = group() if pods is None else tuple(pods)
    defaults = {
        "namespace": "team-a",
        "name": "toy",
        "uid": "job-uid",
        "generation": 1,
        "created": START,
        "spec": spec or make_spec(),
        "status": status or make_status(replicas=len(pods)),
        "pods": pods,
    }
    return with_facts(Job(**defaults), **fields)


def with_facts(job, **fields):
    """The job with these fields, each wherever it stands in it."""
    for part in ("feedback", "context"):
        known = getattr(job, part)
        theirs = {name: fields.pop(name) for name in [*fields] if hasattr(known, name)}
        job = replace(job, **{part: replace(known, **theirs)})
    return replace(job, **fields)


def make_grant(
    *, keep=(), create=(), release=(), limit=SizeReason.AT_MAXIMUM, message="There is a reason.", ready=True
):
    slots = tuple(Slot(name.split("-")[0], int(name.split("-")[1]), "n1", ready) for name in create)
    assignment = Assignment(_uids(keep), _uids(release), slots)
    return Grant(assignment, assignment.replicas, Reason(limit, message))


def _uids(names):
    return tuple(f"uid-{name}" for name in names)


def see(job, *, now=200.0, unready=None) -> Observation:
    """The observation of the job while these nodes are not Ready, since so many seconds; -inf: out of service."""
    here = {name: time for name, time in (unready or {}).items() if name in {pod.node for pod in job.pods}}
    times = {name: START if time == -inf else START + time for name, time in here.items()}
    nodes = {name: UnreadyNode(time, time, out_of_service=here[name] == -inf) for name, time in times.items()}
    return observe(with_facts(job, unready=nodes), START + now)


def plan(job, grant=None, *, now=200.0, unready=None) -> Plan:
    obs = see(job, now=now, unready=unready)
    planned = reconcile(obs, grant if obs.wants_pods else None, now=START + now)
    assert not list(fragments(planned, before=job.status)), "users read whole sentences only"
    assert planned.requeue_at > START + now, "a plan that is due already is made again in each pass"
    return planned


def fragments(planned: Plan, *, before: JobStatus) -> Iterator[str]:
    """The new texts for users in the plan that do not end as a sentence."""
    status = planned.status
    told = [one for one in status.conditions if one not in before.conditions]
    changes = [change for change in status.history if change not in before.history]
    waits = [one for one in (status.retry, status.failed_size) if one not in (None, before.retry, before.failed_size)]
    texts = [one.message for one in (*told, *planned.events, *changes)] + [one.reason for one in waits]
    return (text for text in texts if text and not text.endswith("."))


def reasons(planned: Plan) -> dict[str, tuple[str, str]]:
    """Condition -> (status, reason)."""
    return {str(c.type): (c.status, c.reason) for c in planned.status.conditions}


BOTH = make_grant(keep=["master-0", "worker-0"])


def names(items):
    return [item.name for item in items]


def started(workers=1, **status):
    """Status of a job whose pods run since long."""
    return make_status(replicas=workers + 1, target_replicas=workers + 1, running_since=at(5), **status)
