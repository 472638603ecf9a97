"""`top`: the jobs of a namespace, live. It lists once and then watches; it does not poll."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rich.live import Live
from rich.text import Text

from elastic_client import screen
from elastic_client.cluster import TABLE, Cluster, Object
from elastic_client.commands.look import AllNamespaces, list_jobs
from elastic_client.documents import JobRow, job_row, table_rows
from elastic_client.jobs import check_namespace, jobs_path
from elastic_client.screen import Format
from elastic_client.watching import followed
from elastic_client.words import counted, now

SECOND = 1.0
"""The interval at which ages are renewed, and the longest delay of changes."""
LINES_AROUND = 4
"""The other lines of the screen: the summary, an empty line, the headings, the line on jobs that do not fit."""
FINISHED = ("Succeeded", "Failed")

Jobs = dict[tuple[str, str], JobRow]


async def top(cluster: Cluster, *, all_namespaces: AllNamespaces = False) -> None:
    """Show the jobs live, those with the most GPUs first, until Ctrl-C; without a terminal only once."""
    target = screen.console()
    if not target.is_terminal:
        await list_jobs(cluster, all_namespaces=all_namespaces, output=Format.WIDE)
        return
    if not all_namespaces:
        await check_namespace(cluster)
    jobs: Jobs = {}
    listed = asyncio.Event()
    with Live(console=target, auto_refresh=False, screen=True) as live:
        watching = asyncio.create_task(_watch(cluster, "" if all_namespaces else cluster.namespace, jobs, listed))
        try:
            while not watching.done():
                if listed.is_set():
                    live.update(picture(jobs.values(), height=target.height, namespaced=all_namespaces), refresh=True)
                await asyncio.wait((watching,), timeout=SECOND if listed.is_set() else SECOND / 10)
            watching.result()
        finally:
            watching.cancel()
            await asyncio.wait((watching,))


async def _watch(cluster: Cluster, namespace: str, jobs: Jobs, listed: asyncio.Event) -> None:
    """Keep `jobs` up to date once they are `listed`; ends with an error only."""
    columns: list[Object] = []
    async with followed(cluster, jobs_path(namespace), accept=TABLE) as changes:
        async for change in changes:
            columns = change.body.get("columnDefinitions") or columns
            rows = table_rows({**change.body, "columnDefinitions": columns})
            apply(jobs, change.kind, map(job_row, rows))
            listed.set()


def apply(jobs: Jobs, kind: str, rows: Iterable[JobRow]) -> None:
    """Apply a list, or a change of some rows, to `jobs`. Only a list names its columns."""
    if kind == "LIST":
        jobs.clear()
    if kind in ("LIST", "ADDED", "MODIFIED"):
        jobs.update({(row.namespace, row.name): row for row in rows})
    if kind == "DELETED":
        for row in rows:
            jobs.pop((row.namespace, row.name), None)


def picture(jobs: Iterable[JobRow], *, height: int, namespaced: bool) -> Text:
    """A summary, and as many jobs as fit: those with the most GPUs first, ended ones last. Long lines are cut."""
    ordered = sorted(jobs, key=lambda job: (job.status in FINISHED, -job.gpus, job.namespace, job.name))
    fits = max(1, height - LINES_AROUND)
    at = now()
    rows = [screen.job_cells(job, at, namespaced=namespaced) for job in ordered[:fits]]
    hidden = len(ordered) - len(rows)
    lines = [Text(summary(ordered)), Text(), *screen.grid(screen.job_columns(namespaced=namespaced), rows)]
    rest = [Text(f"and {hidden} more")] if hidden else []
    return Text("\n", no_wrap=True, overflow="crop").join([*lines, *rest])


def summary(jobs: Iterable[JobRow]) -> str:
    """The summary: `12 jobs: 8 with pods, 3 without, 1 ended; 40 GPUs`."""
    listed = list(jobs)
    ended = sum(job.status in FINISHED for job in listed)
    with_pods = sum(job.pods > 0 and job.status not in FINISHED for job in listed)
    gpus = sum(job.gpus for job in listed)
    counts = f"{with_pods} with pods, {len(listed) - with_pods - ended} without, {ended} ended"
    return f"{counted(len(listed), 'job')}: {counts}; {counted(gpus, 'GPU')}"
