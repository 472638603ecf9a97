"""`doctor`: checks this client with a cluster, and names the remedy for each fault.

Each check is one request or a few. Objects that the user may not read are unknown, which is no fault: a team sees no
nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from elastic_api.job import API_VERSION, GROUP, PLURAL, JobSpec
from elastic_api.policy import COLLECTION
from elastic_api.policy import PLURAL as POLICIES
from elastic_api.quantity import amount
from elastic_api.status import JobStatus
from elastic_api.template import GPU_RESOURCES
from elastic_client import screen
from elastic_client.cluster import TABLE, Cluster, Object
from elastic_client.command import Output
from elastic_client.documents import UNKNOWN, Check, CheckList
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import all_jobs, check_namespace
from elastic_client.release import own_version
from elastic_client.screen import Format, printed
from elastic_client.words import counted

OPERATORS = "app.kubernetes.io/name=elastic-operator"
VERSION_LABEL = "app.kubernetes.io/version"
INSTALL = "let an administrator install the operator: docs/install.md"
RIGHTS = (
    ("list jobs", "list", GROUP, PLURAL, ""),
    ("create jobs", "create", GROUP, PLURAL, ""),
    ("change jobs", "patch", GROUP, PLURAL, ""),
    ("delete jobs", "delete", GROUP, PLURAL, ""),
    ("read logs", "get", "", "pods", "log"),
    ("see events", "list", "", "events", ""),
)
"""The rights that commands need: name, verb, group, resource, subresource."""
ROLE = "ask for the cluster role `edit` in that namespace (`view` is enough to look)"


async def doctor(cluster: Cluster, *, output: Output = Format.TABLE) -> Code:
    """Check the cluster: definitions, versions, your rights, GPUs; each line says what to do. Exit code 1: not ok."""
    first = [await _server(cluster), await _namespace(cluster)]
    groups = await asyncio.gather(*(check(cluster) for check in CHECKS))
    found = CheckList(checks=[*first, *(one for group in groups for one in group)])
    if not printed(found, output):
        target = screen.console()
        for check in found.checks:
            target.print(screen.check_line(check), soft_wrap=True)
    return Code.FAILED if any(check.ok is False for check in found.checks) else Code.DONE


async def _server(cluster: Cluster) -> Check:
    """The check of the API server. Raises ClientError if it does not answer, since nothing else can be checked then."""
    version = await cluster.get("/version")
    return Check(name="API server", ok=True, told=f"{cluster.server}, Kubernetes {version.get('gitVersion', '?')}")


async def _namespace(cluster: Cluster) -> Check:
    try:
        await check_namespace(cluster)
    except ClientError as error:
        return Check(name="namespace", ok=False, told=str(error), remedy="name another one by -n")
    return Check(name="namespace", ok=True, told=cluster.namespace)


async def definitions(cluster: Cluster) -> list[Check]:
    """Whether jobs and policies are served; everybody may read discovery."""
    try:
        served = {one["name"] for one in (await cluster.get(f"/apis/{API_VERSION}"))["resources"]}
    except ClientError:
        served = set()
    return [
        Check(name=f"definition {name}", ok=True, told=API_VERSION)
        if name in served
        else Check(name=f"definition {name}", ok=False, told=f"no {API_VERSION}", remedy=INSTALL)
        for name in (PLURAL, POLICIES)
    ]


async def fields(cluster: Cluster) -> list[Check]:
    """Whether the cluster's release of the definitions has the fields that this client knows, and no others."""
    name = "fields"
    try:
        api = await cluster.get(f"/openapi/v3/apis/{API_VERSION}")
    except ClientError:
        return [Check(name=name, ok=None, told="the cluster publishes no schema of jobs")]
    schemas = (api.get("components") or {}).get("schemas") or {}
    job: Object = next((one for key, one in schemas.items() if key.endswith(".ElasticPyTorchJob")), {})
    served = {part: set(job.get("properties", {}).get(part, {}).get("properties", {})) for part in ("spec", "status")}
    return [compare_fields(served)] if job else []


def compare_fields(served: dict[str, set[str]]) -> Check:
    """Compare the served fields of `spec` and `status` with this client's."""
    mine = {"spec": _aliases(JobSpec), "status": _aliases(JobStatus)}
    newer = [f"{part}.{field}" for part in mine for field in sorted(served[part] - mine[part])]
    older = [f"{part}.{field}" for part in mine for field in sorted(mine[part] - served[part])]
    if newer:
        message = f"the cluster has more than this client knows: {', '.join(newer)}"
        return Check(name="fields", ok=False, told=message, remedy="upgrade this client")
    if older:
        message = f"this client knows more than the cluster has: {', '.join(older)}"
        return Check(name="fields", ok=False, told=message, remedy="have the operator upgraded, or use an older client")
    return Check(name="fields", ok=True, told="client and cluster know the same fields")


