"""The hostile team of a soak: it is guaranteed nothing, borrows idle GPUs, and does what it can to keep them.

These acts do to a real API server what those of `tests/simulate/hostile.py` do in memory, with a tenant's own
credentials. The team also asks for what it may not have, which must be refused. KWOK's pods stop at once: how long a
real pod may take to stop is not seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from elastic_api.job import API_VERSION, KIND
from elastic_api.policy import COLLECTION
from tests.simulate import server as kinds
from tests.simulate.facts import GPU, POOL, Body, flavor_of, is_master, is_over, name_of, node_of, terminating
from tests.simulate.hostile import DAY, FINALIZER, IGNORED_CLASSES, greedy
from tests.simulate.violation import require
from tests.soak.plan import Kind
from tests.soak.stage import Deeds, Stage
from tests.soak.tenant import HOSTILE, POLICY, Tenant

MOST_JOBS = 6
A_DAY = "a day"
"""Where seconds are expected. The API server does not look into a template, and the operator cannot read this one."""
REFUSALS = (403, 422)

Act = Callable[[Tenant], str]
"""What the tenant does, told in words; "" where it cannot be done now."""


def greedy_job_comes(tenant: Tenant) -> str:
    """A job that takes what it can get, and lets its pods go as late as it can; in place of the oldest of many."""
    jobs = tenant.jobs()
    if len(jobs) >= MOST_JOBS:
        tenant.server.update(kinds.JOBS, jobs[0], metadata={"finalizers": None})
        tenant.server.remove(kinds.JOBS, jobs[0])
    spec = greedy(tenant.rng)
    job = tenant.add_job(HOSTILE, gpus=1, pool=tenant.rng.choice("aaab"), **spec)
    tenant.server.update(kinds.JOBS, job, spec={"elasticity": {"gracePeriodSeconds": DAY}})
    return f"greedy job {name_of(job)} comes: {spec}"


def its_class_goes(tenant: Tenant) -> str:
    """A job that has borrowed names a PriorityClass that is not there, or a system's."""
    job = tenant.borrower()
    if job is None:
        return ""
    name = tenant.rng.choice(IGNORED_CLASSES)
    tenant.server.edit(kinds.JOBS, job, {**job["spec"], "priorityClassName": name})
    return f"job {name_of(job)} gets priorityClassName {name}"


def its_spec_is_spoilt_or_mended(tenant: Tenant) -> str:
    """A job that has borrowed cannot be read any more, or can again. The API server asks only that it be suspended."""
    spoilt = [job for job in tenant.jobs() if not is_over(job) and _is_spoilt(job)]
    mends = bool(spoilt) and tenant.rng.random() < 0.5
    job = tenant.choose(spoilt) if mends else tenant.borrower()
    if job is None:
        return ""
    spec, template = job["spec"], job["spec"]["template"]
    pod = {name: value for name, value in template["spec"].items() if name != "terminationGracePeriodSeconds"}
    pod |= {} if mends else {"terminationGracePeriodSeconds": A_DAY}
    tenant.server.edit(kinds.JOBS, job, {**spec, "suspend": True})
    tenant.server.edit(kinds.JOBS, job, {**spec, "suspend": False, "template": {**template, "spec": pod}})
    return f"job {name_of(job)} {'can be read again' if mends else 'cannot be read any more'}"


def _is_spoilt(job: Body) -> bool:
    return bool(job["spec"]["template"]["spec"].get("terminationGracePeriodSeconds") == A_DAY)


def it_is_deleted_with_a_finalizer(tenant: Tenant) -> str:
    """A job is deleted, and stays."""
    job = tenant.choose([job for job in tenant.jobs() if not terminating(job)])
    if job is None:
        return ""
    tenant.server.update(kinds.JOBS, job, metadata={"finalizers": [FINALIZER]})
    tenant.server.remove(kinds.JOBS, job)
    return f"job {name_of(job)} is deleted, and kept by a finalizer"


def its_finalizer_goes(tenant: Tenant) -> str:
    """And is gone at last."""
    job = tenant.choose([job for job in tenant.jobs() if terminating(job)])
    if job is None:
        return ""
    tenant.server.update(kinds.JOBS, job, metadata={"finalizers": None})
    return f"the finalizer of job {name_of(job)} goes"


