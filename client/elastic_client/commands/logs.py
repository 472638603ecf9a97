"""`logs`: what the pods of a job print, with the pod and its rank before each line.

Logs that are complete are merged by the times at which the kubelets took the lines in; with -f lines come as they come.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from elastic_api.status import JobStatus
from elastic_client import screen
from elastic_client.cluster import ANSWER_SECONDS, Cluster, Object
from elastic_client.command import JobName
from elastic_client.documents import status_of
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import find_job, jobs_path
from elastic_client.watching import followed
from elastic_client.words import near
from elastic_worker.contract import LABEL_JOB_NAME, LABEL_JOB_UID, MAIN_CONTAINER

MOST_PODS = 64
"""Each pod takes a connection of its own."""
LAST_LINES_SECONDS = 5
"""For what is still on its way when the job has ended."""
COLOURS = (36, 33, 32, 35, 34, 31)
"""Of prefixes, by pod: ANSI's codes."""

Rank = Annotated[
    int | None, typer.Option("--rank", min=0, help="Only the pod with this training process; Elastic mode.")
]
PodName = Annotated[str | None, typer.Option("--pod", help="Only this pod, such as toy-worker-0.")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends, with pods that join.")]
Tail = Annotated[int | None, typer.Option("--tail", min=0, help="Only so many of the last lines of each pod.")]


@dataclass(frozen=True, slots=True)
class Source:
    """A pod's main container. `prefix` stands before each of its lines; "" where there is only one pod."""

    pod: str
    container: str
    prefix: str = ""


async def logs(
    cluster: Cluster,
    job: JobName,
    *,
    rank: Rank = None,
    pod: PodName = None,
    follow: Follow = False,
    tail: Tail = None,
) -> None:
    """Print the logs of a job's pods, all of them or one."""
    body = await find_job(cluster, job)
    status = status_of(body)
    only = pod or (None if rank is None else pod_of_rank(status, rank))
    options = {} if tail is None else {"tailLines": tail}
    if follow:
        await follow_logs(cluster, body, only, options)
        return
    pods = (await cluster.get(_pods_path(cluster), labelSelector=selector(body)))["items"]
    chosen = choose(pods, status, job=job, only=only)
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(_lines(cluster, one, **_times(chosen), **options)) for one in chosen]
        async for source_, line in merged(chosen, streams):
            _print(source_, line, chosen.index(source_))


def pod_of_rank(status: JobStatus, rank: int) -> str:
    """The pod with the training process of that rank. Raises ClientError, USAGE or NOT_FOUND, where it is not known."""
    known = sorted((pod.rank, pod.name) for pod in status.pods if pod.rank is not None)
    if not known:
        names = ", ".join(pod.name for pod in status.pods[:3]) or "see `kubectl elastic describe`"
        told = f"--rank {rank}: ranks are known in Elastic mode only, once training has begun; choose a --pod: {names}"
        raise ClientError(Code.USAGE, told)
    if rank >= status.world_size:
        raise ClientError(Code.NOT_FOUND, f"--rank {rank}: the ranks are 0 to {status.world_size - 1} now")
    return [name for first, name in known if first <= rank][-1]


def choose(pods: Sequence[Object], status: JobStatus, *, job: str, only: str | None) -> list[Source]:
    """The pods to read, by name. Raises ClientError where none of them is there, or too many are."""
    names = [pod["metadata"]["name"] for pod in pods]
    if only is not None and only not in names:
        raise ClientError(Code.NOT_FOUND, f"--pod {only}: job {job} has none of that name now; {near(only, names)}")
    if not pods:
        ready = next((one for one in status.conditions if one.type == "Ready"), None)
        state = f"{ready.reason}. {ready.message}" if ready else "no operator has looked at it"
        raise ClientError(Code.NOT_FOUND, f"job {job} has no pods now: {state}")
    chosen = [pod for pod in pods if only in (None, pod["metadata"]["name"]) and has_started(pod)]
    if len(chosen) > MOST_PODS:
        raise ClientError(Code.USAGE, f"job {job} has {len(chosen)} pods: choose one by --rank or --pod")
    if not chosen:
        raise ClientError(Code.NOT_FOUND, f"no container of job {job} has started yet: see `kubectl elastic why`")
    sources = sorted((source(pod, job, status) for pod in chosen), key=lambda one: one.pod)
    return sources if len(sources) > 1 else [Source(sources[0].pod, sources[0].container)]


def source(pod: Mapping[str, Any], job: str, status: JobStatus) -> Source:
    """The pod's main container, with a prefix such as `0 master-0`."""
    name = pod["metadata"]["name"]
    rank = next((known.rank for known in status.pods if known.name == name), None)
    short = name.removeprefix(f"{job}-")
    return Source(name, main_container_of(pod), short if rank is None else f"{rank} {short}")


def main_container_of(pod: Mapping[str, Any]) -> str:
    """The container that trains: the one called pytorch, else the first."""
    names: list[str] = [container["name"] for container in pod["spec"]["containers"]]
    return MAIN_CONTAINER if MAIN_CONTAINER in names else names[0]


