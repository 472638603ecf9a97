"""Jobs in the API: their paths, finding one, and the error if none has the name."""

from __future__ import annotations

from elastic_api.job import API_VERSION, PLURAL
from elastic_client.cluster import TABLE, Cluster, Object
from elastic_client.documents import JobList, JobReport, JobRow, job_report, job_row, table_rows
from elastic_client.exits import ClientError, Code
from elastic_client.screen import note
from elastic_client.words import is_name, near

BASE = f"/apis/{API_VERSION}"


def jobs_path(namespace: str) -> str:
    """The path of the jobs of a namespace; of all namespaces for `""`."""
    return f"{BASE}/namespaces/{namespace}/{PLURAL}" if namespace else f"{BASE}/{PLURAL}"


def job_path(cluster: Cluster, name: str) -> str:
    """The path of one job. Raises ClientError, USAGE for an invalid name."""
    check_name(name)
    return f"{jobs_path(cluster.namespace)}/{name}"


async def all_jobs(cluster: Cluster, namespace: str) -> JobList:
    """The jobs of a namespace, or of all for `""`, from the server's table."""
    return job_list(await cluster.get(jobs_path(namespace), accept=TABLE))


async def listed(cluster: Cluster, namespace: str, *, wide: bool) -> tuple[list[str], list[list[object]]]:
    """The headings and rows of the server's table, so that columns of a newer release are shown, too.

    The jobs' metadata, nine tenths of an answer, is requested only where the namespace is needed.
    """
    metadata = "None" if namespace else "Metadata"
    table = await cluster.get(jobs_path(namespace), accept=TABLE, includeObject=metadata)
    columns = table["columnDefinitions"]
    chosen = [index for index, column in enumerate(columns) if wide or not column.get("priority")]
    rows = [
        [*([] if namespace else [row["object"]["metadata"]["namespace"]]), *(row["cells"][index] for index in chosen)]
        for row in table.get("rows") or ()
    ]
    return [*([] if namespace else ["NAMESPACE"]), *(columns[index]["name"].upper() for index in chosen)], rows


def job_list(table: Object) -> JobList:
    """The jobs of a table, by namespace and name."""
    return JobList(jobs=sorted(map(job_row, table_rows(table)), key=lambda job: (job.namespace, job.name)))


async def find_job(cluster: Cluster, name: str) -> Object:
    """The job of that name. Raises ClientError, NOT_FOUND with similar names and other namespaces with such a job."""
    path = job_path(cluster, name)
    try:
        return await cluster.get(path)
    except ClientError as error:
        if error.code != Code.NOT_FOUND:
            raise
    raise await no_such_job(cluster, name)


async def find_report(cluster: Cluster, name: str) -> JobReport:
    """The job as a document. Fields that this client does not know are named on stderr."""
    report = job_report(await find_job(cluster, name))
    tell_unknown(report)
    return report


def tell_unknown(report: JobReport) -> None:
    """Report fields of a newer release of the operator, which are left out here."""
    if report.unknown_fields:
        note(f"note: not shown: {', '.join(report.unknown_fields)}; the cluster is newer than this client: upgrade it")


def check_name(name: str, *, kind: str = "job", example: str = "toy") -> None:
    """Raise ClientError, USAGE for an invalid name: as a path it could mean all jobs, or another request."""
    if not is_name(name):
        raise ClientError(Code.USAGE, f"{kind.upper()} {name!r}: write a {kind}'s name alone, such as {example}")


async def no_such_job(cluster: Cluster, name: str) -> ClientError:
    """The error for a job that does not exist."""
    await check_namespace(cluster)
    here = [job.name for job in (await all_jobs(cluster, cluster.namespace)).jobs]
    elsewhere = [job.namespace for job in await _everywhere(cluster) if job.name == name]
    hint = (
        f"namespace {elsewhere[0]} has one: add -n {elsewhere[0]}" if elsewhere else near(name, here, lead="it has: ")
    )
    message = f"job {name!r}: namespace {cluster.namespace} has none of that name"
    return ClientError(
        Code.NOT_FOUND,
        f"{message}; {hint}"
        if hint
        else f"{message}; name another namespace by -n, or see all jobs by `kubectl elastic list -A`",
    )


async def check_namespace(cluster: Cluster) -> None:
    """Raise ClientError, NOT_FOUND if the namespace does not exist and the user may know that."""
    try:
        await cluster.get(f"/api/v1/namespaces/{cluster.namespace}")
    except ClientError as error:
        if error.code == Code.NOT_FOUND:
            hint = near(cluster.namespace, await _namespaces(cluster), lead="it has: ") or "name another by -n"
            message = f"namespace {cluster.namespace!r}: the cluster has none of that name; {hint}"
            raise ClientError(Code.NOT_FOUND, message) from None
        if error.code != Code.NOT_ALLOWED:
            raise


async def _everywhere(cluster: Cluster) -> list[JobRow]:
    """Jobs of all namespaces; none if the user may not list them."""
    try:
        return (await all_jobs(cluster, "")).jobs
    except ClientError:
        return []


async def _namespaces(cluster: Cluster) -> list[str]:
    try:
        listed = await cluster.get(
            "/api/v1/namespaces", accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
        )
    except ClientError:
        return []
    return [item["metadata"]["name"] for item in listed["items"]]