def only_its_master_ends(tenant: Tenant) -> str:
    """A job has succeeded, and its workers run on."""
    job = tenant.borrower()
    running = [pod for pod in tenant.pods(job) if pod["status"].get("phase") == "Running"] if job else []
    master = next(filter(is_master, running), None)
    if job is None or master is None:
        return ""
    tenant.kubelets.end(master, 0)
    return f"the master of {name_of(job)} ends with 0, its workers do not"


def unplaceable_pod_comes(tenant: Tenant) -> str:
    """A plain pod that no scheduler places."""
    for old in tenant.pods(None):
        tenant.server.delete_pod(old, grace=0)
    job = tenant.borrower()
    placed = tenant.choose([pod for pod in tenant.pods(job) if node_of(pod)]) if job else None
    if placed is None:
        return ""
    pod = _plain_pod(tenant.new_name("thief-"), schedulerName="nobody", nodeSelector={POOL: flavor_of(placed)})
    tenant.server.create(kinds.PODS, pod)
    return f"{name_of(pod)} comes, and is never placed"


def _plain_pod(name: str, **spec: Any) -> Body:
    container = {"name": "main", "image": "i", "resources": {"limits": {GPU: "4"}, "requests": {"cpu": "1"}}}
    return {"metadata": {"name": name, "namespace": HOSTILE}, "spec": {"containers": [container], **spec}}


# -- what is refused -------------------------------------------------------------------------------------------------


def it_asks_for_what_it_may_not_have(tenant: Tenant) -> str:
    """Policies, the status of its job, a pod that seems to be of its job, a pod with the priority of a job's pods."""
    asked = list(_requests(tenant))
    for method, path, body in asked:
        answer = tenant.server.api.request(method, path, json=body, headers=_HEADERS.get(method))
        require(answer.status_code in REFUSALS, f"{method} {path} of the hostile team: {answer.text}")
    return f"it asks in vain for {len(asked)} things that it may not have"


_HEADERS = {"PATCH": {"Content-Type": "application/merge-patch+json"}}


def _requests(tenant: Tenant) -> Iterator[tuple[str, str, Body]]:
    yield "POST", COLLECTION, {"metadata": {"name": "mine"}, "spec": {**POLICY, "priority": 5}}
    pods, jobs = f"/api/v1/namespaces/{HOSTILE}/pods", tenant.jobs()
    yield "POST", pods, _plain_pod(f"{HOSTILE}-high", priorityClassName="elastic-pytorch-master")
    for job in jobs[:1]:
        own = {"name": name_of(job), "uid": job["metadata"]["uid"], "controller": True}
        phantom = _plain_pod(f"{name_of(job)}-worker-100", schedulerName="nobody")
        phantom["metadata"]["ownerReferences"] = [{"apiVersion": API_VERSION, "kind": KIND, **own}]
        yield "POST", pods, phantom
        path = f"{COLLECTION.rpartition('/')[0]}/namespaces/{HOSTILE}/{kinds.JOBS}/{name_of(job)}/status"
        yield "PATCH", path, {"status": {"replicas": 0}}


# -- as deeds ----------------------------------------------------------------------------------------------------------


def _deed(act: Act) -> Deeds:
    """That, or a greedy job where it cannot be done now."""

    def deed(stage: Stage, rng: Random) -> Iterator[str]:
        stage.tenant.rng = rng
        yield act(stage.tenant) or greedy_job_comes(stage.tenant)

    return deed


ACTS: Mapping[Kind, Act] = {
    Kind(HOSTILE, "greedy job", times=3): greedy_job_comes,
    Kind(HOSTILE, "class of a job ignored"): its_class_goes,
    Kind(HOSTILE, "spec spoilt or mended", times=2): its_spec_is_spoilt_or_mended,
    Kind(HOSTILE, "job kept by a finalizer"): it_is_deleted_with_a_finalizer,
    Kind(HOSTILE, "finalizer gone"): its_finalizer_goes,
    Kind(HOSTILE, "only the master ends"): only_its_master_ends,
    Kind(HOSTILE, "unplaceable pod"): unplaceable_pod_comes,
    Kind(HOSTILE, "asks in vain"): it_asks_for_what_it_may_not_have,
}
HOSTILITIES: Mapping[Kind, Deeds] = {kind: _deed(act) for kind, act in ACTS.items()}
"""By kind, what is done. Some of it is done in each minute."""
