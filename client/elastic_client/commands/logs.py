"""`logs`: the output of a job's pods, with the pod and its rank before each line.

Complete logs are merged by the times at which the kubelets received the lines; with -f lines are printed as they
arrive.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from elastic_api.pod_names import parse_pod_name
from elastic_api.status import JobStatus
from elastic_client import screen
from elastic_client.cluster import ANSWER_SECONDS, Cluster, ConnectionLostError, Object
from elastic_client.command import JobName
from elastic_client.documents import status_of
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import find_job, jobs_path
from elastic_client.watching import Change, followed
from elastic_client.words import near
from elastic_worker.contract import LABEL_JOB_NAME, LABEL_JOB_UID, MAIN_CONTAINER

MOST_PODS = 64
"""The most pods, since each takes a connection."""
LAST_LINES_SECONDS = 5
"""How long to wait for the last lines when the job has ended."""
PAUSE_SECONDS = 1
MOST_PAUSE_SECONDS = 30
"""The longest pause before a log is requested again after a broken connection. It doubles until a line arrives."""
_TIMED = re.compile(r"(\d{4}-\d\d-\d\dT\S+) ")
COLOURS = (36, 33, 32, 35, 34, 31)
"""The colours of prefixes by pod, as ANSI codes."""

Rank = Annotated[
    int | None, typer.Option("--rank", min=0, help="Only the pod with this training process; Elastic mode.")
]
PodName = Annotated[str | None, typer.Option("--pod", help="Only this pod, such as toy-worker-0.")]
Follow = Annotated[
    bool, typer.Option("-f", "--follow", help="Follow the logs until the job ends, also of pods that join.")
]
Tail = Annotated[int | None, typer.Option("--tail", min=0, help="Only this number of last lines of each pod.")]


@dataclass(frozen=True, slots=True)
class Source:
    """A pod's main container. `prefix` is printed before each of its lines; "" for a single pod."""

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
    if rank is not None and pod is not None:
        raise ClientError(Code.USAGE, f"--rank {rank} and --pod {pod}: write one of the two")
    body = await find_job(cluster, job)
    status = status_of(body)
    only = pod if rank is None else pod_of_rank(status, rank)
    options = {} if tail is None else {"tailLines": tail}
    if follow:
        await follow_logs(cluster, body, only, options)
        return
    pods = (await cluster.get(pods_path(cluster), labelSelector=selector(body)))["items"]
    chosen = choose(pods, status, job=job, only=only)
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(lines_of(cluster, one, **_times(chosen), **options)) for one in chosen
        ]
        async for source_, line in merged(chosen, streams):
            _print(source_.prefix, line, chosen.index(source_))


def pod_of_rank(status: JobStatus, rank: int) -> str:
    """The pod with the training process of that rank. Raises ClientError, USAGE or NOT_FOUND, if it is not known."""
    known = sorted((pod.rank, pod.name) for pod in status.pods if pod.rank is not None)
    if not known:
        names = ", ".join(pod.name for pod in status.pods[:3]) or "see `kubectl elastic describe`"
        message = "ranks are known in Elastic mode only, once training has begun; choose a --pod"
        raise ClientError(Code.USAGE, f"--rank {rank}: {message}: {names}")
    if rank >= status.world_size:
        raise ClientError(Code.NOT_FOUND, f"--rank {rank}: the ranks are 0 to {status.world_size - 1} now")
    return [name for first, name in known if first <= rank][-1]


def choose(pods: Sequence[Object], status: JobStatus, *, job: str, only: str | None) -> list[Source]:
    """The pods to read, by name. Raises ClientError if none of them exists, or if there are too many."""
    names = [pod["metadata"]["name"] for pod in pods]
    if only is not None and only not in names:
        hint = near(only, names, lead="it has: ") or "it has none"
        raise ClientError(Code.NOT_FOUND, f"--pod {only}: job {job} has none of that name now; {hint}")
    if not pods:
        ready = next((one for one in status.conditions if one.type == "Ready"), None)
        state = f"{ready.reason}. {ready.message}" if ready else "no operator has looked at it"
        raise ClientError(Code.NOT_FOUND, f"job {job} has no pods now: {state}")
    chosen = [pod for pod in pods if only in (None, pod["metadata"]["name"]) and has_started(pod)]
    if len(chosen) > MOST_PODS:
        raise ClientError(Code.USAGE, f"job {job} has {len(chosen)} pods: choose one by --rank or --pod")
    if not chosen:
        raise ClientError(Code.NOT_FOUND, f"no container of job {job} has started yet: see `kubectl elastic why`")
    ranks = ranks_of(status)
    sources = sorted((source(pod, job, ranks) for pod in chosen), key=lambda one: one.pod)
    return sources if len(sources) > 1 else [Source(sources[0].pod, sources[0].container)]


