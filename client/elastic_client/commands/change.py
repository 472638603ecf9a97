"""Commands that change a job: `scale`, `suspend`, `resume`, `delete`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from elastic_client import screen
from elastic_client.cluster import Cluster
from elastic_client.command import JobName, JobNames, Output
from elastic_client.documents import JobReport, JobRow, job_report
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import check_name, find_report, job_path, no_such_job
from elastic_client.screen import Format, printed
from elastic_client.words import counted, sizes

_SIZE = re.compile(r"([1-9]\d{0,3})(?::([1-9]\d{0,3}))?")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The fewest and the most pods; `small` is None if it does not change."""

    small: int | None
    big: int


def bounds(size: str) -> Bounds:
    """Parse a size, `2:8` or `4`. Raises ClientError, USAGE for anything else."""
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ClientError(Code.USAGE, f"SIZE {size!r}: write 2:8 for 2 to 8 pods, or 4 for at most 4")
    if match[2] is None:
        return Bounds(None, int(match[1]))
    small, big = int(match[1]), int(match[2])
    if small > big:
        raise ClientError(Code.USAGE, f"SIZE {size}: the first number must be the smaller one; write {big}:{small}")
    return Bounds(small, big)


Size = Annotated[
    Bounds, typer.Argument(metavar="SIZE", parser=bounds, help="Pods, master included: 2:8, or 4 for at most 4.")
]


async def scale(cluster: Cluster, job: JobName, size: Size, *, output: Output = Format.TABLE) -> None:
    """Change how many pods a job may have: 2:8 sets both bounds, 4 the upper one, as `kubectl scale` does."""
    before = (await find_report(cluster, job)).job
    after = await resized(cluster, before, size)
    new, old = sizes(after.job.min_pods, after.job.max_pods), sizes(before.min_pods, before.max_pods)
    _show(after, output, f"job {job} may have {new} pods (before: {old}); see {cluster.command(f'why {job}')}")


async def resized(cluster: Cluster, before: JobRow, size: Bounds) -> JobReport:
    """The job with other bounds. Raises ClientError, USAGE if an upper bound alone would be below the lower one."""
    check_least(size, before.min_pods, what=f"job {before.name}")
    lower = {} if size.small is None else {"minReplicas": size.small}
    return await patched(cluster, before.name, {**lower, "maxReplicas": size.big})


def check_least(size: Bounds, fewest: int, *, what: str) -> None:
    """Raise ClientError, USAGE for an upper bound alone that is below the lower one of `what`, such as `job toy`."""
    if size.small is None and size.big < fewest:
        message = f"SIZE {size.big}: {what} has {counted(fewest, 'pod')} at least"
        raise ClientError(Code.USAGE, f"{message}; write {size.big}:{size.big} to lower both bounds")


async def suspend(cluster: Cluster, job: JobName, *, output: Output = Format.TABLE) -> None:
    """Remove a job's pods; it keeps its place and its checkpoints."""
    before = (await find_report(cluster, job)).job
    after = await patched(cluster, job, {"suspend": True})
    pods = f"its {counted(before.pods, 'pod')} stop" if before.pods else "it has no pods"
    _show(after, output, f"job {job} is suspended: {pods}")


async def resume(cluster: Cluster, job: JobName, *, output: Output = Format.TABLE) -> None:
    """Let a suspended job continue, from its last checkpoint."""
    await find_report(cluster, job)
    after = await patched(cluster, job, {"suspend": False})
    _show(after, output, f"job {job} continues as soon as its pods fit; see {cluster.command(f'why {job}')}")


async def delete(cluster: Cluster, jobs: JobNames) -> None:
    """Delete jobs with their pods. Checkpoints on volumes stay."""
    for job in jobs:
        check_name(job)
    for job in dict.fromkeys(jobs):
        await remove(cluster, job)
        screen.console().print(f"job {job} is deleted", soft_wrap=True)


async def remove(cluster: Cluster, job: str) -> None:
    """Delete one job. Raises ClientError, NOT_FOUND with near names."""
    try:
        await cluster.delete(job_path(cluster, job))
    except ClientError as error:
        if error.code != Code.NOT_FOUND:
            raise
        raise await no_such_job(cluster, job) from None


async def patched(cluster: Cluster, job: str, spec: dict[str, Any]) -> JobReport:
    """The job after a change of its spec. Raises ClientError."""
    return job_report(await cluster.patch(job_path(cluster, job), {"spec": spec}))


def _show(report: JobReport, output: Format, message: str) -> None:
    if not printed(report, output):
        screen.console().print(message, soft_wrap=True)
