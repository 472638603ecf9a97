"""`events`: the events of a job and of its pods, in time order; with -f as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from elastic_api.job import KIND
from elastic_api.pod_names import parse_pod_name
from elastic_client import screen
from elastic_client.cluster import Cluster, Object
from elastic_client.command import JobName, Output
from elastic_client.documents import EventList, EventRow, event_row
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import find_job
from elastic_client.screen import Format, printed
from elastic_client.watching import followed
from elastic_client.words import now

Follow = Annotated[bool, typer.Option("-f", "--follow", help="Follow new events until Ctrl-C.")]


async def events(cluster: Cluster, job: JobName, *, follow: Follow = False, output: Output = Format.TABLE) -> None:
    """Show the events of a job and of its pods, in time order."""
    if follow and output not in (Format.TABLE, Format.WIDE):
        raise ClientError(Code.USAGE, f"-o {output}: with -f events come one by one; leave -f or -o out")
    body = await find_job(cluster, job)
    if follow:
        await _follow(cluster, body)
        return
    found = EventList(events=await events_of(cluster, body))
    if printed(found, output):
        return
    if found.events:
        screen.print_events(screen.console(), found.events, now())
    else:
        screen.note(f"no events of job {job}: the API server forgets them after an hour, by default")


async def events_of(cluster: Cluster, job: Object) -> list[EventRow]:
    """Events of the job and of its pods, oldest first."""
    path, name = _path(cluster), job["metadata"]["name"]
    own, of_pods = await asyncio.gather(
        cluster.get(path, fieldSelector=f"involvedObject.kind={KIND},involvedObject.name={name}"),
        cluster.get(path, fieldSelector="involvedObject.kind=Pod"),
    )
    return _rows([*own["items"], *of_pods["items"]], job)


def concerns(event: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Whether the event is of this job or of one of its pods, and not of an earlier job of that name."""
    about, meta = event["involvedObject"], job["metadata"]
    if about.get("kind") == KIND:
        return bool(about.get("uid") == meta["uid"])
    if about.get("kind") != "Pod":
        return False
    is_later: bool = event["metadata"]["creationTimestamp"] >= meta["creationTimestamp"]
    return is_later and parse_pod_name(meta["name"], about.get("name", "")) is not None


async def _follow(cluster: Cluster, job: Object) -> None:
    target = screen.console()
    screen.note(f"events of job {job['metadata']['name']}, as they happen; Ctrl-C ends this")
    seen: set[tuple[str, str]] = set()
    async with followed(cluster, _path(cluster)) as changes:
        async for change in changes:
            items = [] if change.kind == "DELETED" else change.objects
            fresh = [one for one in items if concerns(one, job) and _key(one) not in seen]
            seen.update(map(_key, fresh))
            for row in _rows(fresh, job):
                target.print(screen.event_line(row), soft_wrap=True)


def _rows(items: list[Object], job: Object) -> list[EventRow]:
    return sorted((event_row(one) for one in items if concerns(one, job)), key=lambda row: row.time)


def _key(event: Object) -> tuple[str, str]:
    return event["metadata"]["uid"], event["metadata"]["resourceVersion"]


def _path(cluster: Cluster) -> str:
    return f"/api/v1/namespaces/{cluster.namespace}/events"