def source(pod: Mapping[str, Any], job: str, ranks: Mapping[str, int | None]) -> Source:
    """The pod's main container, with its prefix."""
    name = pod["metadata"]["name"]
    return Source(name, main_container_of(pod), prefix(name, job, ranks.get(name)))


def ranks_of(status: JobStatus) -> dict[str, int | None]:
    """The rank of each pod's first process; None if it is not known."""
    return {pod.name: pod.rank for pod in status.pods}


def prefix(pod: str, job: str, rank: int | None) -> str:
    """The prefix of a pod's lines: `0 master-0`."""
    short = pod.removeprefix(f"{job}-")
    return short if rank is None else f"{rank} {short}"


def main_container_of(pod: Mapping[str, Any]) -> str:
    """The container that trains: the one named pytorch, else the first."""
    names: list[str] = [container["name"] for container in pod["spec"]["containers"]]
    return MAIN_CONTAINER if MAIN_CONTAINER in names else names[0]


def has_started(pod: Mapping[str, Any]) -> bool:
    """Whether its main container has a log."""
    name = main_container_of(pod)
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    states = [one.get("state") or {} for one in statuses if one["name"] == name]
    return any("running" in state or "terminated" in state for state in states)


def selector(job: Object) -> str:
    """The selector of the pods of this job, without pods of an earlier job of its name."""
    return f"{LABEL_JOB_NAME}={job['metadata']['name']},{LABEL_JOB_UID}={job['metadata']['uid']}"


async def merged(sources: Sequence[Source], streams: Sequence[AsyncIterator[str]]) -> AsyncIterator[tuple[Source, str]]:
    """The lines of all logs in time order. With several logs, each line begins with its time, which is removed."""
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
    """Print the pods' output until the job has ended, and for some more seconds for the last lines.

    Raises ClientError, NOT_FOUND if the job cannot have the pod `only`. A pod that does not exist yet is awaited.
    """
    screen.note(f"logs of job {job['metadata']['name']} until it ends; Ctrl-C ends this")
    seen = Seen(job, only, options or {}, asyncio.get_running_loop().create_future(), ranks=ranks_of(status_of(job)))
    starting = asyncio.create_task(_start_streams(cluster, seen))
    ending = asyncio.create_task(_await_end(cluster, seen))
    try:
        await asyncio.wait((starting, ending, seen.failed), return_when=asyncio.FIRST_COMPLETED)
        for one in (starting, seen.failed):
            if one.done():
                one.result()
        ending.result()
        if seen.streams:
            await asyncio.wait(seen.streams.values(), timeout=LAST_LINES_SECONDS)
    finally:
        tasks = (starting, ending, seen.failed, *seen.streams.values())
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@dataclass(slots=True)
class Seen:
    """A job whose logs are followed: the uid of each existing pod, the ranks, and the streams by uid."""

    job: Object
    only: str | None
    options: Mapping[str, int]
    failed: asyncio.Future[None]
    pods: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, int | None] = field(default_factory=dict)
    streams: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    listed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        """The name of the job."""
        name: str = self.job["metadata"]["name"]
        return name

    def take(self, change: Change) -> None:
        """Update the present pods."""
        names = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in change.objects}
        if change.kind == "LIST":
            self.pods = names
        elif change.kind == "DELETED":
            self.pods = {name: uid for name, uid in self.pods.items() if names.get(name) != uid}
        else:
            self.pods |= names

    def prefix(self, pod: str) -> str:
        """The prefix of a pod's lines, with its present rank."""
        return "" if self.only else prefix(pod, self.name, self.ranks.get(pod))

    def ended(self, stream: asyncio.Task[None]) -> None:
        """End the command at an unexpected error of a stream, such as an output that is not read any more."""
        if not stream.cancelled() and (error := stream.exception()) and not self.failed.done():
            self.failed.set_exception(error)


@dataclass(slots=True)
class Position:
    """How far a log has been printed: the time of its last line, and how many of its lines have that time."""

    time: str = ""
    lines: int = 0
    repeated: int = 0
    is_behind: bool = False

    def options(self, first: Mapping[str, int]) -> Mapping[str, int | str]:
        """The options of a request to a kubelet: `first`, later a time in whole seconds, so some lines arrive again."""
        if not self.time:
            return first
        self.is_behind, self.repeated = True, self.lines
        return {"sinceTime": self.time}

    def fresh(self, line: str) -> str | None:
        """The line without its time; None for a line printed before. A line without a time is from the kubelet."""
        if (match := _TIMED.match(line)) is None:
            return line
        time = match[1]
        if self.is_behind:
            if time < self.time:
                return None
            if time == self.time and self.repeated:
                self.repeated -= 1
                return None
            self.is_behind = False
        self.lines = self.lines + 1 if time == self.time else 1
        self.time = time
        return line[match.end() :]


