"""Jobs from Python, as in a notebook: the commands as functions that return documents and raise `ClientError`.

`AsyncJobClient` has the code. `JobClient` is the same for code that does not await; each of its calls has an event loop
in a separate thread, since the notebook's loop already runs. Neither imports the operator. Both connect for each call,
with the rights and the namespace of `kubectl`.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from elastic_client import screen
from elastic_client.cluster import Cluster, Place, connected
from elastic_client.code import ship
from elastic_client.commands import logs
from elastic_client.commands.change import bounds, patched, remove, resized
from elastic_client.commands.wait import at_its_end
from elastic_client.documents import JobList, JobReport, job_report, status_of
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import all_jobs, check_name, check_namespace, find_job
from elastic_client.words import now

if TYPE_CHECKING:
    from elastic_client.code.folder import Code as Folder
    from elastic_client.convert.run import RunFlags

T = TypeVar("T")
Lines = list[str]
LOOK_SECONDS = 0.01
_CONNECTING = threading.Lock()


class AsyncJobClient:
    """The jobs of a namespace. Missing arguments are read from the kubeconfig, as by kubectl.

    Each method raises ClientError, whose text is one line that says what to do, and whose `code` is the exit code of
    the command.
    """

    def __init__(
        self, namespace: str | None = None, *, context: str | None = None, kubeconfig: str | None = None
    ) -> None:
        self._place = Place(namespace, context, kubeconfig)

    async def create(self, job: Mapping[str, Any] | RunFlags, *, code: str | Path = "") -> JobReport:
        """A new job from a manifest, or from the flags of `kubectl elastic run`; with the folder `code` at /code.

        Raises:
            ClientError: USAGE for a flag or the folder, REFUSED for a wrong field, or if the name is in use.
        """
        manifest, shipped = _made(job, code)
        namespace = (manifest.get("metadata") or {}).get("namespace")
        async with self._cluster(namespace) as cluster:
            return job_report(await ship.create(cluster, manifest, shipped))

    async def get(self, name: str) -> JobReport:
        """The job as it is now. Raises ClientError, NOT_FOUND if it does not exist."""
        async with self._cluster() as cluster:
            return job_report(await find_job(cluster, name))

    async def list(self, *, all_namespaces: bool = False) -> JobList:
        """All jobs, by namespace and name. Raises ClientError, NOT_FOUND if the namespace does not exist."""
        async with self._cluster() as cluster:
            found = await all_jobs(cluster, "" if all_namespaces else cluster.namespace)
            if not found.jobs and not all_namespaces:
                await check_namespace(cluster)
            return found

    async def wait(self, name: str, *, timeout_seconds: float | None = None) -> JobReport:
        """The job once it has ended: `report.job.status` is then Succeeded or Failed. No timeout means for ever.

        Raises:
            ClientError: TIMED_OUT, or NOT_FOUND if the job does not exist (any more).
        """
        check_name(name)
        try:
            async with self._cluster() as cluster:
                return job_report(await at_its_end(cluster, name, timeout_seconds))
        except TimeoutError:
            message = f"job {name} has not ended within {timeout_seconds:g} s: see `why`"
            raise ClientError(Code.TIMED_OUT, message) from None

    async def logs(
        self, name: str, *, rank: int | None = None, pod: str | None = None, tail: int | None = None
    ) -> Lines:
        """The output of the job's pods, by time, with rank and pod before each line unless it is one pod.

        `rank` or `pod` choose one pod, `tail` the last lines of each. Raises ClientError, NOT_FOUND if no pod has
        started.
        """
        async with self._cluster() as cluster, AsyncExitStack() as stack:
            body = await find_job(cluster, name)
            status = status_of(body)
            only = pod or (None if rank is None else logs.pod_of_rank(status, rank))
            pods = (await cluster.get(logs.pods_path(cluster), labelSelector=logs.selector(body)))["items"]
            chosen = logs.choose(pods, status, job=name, only=only)
            times = {"timestamps": "true"} if len(chosen) > 1 else {}
            limit = {} if tail is None else {"tailLines": tail}
            streams = [await stack.enter_async_context(logs.lines_of(cluster, pod, **times, **limit)) for pod in chosen]
            merged = logs.merged(chosen, streams)
            return [f"[{pod.prefix}] {line}" if pod.prefix else line async for pod, line in merged]

    async def scale(self, name: str, size: int | str) -> JobReport:
        """Change the number of pods: "2:8" sets both bounds, 4 the upper one. Raises ClientError, USAGE."""
        wanted = bounds(str(size))
        async with self._cluster() as cluster:
            present = job_report(await find_job(cluster, name)).job
            return await resized(cluster, present, wanted)

    async def suspend(self, name: str) -> JobReport:
        """Delete the job's pods; the job keeps its place and its checkpoints."""
        return await self._set_suspend(name, suspend=True)

    async def resume(self, name: str) -> JobReport:
        """Let the job run again, from its last checkpoint."""
        return await self._set_suspend(name, suspend=False)

    async def delete(self, name: str) -> None:
        """Delete the job with its pods; checkpoints on volumes stay. Raises ClientError, NOT_FOUND."""
        check_name(name)
        async with self._cluster() as cluster:
            await remove(cluster, name)

    async def why(self, name: str) -> str:
        """Why the job is not running or not bigger, and what each change of size cost, as in `kubectl elastic why`."""
        report = await self.get(name)
        text = io.StringIO()
        screen.print_why(screen.console(text), report, now())
        return text.getvalue()

    async def _set_suspend(self, name: str, *, suspend: bool) -> JobReport:
        async with self._cluster() as cluster:
            await find_job(cluster, name)
            return await patched(cluster, name, {"suspend": suspend})

    @asynccontextmanager
    async def _cluster(self, namespace: str | None = None) -> AsyncIterator[Cluster]:
        """The cluster; a manifest's own `namespace` counts if none was named."""
        place = Place(self._place.namespace or namespace, self._place.context, self._place.kubeconfig)
        async with AsyncExitStack() as stack:
            async with _alone():
                folder = tempfile.tempdir
                try:
                    cluster = await stack.enter_async_context(connected(place))
                finally:
                    # A command owns all temporary files of its process. Here the notebook's files must not be removed.
                    tempfile.tempdir = folder
            yield cluster


