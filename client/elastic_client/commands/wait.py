"""`wait`: waits until a job has ended, and shows a bar meanwhile; the exit code is the outcome."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from elastic_api.status import ConditionType
from elastic_client import screen
from elastic_client.cluster import Cluster, Object
from elastic_client.command import JobName
from elastic_client.documents import JobReport, job_report
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import check_name, jobs_path, no_such_job
from elastic_client.watching import followed
from elastic_client.words import counted, printable, sizes

if TYPE_CHECKING:
    from rich.progress import Progress

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "": 1}


def duration(text: str) -> float:
    """The seconds of `90`, `90s`, `10m`, `2h` or `1d`. Raises ClientError, USAGE for anything else."""
    if (match := _DURATION.fullmatch(text.strip())) is None:
        raise ClientError(Code.USAGE, f"--timeout {text!r}: write seconds, or a number with s, m, h or d, such as 10m")
    return float(match[1]) * _SECONDS[match[2] or ""]


Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=duration,
        metavar="TIME",
        help="The longest wait: 90, 90s, 10m, 2h or 1d. Default: until the job ends.",
    ),
]


@dataclass(slots=True)
class Seen:
    """The last state of the job, and its outcome; None before its end."""

    report: JobReport | None = None
    code: Code | None = None


class Shown(Protocol):
    """The output while the job runs."""

    def update(self, report: JobReport) -> None:
        """Show a change of the job."""


async def wait(cluster: Cluster, job: JobName, *, timeout: Timeout = None) -> Code:
    """Wait until a job has ended. Exit code 0: it succeeded, 1: it failed, 2: time ran out."""
    return await await_end(cluster, job, timeout)


async def await_end(cluster: Cluster, job: str, seconds: float | None, *, uid: str = "") -> Code:
    """The job's outcome. Reports on stderr; `uid` is that of `states`. Raises ClientError, NOT_FOUND."""
    check_name(job)
    seen = Seen()
    with suppress(TimeoutError), shown(job) as bar:

        def look(body: Object) -> None:
            seen.report, seen.code = job_report(body), ended(body)
            bar.update(seen.report)

        await at_its_end(cluster, job, seconds, look=look, uid=uid)
    screen.note(conclusion(job, seen, seconds, see=cluster.command))
    return Code.TIMED_OUT if seen.code is None else seen.code


def conclusion(job: str, seen: Seen, seconds: float | None, *, see: Callable[[str], str]) -> str:
    """The outcome of the wait, in one line; `see` makes the command with more details."""
    state = seen.report.state if seen.report else None
    message = state.message if state else ""
    if seen.code == Code.DONE:
        return f"job {job} succeeded: {message}"
    if seen.code == Code.FAILED:
        return f"job {job} failed: {message} See {see(f'logs {job}')}"
    is_ = f"it is {state.reason}" if state else "no operator has looked at it"
    return f"job {job} has not ended within {seconds or 0:g} s: {is_}; see {see(f'why {job}')}"


def _nothing(_: Object) -> None:
    """Show nothing."""


async def at_its_end(
    cluster: Cluster,
    job: str,
    seconds: float | None,
    *,
    look: Callable[[Object], None] = _nothing,
    uid: str = "",
) -> Object:
    """The job once it has ended; `look` gets each state, `uid` is that of `states`. `seconds` None is no limit.

    The time begins with the server's first answer: connecting has a separate limit.

    Raises:
        TimeoutError: the job has not ended within that time.
        ClientError: NOT_FOUND if the job does not exist (any more).
    """
    clock = asyncio.get_running_loop().time
    async with asyncio.timeout(None) as limit, aclosing(states(cluster, job, uid=uid)) as bodies:
        async for body in bodies:
            look(body)
            if ended(body) is not None:
                return body
            if limit.when() is None and seconds is not None:
                limit.reschedule(clock() + seconds)
    raise AssertionError("a watch has no end of its own")


async def states(cluster: Cluster, job: str, *, uid: str = "") -> AsyncGenerator[Object]:
    """The job's present state, and each later one.

    A caller that has seen the job passes its `uid`: a missing job then counts as deleted, and another job of its name
    is not followed instead.

    Raises ClientError, NOT_FOUND if the job does not exist (any more).
    """
    async with followed(cluster, jobs_path(cluster.namespace), fieldSelector=f"metadata.name={job}") as changes:
        async for change in changes:
            found = change.objects
            if not found and not uid:
                raise await no_such_job(cluster, job)
            if not found or change.kind == "DELETED" or uid not in ("", found[0]["metadata"]["uid"]):
                raise ClientError(Code.NOT_FOUND, f"job {job} was deleted meanwhile")
            uid = found[0]["metadata"]["uid"]
            yield found[0]


def ended(job: Object) -> Code | None:
    """The job's outcome; None before its end."""
    conditions = (job.get("status") or {}).get("conditions") or []
    true = {one["type"] for one in conditions if one["status"] == "True"}
    if ConditionType.SUCCEEDED in true:
        return Code.DONE
    return Code.FAILED if ConditionType.FAILED in true else None


def told_of(report: JobReport) -> str:
    """The job in a few words."""
    job = report.job
    step = "" if job.step is None else f", step {job.step}"
    left = "" if job.eta is None else f", {job.eta} left"
    return f"{job.status}, {counted(job.pods, 'pod')} ({sizes(job.min_pods, job.max_pods)} allowed){step}{left}"


@contextmanager
def shown(job: str) -> Iterator[Shown]:
    """A bar on a terminal; elsewhere a line on stderr for each change of state."""
    if not sys.stderr.isatty():
        yield Lines(job)
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen.console(sys.stderr), transient=True) as progress:
        yield Bar(job, progress)


class Lines:
    """Prints a line for each change."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.last = ""
        screen.note(f"waiting until job {job} has ended")

    def update(self, report: JobReport) -> None:
        """One line where state or size changed."""
        message = told_of(report).partition(" allowed)")[0] + " allowed)"
        if message != self.last:
            screen.note(f"job {self.job}: {message}")
        self.last = message


class Bar:
    """A bar for the part of the training that is done; if that is unknown, for the job's part of its full size."""

    def __init__(self, job: str, progress: Progress) -> None:
        self.progress = progress
        self.job = job
        self.task = progress.add_task(f"job {job}", total=None)

    def update(self, report: JobReport) -> None:
        """Show the job's present state, and its bar."""
        text = printable(f"job {self.job}: {told_of(report)}")
        done, total = report.job.progress_percentage, 100
        if done is None:
            done, total = report.job.pods, report.job.max_pods
        self.progress.update(self.task, description=text, completed=done, total=total)