async def _start_streams(cluster: Cluster, seen: Seen) -> None:
    """Start a stream for each pod that has started. A new pod of the same name is another pod."""
    async with followed(cluster, pods_path(cluster), labelSelector=selector(seen.job)) as changes:
        async for change in changes:
            seen.take(change)
            if seen.only and not seen.listed.is_set():
                check_pod(seen.only, seen.pods, job=seen.name)
            for pod in change.objects if change.kind != "DELETED" else ():
                _start_stream(cluster, seen, pod)
            seen.listed.set()


def _start_stream(cluster: Cluster, seen: Seen, pod: Object) -> None:
    """Start a pod's stream, unless it exists, has no log yet, or is not wanted. Raises ClientError for too many."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    if uid in seen.streams or not has_started(pod) or seen.only not in (None, name):
        return
    if sum(not task.done() for task in seen.streams.values()) >= MOST_PODS:
        raise ClientError(Code.USAGE, f"job {seen.name} has more than {MOST_PODS} pods: choose by --rank or --pod")
    one = Source(name, main_container_of(pod))
    seen.streams[uid] = asyncio.create_task(_stream(cluster, seen, one, uid, len(seen.streams)))
    seen.streams[uid].add_done_callback(seen.ended)


def check_pod(name: str, names: Iterable[str], *, job: str) -> None:
    """Report on stderr that the pod does not exist yet. Raises ClientError, NOT_FOUND if it is no pod of the job."""
    if name in names:
        return
    hint = near(name, names, lead="it has: ") or "it has none now"
    if parse_pod_name(job, name) is None:
        raise ClientError(Code.NOT_FOUND, f"--pod {name}: job {job} has no pod of that name; {hint}")
    screen.note(f"pod {name} does not exist yet: waiting for it; {hint}")


async def _stream(cluster: Cluster, seen: Seen, one: Source, uid: str, place: int) -> None:
    """Print the log to its end. If the connection breaks, the log is requested again while the pod exists.

    A deleted pod's log is deleted with it: an error after that is no error of the command.
    """
    position, pause = Position(), PAUSE_SECONDS / 2
    while seen.pods.get(one.pod) == uid:
        before = position.time
        try:
            options = position.options(seen.options)
            async with lines_of(cluster, one, follow="true", timestamps="true", **options) as lines:
                async for line in lines:
                    if (text := position.fresh(line)) is not None:
                        _print(seen.prefix(one.pod), text, place)
                        sys.stdout.flush()
        except ClientError as error:
            if not isinstance(error, ConnectionLostError):
                screen.note(f"{one.pod}: {error}")
            if error.code != Code.UNREACHABLE:
                return
        else:
            return
        pause = PAUSE_SECONDS if position.time != before else min(2 * pause, MOST_PAUSE_SECONDS)
        await asyncio.sleep(pause)


async def _await_end(cluster: Cluster, seen: Seen) -> None:
    """Wait until the job has ended and its last pods are known. Keeps the ranks up to date meanwhile."""
    meta = seen.job["metadata"]
    path = jobs_path(cluster.namespace)
    async with followed(cluster, path, fieldSelector=f"metadata.name={meta['name']}") as changes:
        async for change in changes:
            same = [one for one in change.objects if one["metadata"]["uid"] == meta["uid"]]
            status = status_of(same[0]) if same else JobStatus()
            seen.ranks.update(ranks_of(status))
            if not same or change.kind == "DELETED" or status.finished:
                break
    await seen.listed.wait()


def _print(prefix: str, line: str, place: int) -> None:
    """Print the line unchanged, as `kubectl logs` does."""
    before = f"[{prefix}] " if prefix else ""
    if before and sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        before = f"\x1b[{COLOURS[place % len(COLOURS)]}m{before}\x1b[0m"
    sys.stdout.write(f"{before}{line}\n")


def _times(chosen: Sequence[Source]) -> dict[str, str]:
    return {"timestamps": "true"} if len(chosen) > 1 else {}


def pods_path(cluster: Cluster) -> str:
    """The path of the pods of the namespace."""
    return f"/api/v1/namespaces/{cluster.namespace}/pods"


def lines_of(cluster: Cluster, one: Source, **params: Any) -> AbstractAsyncContextManager[AsyncIterator[str]]:
    """The log of a pod. A followed log has no time limit between two lines."""
    pause_seconds = None if "follow" in params else ANSWER_SECONDS
    path = f"{pods_path(cluster)}/{one.pod}/log"
    return cluster.lines(path, pause_seconds=pause_seconds, container=one.container, **params)