class JobClient:
    """The same as AsyncJobClient, without `await`; also where an event loop runs, as in a notebook."""

    def __init__(
        self, namespace: str | None = None, *, context: str | None = None, kubeconfig: str | None = None
    ) -> None:
        self._jobs = AsyncJobClient(namespace, context=context, kubeconfig=kubeconfig)

    def create(self, job: Mapping[str, Any] | RunFlags, *, code: str | Path = "") -> JobReport:
        """See AsyncJobClient.create."""
        return _result(self._jobs.create(job, code=code))

    def get(self, name: str) -> JobReport:
        """See AsyncJobClient.get."""
        return _result(self._jobs.get(name))

    def list(self, *, all_namespaces: bool = False) -> JobList:
        """See AsyncJobClient.list."""
        return _result(self._jobs.list(all_namespaces=all_namespaces))

    def wait(self, name: str, *, timeout_seconds: float | None = None) -> JobReport:
        """See AsyncJobClient.wait. Ctrl-C ends the wait."""
        return _result(self._jobs.wait(name, timeout_seconds=timeout_seconds))

    def logs(self, name: str, *, rank: int | None = None, pod: str | None = None, tail: int | None = None) -> Lines:
        """See AsyncJobClient.logs."""
        return _result(self._jobs.logs(name, rank=rank, pod=pod, tail=tail))

    def scale(self, name: str, size: int | str) -> JobReport:
        """See AsyncJobClient.scale."""
        return _result(self._jobs.scale(name, size))

    def suspend(self, name: str) -> JobReport:
        """See AsyncJobClient.suspend."""
        return _result(self._jobs.suspend(name))

    def resume(self, name: str) -> JobReport:
        """See AsyncJobClient.resume."""
        return _result(self._jobs.resume(name))

    def delete(self, name: str) -> None:
        """See AsyncJobClient.delete."""
        _result(self._jobs.delete(name))

    def why(self, name: str) -> str:
        """See AsyncJobClient.why."""
        return _result(self._jobs.why(name))


@asynccontextmanager
async def _alone() -> AsyncIterator[None]:
    """Let only one client connect at a time, in any thread, because each changes the folder of temporary files."""
    while not _CONNECTING.acquire(blocking=False):  # noqa: ASYNC110 - clients are in several event loops
        await asyncio.sleep(LOOK_SECONDS)
    try:
        yield
    finally:
        _CONNECTING.release()


def _made(job: Mapping[str, Any] | RunFlags, code: str | Path) -> tuple[Mapping[str, Any], Folder | None]:
    """The manifest and the code that it mounts. Raises ClientError, USAGE for a mistake in either."""
    from elastic_client.code import folder, objects
    from elastic_client.convert.converted import ConvertError
    from elastic_client.convert.run import from_flags

    try:
        if not isinstance(job, Mapping):
            made = from_flags(replace(job, code=str(code)) if code else job)
            return made.manifest, made.code
        if not code:
            return job, None
        shipped = folder.read(code)
        return objects.with_code(job, shipped), shipped
    except ConvertError as error:
        raise ClientError(Code.USAGE, str(error)) from None


def _result(work: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, from a separate thread. If the caller is interrupted, the coroutine is cancelled."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="JobClient", daemon=True)
    thread.start()
    try:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_others() -> None:
    """Cancel the running tasks, even if the interrupt came before the caller waited; they close their connections."""
    loop = asyncio.get_running_loop()
    if others := asyncio.all_tasks(loop) - {asyncio.current_task()}:
        for other in others:
            other.cancel()
        await asyncio.wait(others)
    await loop.shutdown_asyncgens()