def has_started(pod: Mapping[str, Any]) -> bool:
    """Whether there is a log of its main container."""
    name = main_container_of(pod)
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    states = [one.get("state") or {} for one in statuses if one["name"] == name]
    return any("running" in state or "terminated" in state for state in states)


def selector(job: Object) -> str:
    """Of the pods of this job, not of an earlier one of its name."""
    return f"{LABEL_JOB_NAME}={job['metadata']['name']},{LABEL_JOB_UID}={job['metadata']['uid']}"


async def merged(sources: Sequence[Source], streams: Sequence[AsyncIterator[str]]) -> AsyncIterator[tuple[Source, str]]:
    """The lines of all logs in time order; each begins with its time, which is left out, if there are several."""
    if len(streams) == 1:
        async for line in streams[0]:
            yield sources[0], line
        return
    heads = dict(enumerate(await asyncio.gather(*(anext(stream, None) for stream in streams))))
    while waiting := {index: line for index, line in heads.items() if line is not None}:
        index = min(waiting, key=lambda one: waiting[one].partition(" ")[0])
        yield sources[index], waiting[index].partition(" ")[2]
        heads[index] = await anext(streams[index], None)


async def follow_logs(
    cluster: Cluster, job: Object, only: str | None = None, options: Mapping[str, int] | None = None
) -> None:
    """Prints what the pods print until the job has ended, and a little longer for the last lines."""
    screen.note(f"logs of job {job['metadata']['name']} until it ends; Ctrl-C ends this")
    streams: dict[str, asyncio.Task[None]] = {}
    starting = asyncio.create_task(_start_streams(cluster, job, only, options or {}, streams))
    ending = asyncio.create_task(_await_end(cluster, job))
    try:
        await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
        ending.result()
        if streams:
            await asyncio.wait(streams.values(), timeout=LAST_LINES_SECONDS)
    finally:
        tasks = (starting, ending, *streams.values())
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _start_streams(
    cluster: Cluster, job: Object, only: str | None, options: Mapping[str, int], streams: dict[str, asyncio.Task[None]]
) -> None:
    """A stream for each pod as it starts; a pod that comes again under its name is another one."""
    name, status = job["metadata"]["name"], status_of(job)
    async with followed(cluster, _pods_path(cluster), labelSelector=selector(job)) as changes:
        async for change in changes:
            for pod in change.objects if change.kind != "DELETED" else ():
                uid = pod["metadata"]["uid"]
                if sum(not task.done() for task in streams.values()) >= MOST_PODS:
                    raise ClientError(
                        Code.USAGE, f"job {name} has more than {MOST_PODS} pods: choose by --rank or --pod"
                    )
                if uid not in streams and has_started(pod) and only in (None, pod["metadata"]["name"]):
                    one = source(pod, name, status) if only is None else Source(only, main_container_of(pod))
                    streams[uid] = asyncio.create_task(_stream(cluster, one, len(streams), options))


async def _stream(cluster: Cluster, one: Source, place: int, options: Mapping[str, int]) -> None:
    """A pod that goes takes its log with it: what comes then is no error of the command."""
    try:
        async with _lines(cluster, one, follow="true", **options) as lines:
            async for line in lines:
                _print(one, line, place)
                sys.stdout.flush()
    except ClientError as error:
        screen.note(f"{one.pod}: {error}")


async def _await_end(cluster: Cluster, job: Object) -> None:
    meta = job["metadata"]
    path = jobs_path(cluster.namespace)
    async with followed(cluster, path, fieldSelector=f"metadata.name={meta['name']}") as changes:
        async for change in changes:
            same = [one for one in change.objects if one["metadata"]["uid"] == meta["uid"]]
            if not same or change.kind == "DELETED" or status_of(same[0]).finished:
                return


def _print(one: Source, line: str, place: int) -> None:
    """The line as it is, as `kubectl logs` does."""
    prefix = f"[{one.prefix}] " if one.prefix else ""
    if prefix and sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        prefix = f"\x1b[{COLOURS[place % len(COLOURS)]}m{prefix}\x1b[0m"
    sys.stdout.write(f"{prefix}{line}\n")


def _times(chosen: Sequence[Source]) -> dict[str, str]:
    return {"timestamps": "true"} if len(chosen) > 1 else {}


def _pods_path(cluster: Cluster) -> str:
    return f"/api/v1/namespaces/{cluster.namespace}/pods"


def _lines(cluster: Cluster, one: Source, **params: Any) -> AbstractAsyncContextManager[AsyncIterator[str]]:
    """The log of a pod; without a bound between two lines where it is followed."""
    pause_seconds = None if "follow" in params else ANSWER_SECONDS
    path = f"{_pods_path(cluster)}/{one.pod}/log"
    return cluster.lines(path, pause_seconds=pause_seconds, container=one.container, **params)
