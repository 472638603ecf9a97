"""`restart`: replaces all pods of a job, from its newest checkpoint.

The API has no field for a restart. A suspended job gives up all pods after a checkpoint, and begins with new pods when
it is resumed, so this command does both. In between it waits until the operator reports that the pods are deleted,
because a job that is resumed before that keeps its pods. Whenever the wait ends, a message says whether the job stays
suspended.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated

import typer

from elastic_client import screen
from elastic_client.cluster import Cluster, Object
from elastic_client.command import JobName
from elastic_client.commands.change import patched
from elastic_client.commands.wait import duration, ended, states
from elastic_client.documents import JobReport, job_report
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import find_job, job_path
from elastic_client.words import counted

ENDED_PHASES = ("Succeeded", "Failed")
SUSPENDED = "Suspended"

Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=duration,
        metavar="TIME",
        help="The longest wait for the end of its pods: 90, 90s, 10m. Default: no limit.",
    ),
]


async def restart(cluster: Cluster, job: JobName, *, timeout: Timeout = None) -> Code:
    """Restart all pods of a job, from its newest checkpoint."""
    before = _restartable(await find_job(cluster, job), see=cluster.command(f"resume {job}"))
    begun, stays = False, True
    try:
        suspended = await cluster.patch(job_path(cluster, job), {"spec": {"suspend": True}})
        begun = True
        screen.note(f"job {job}: its {counted(before.job.pods, 'pod')} stop")
        async with asyncio.timeout(timeout):
            end = await _until_gone(cluster, job, uid=suspended["metadata"]["uid"])
        if end is None:
            await patched(cluster, job, {"suspend": False})
        stays = False
    except TimeoutError:
        screen.note(f"job {job}: its pods still exist after {timeout or 0:g} s")
        return Code.TIMED_OUT
    except ClientError as error:
        # A request without an answer may have been carried out.
        stays = error.code != Code.NOT_FOUND and (begun or error.code == Code.UNREACHABLE)
        raise
    finally:
        if stays:
            screen.note(f"job {job} stays suspended: {cluster.command(f'resume {job}')} resumes it")
    if end is not None:
        screen.note(f"job {job} has ended meanwhile: {cluster.command(f'why {job}')} says how")
        return end
    message = f"job {job} restarts from its newest checkpoint as soon as its pods fit"
    screen.console().print(f"{message}; see {cluster.command(f'why {job}')}", soft_wrap=True)
    return Code.DONE


def _restartable(job: Object, *, see: str) -> JobReport:
    """The job, if it has pods to replace. Raises ClientError, USAGE."""
    report, name = job_report(job), job["metadata"]["name"]
    if ended(job) is not None:
        raise ClientError(Code.USAGE, f"job {name} has ended: delete it and run it again")
    if job["spec"].get("suspend"):
        raise ClientError(Code.USAGE, f"job {name} is suspended: {see} starts its pods from its newest checkpoint")
    if not report.job.pods:
        raise ClientError(Code.USAGE, f"job {name} has no pods to restart: it is {report.job.status}")
    return report


async def _until_gone(cluster: Cluster, job: str, *, uid: str) -> Code | None:
    """Wait until the operator reports that no pod is left, or until the job is resumed; return the outcome if it ends.

    Raises ClientError, NOT_FOUND if the job is deleted.
    """
    last = 0
    async with aclosing(states(cluster, job, uid=uid)) as bodies:
        async for body in bodies:
            report = job_report(body)
            if (end := ended(body)) is not None:
                return end
            left = sum(pod.phase not in ENDED_PHASES for pod in report.pods) + report.pods_not_listed
            seen = _is_suspended(report)
            if (seen and not left) or not body["spec"].get("suspend"):
                return None
            if seen and left != last:
                screen.note(f"job {job}: {counted(left, 'pod')} still stopping")
                last = left
    raise AssertionError("a watch has no end of its own")


def _is_suspended(report: JobReport) -> bool:
    """Whether the operator has suspended the job."""
    return report.up_to_date and report.state is not None and report.state.reason == SUSPENDED
