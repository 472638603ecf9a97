"""Commands that look once: `list`, `describe`, `why`."""

from __future__ import annotations

from typing import Annotated

import typer

from elastic_client import screen
from elastic_client.cluster import Cluster
from elastic_client.command import Format, JobName, Output
from elastic_client.commands.events import events_of
from elastic_client.documents import Document, job_report
from elastic_client.jobs import all_jobs, check_namespace, find_job, find_report, tell_unknown
from elastic_client.words import now

AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Jobs of all namespaces.")]


async def list_jobs(cluster: Cluster, *, all_namespaces: AllNamespaces = False, output: Output = Format.TABLE) -> None:
    """List jobs: how many pods each has, and what limits it."""
    jobs = await all_jobs(cluster, "" if all_namespaces else cluster.namespace)
    if not jobs.jobs and not all_namespaces:
        await check_namespace(cluster)
    if printed(jobs, output):
        return
    if not jobs.jobs:
        where = "any namespace" if all_namespaces else f"namespace {cluster.namespace}"
        screen.note(f"no jobs in {where}")
        return
    wide = output == Format.WIDE
    columns = screen.job_columns(wide=wide, namespaced=all_namespaces)
    screen.print_grid(screen.console(), columns, screen.job_list_rows(jobs, wide=wide, namespaced=all_namespaces))


async def describe(cluster: Cluster, job: JobName, *, output: Output = Format.TABLE) -> None:
    """Show all of a job: what `why` says, its pods, and its events with its pods' in time order."""
    body = await find_job(cluster, job)
    report = job_report(body, await events_of(cluster, body))
    tell_unknown(report)
    if printed(report, output):
        return
    target, at = screen.console(), now()
    screen.print_why(target, report, at)
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


def printed(document: Document, output: Format) -> bool:
    """Prints the document in a form for programs, if that is asked for."""
    target = screen.console()
    match output:
        case Format.JSON:
            target.print(screen.as_json(document), end="", soft_wrap=True)
        case Format.YAML:
            target.print(screen.as_yaml(document), end="", soft_wrap=True)
        case Format.NAME:
            for name in screen.names_of(document):
                target.print(name, soft_wrap=True)
        case _:
            return False
    return True