async def operator(cluster: Cluster) -> list[Check]:
    """The operator's release, if the user may see it, and whether it answers."""
    return [await _release(cluster), await _answers(cluster)]


async def _release(cluster: Cluster) -> Check:
    name, mine = "versions", own_version()
    try:
        found = (await cluster.get("/apis/apps/v1/deployments", labelSelector=OPERATORS))["items"]
    except ClientError:
        return Check(name=name, ok=None, told=f"client {mine}; you may not see the operator's deployment")
    if not found:
        message = f"client {mine}; no operator is deployed by the chart"
        return Check(name=name, ok=False, told=message, remedy=INSTALL)
    theirs = found[0]["metadata"]["labels"].get(VERSION_LABEL, "?")
    message = f"client {mine}, operator {theirs} in namespace {found[0]['metadata']['namespace']}"
    if not (found[0].get("status") or {}).get("readyReplicas"):
        remedy = "look at its pods: docs/runbook.md"
        return Check(name=name, ok=False, told=f"{message}, of which no pod is ready", remedy=remedy)
    if minor(mine) != minor(theirs):
        return Check(name=name, ok=False, told=message, remedy="use the client of the operator's release")
    return Check(name=name, ok=True, told=message)


async def _answers(cluster: Cluster) -> Check:
    """Whether jobs have a status, which shows to every user that an operator runs."""
    name = "operator answers"
    try:
        jobs = (await all_jobs(cluster, cluster.namespace)).jobs
    except ClientError as error:
        return Check(name=name, ok=None, told=_why_unknown(error))
    if not jobs:
        return Check(name=name, ok=None, told="no jobs in this namespace by which to tell")
    silent = [job.name for job in jobs if job.status == UNKNOWN]
    if silent:
        message = f"{counted(len(silent), 'job')} without a status, such as {silent[0]}"
        return Check(name=name, ok=False, told=message, remedy="ask the administrator whether the operator runs")
    return Check(name=name, ok=True, told=f"{counted(len(jobs), 'job')} with a status")


async def rights(cluster: Cluster) -> list[Check]:
    """The user's rights in the namespace."""
    return list(await asyncio.gather(*(_right(cluster, *right) for right in RIGHTS)))


async def _right(cluster: Cluster, name: str, verb: str, group: str, resource: str, subresource: str) -> Check:
    what = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    attributes = what | {"namespace": cluster.namespace}
    review = {"spec": {"resourceAttributes": attributes}}
    try:
        answer = await cluster.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    except ClientError as error:
        return Check(name=name, ok=None, told=str(error))
    if answer["status"]["allowed"]:
        return Check(name=name, ok=True, told=f"you may in namespace {cluster.namespace}")
    return Check(name=name, ok=False, told=f"you may not in namespace {cluster.namespace}", remedy=ROLE)


async def gpus(cluster: Cluster) -> list[Check]:
    """Whether nodes offer GPUs."""
    name = "GPUs"
    try:
        nodes = (await cluster.get("/api/v1/nodes"))["items"]
    except ClientError:
        return [Check(name=name, ok=None, told="you may not see nodes")]
    offered = dict.fromkeys(GPU_RESOURCES, 0)
    for node in nodes:
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        for resource in offered:
            offered[resource] += amount(resource, allocatable.get(resource, "0"))
    gpus = ", ".join(f"{count} {resource}" for resource, count in offered.items())
    on = f"{gpus} on {counted(len(nodes), 'node')}"
    if any(offered.values()):
        return [Check(name=name, ok=True, told=on)]
    remedy = "install the device plugin of your GPUs; jobs without GPUs run all the same"
    return [Check(name=name, ok=False, told=on, remedy=remedy)]


async def quotas(cluster: Cluster) -> list[Check]:
    """Whether there are any quotas; none is no fault."""
    try:
        rows = (await cluster.get(COLLECTION, accept=TABLE)).get("rows") or []
    except ClientError as error:
        return [Check(name="quotas", ok=None, told=_why_unknown(error))]
    return [Check(name="quotas", ok=True, told=counted(len(rows), "policy").replace("policys", "policies"))]


def _why_unknown(error: ClientError) -> str:
    """Why a kind is unknown. If its definition is missing, another line says so."""
    if error.code == Code.NOT_ALLOWED:
        return "you may not see them"
    return "no definition" if error.code == Code.NOT_INSTALLED else str(error)


def minor(release: str) -> str:
    """The minor release, `1.2` of `v1.2.3`, since patch releases are compatible."""
    return ".".join(release.removeprefix("v").split(".")[:2])


def _aliases(model: type[JobSpec | JobStatus]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


CHECKS: tuple[Callable[[Cluster], Awaitable[list[Check]]], ...] = (definitions, fields, operator, rights, gpus, quotas)
