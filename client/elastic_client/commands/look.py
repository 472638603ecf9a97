"""Commands that read once: `list`, `describe`, `why`."""

from __future__ import annotations

from typing import Annotated

import typer

from elastic_client import screen
from elastic_client.cluster import Cluster
from elastic_client.command import JobName, Output
from elastic_client.commands.events import events_of
from elastic_client.documents import job_report
from elastic_client.jobs import all_jobs, check_namespace, find_job, find_report, listed, tell_unknown
from elastic_client.screen import Format, printed
from elastic_client.words import now

AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of all namespaces.")]


async def list_jobs(cluster: Cluster, *, all_namespaces: AllNamespaces = False, output: Output = Format.TABLE) -> None:
    """List jobs: how many pods each has, and what limits it."""
    namespace = "" if all_namespaces else cluster.namespace
    if output not in (Format.TABLE, Format.WIDE):
        jobs = await all_jobs(cluster, namespace)
        if not jobs.jobs and namespace:
            await check_namespace(cluster)
        printed(jobs, output)
        return
    columns, rows = await listed(cluster, namespace, wide=output == Format.WIDE)
    if rows:
        screen.print_grid(screen.console(), columns, rows)
        return
    if namespace:
        await check_namespace(cluster)
    screen.note(f"no jobs in namespace {namespace}" if namespace else "no jobs in any namespace")


async def describe(cluster: Cluster, job: JobName, *, output: Output = Format.TABLE) -> None:
    """Show all of a job: what `why` says, its pods, and its events with its pods' in time order."""
    body = await find_job(cluster, job)
    report = job_report(body, await events_of(cluster, body))
    tell_unknown(report)
    if printed(report, output):
        return
    target, at = screen.console(), now()
    screen.print_why(target, report, at)
    if report.code:
        target.print()
        screen.print_paragraph(target, "Code", report.code)
    if report.pods:
        target.print()
        screen.print_pods(target, report)
    if report.events:
        target.print()
        screen.print_events(target, report.events, at)


async def why(cluster: Cluster, job: JobName, *, output: Output = Format.TABLE) -> None:
    """Say why a job is not running or not bigger, who got its GPUs, and what each change of size cost."""
    report = await find_report(cluster, job)
    if not printed(report, output):
        screen.print_why(screen.console(), report, now())
