"""`logs` on a real API server: jobs, pods and watches are real, and the test writes what kubelets would send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from elastic_client.cluster import Cluster, ConnectionLostError
from elastic_client.commands import logs as command
from elastic_client.exits import Code
from elastic_worker.contract import LABEL_JOB_NAME, LABEL_JOB_UID
from tests.apiserver.faults.lab import MERGE, await_service_account
from tests.client.conftest import Tenant
from tests.client.objects import ended_status, running_status, stored_pod

pytestmark = pytest.mark.apiserver
Then = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """What happens after the last line of most pods."""


def add_pod(api: httpx.Client, job: Mapping[str, Any], name: str) -> None:
    """A pod of the job whose container runs, as an operator and a kubelet would leave it."""
    namespace, meta = job["metadata"]["namespace"], job["metadata"]
    labels = {LABEL_JOB_NAME: meta["name"], LABEL_JOB_UID: meta["uid"]}
    spec = {"containers": [{"name": "pytorch", "image": "train:1"}]}
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.post(path, json={"metadata": {"name": name, "labels": labels}, "spec": spec}).raise_for_status()
    state = {"image": "train:1", "imageID": "", "ready": True, "restartCount": 0}
    statuses = [state | one for one in stored_pod(name)["status"]["containerStatuses"]]
    status = {"status": {"phase": "Running", "containerStatuses": statuses}}
    api.patch(f"{path}/{name}/status", headers=MERGE, json=status).raise_for_status()


def send(
    monkeypatch: pytest.MonkeyPatch, lines: Mapping[str, list[str]], then: Mapping[str, Then] | None = None
) -> None:
    """Lets each pod's log be these lines, after which something happens."""
    ask = Cluster.lines

    @asynccontextmanager
    async def answer(self: Cluster, path: str, **params: Any) -> AsyncIterator[AsyncIterator[str]]:
        if not path.endswith("/log"):
            async with ask(self, path, **params) as found:
                yield found
            return
        assert params["container"] == "pytorch"
        pod = path.split("/")[-2]

        async def text() -> AsyncIterator[str]:
            for number, line in enumerate(lines[pod][-params.get("tailLines", 100) :]):
                yield f"2026-01-01T00:00:0{number}Z {line}" if "timestamps" in params else line
            await (then or {}).get(pod, nothing)()

        yield text()

    monkeypatch.setattr(Cluster, "lines", answer)


@pytest.fixture
def job(tenant: Tenant, api: httpx.Client) -> dict[str, Any]:
    """A job with a master and a worker."""
    job = tenant.create(status=running_status())
    await_service_account(api, tenant.jobs.namespace)
    for name in ("toy-master-0", "toy-worker-0"):
        add_pod(api, job, name)
    return job


@pytest.mark.usefixtures("job")
def test_logs_of_all_pods_are_merged_by_time_behind_rank_and_pod(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    send(monkeypatch, {"toy-master-0": ["one", "three"], "toy-worker-0": ["two"]})
    assert tenant("logs", "toy").out.splitlines() == ["[0 master-0] one", "[4 worker-0] two", "[0 master-0] three"]
    assert tenant("logs", "toy", "--tail", "1").out.splitlines() == ["[0 master-0] three", "[4 worker-0] two"]


@pytest.mark.usefixtures("job")
def test_the_log_of_one_pod_is_found_by_a_rank_or_a_name(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    send(monkeypatch, {"toy-worker-0": ["mine"]})
    assert tenant("logs", "toy", "--rank", "5").out == "mine\n"
    assert tenant("logs", "toy", "--pod", "toy-worker-0").out == "mine\n"
    wrong = tenant("logs", "toy", "--pod", "toy-worker-1")
    assert (wrong.code, "did you mean toy-worker-0?" in wrong.line) == (Code.NOT_FOUND, True)


def test_logs_that_are_followed_take_in_a_pod_that_joins_and_end_with_the_job(
    tenant: Tenant, api: httpx.Client, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    async def join() -> None:
        await asyncio.to_thread(add_pod, api, job, "toy-worker-1")

    async def end() -> None:
        await asyncio.to_thread(tenant.tell, "toy", ended_status("Succeeded", "All done."))

    lines = {"toy-master-0": ["one"], "toy-worker-0": ["two"], "toy-worker-1": ["joined"]}
    send(monkeypatch, lines, {"toy-worker-0": join, "toy-worker-1": end})
    ended = tenant("logs", "toy", "-f")
    assert ended.code == 0
    assert sorted(ended.out.splitlines()) == ["[0 master-0] one", "[4 worker-0] two", "[worker-1] joined"]
    assert ended.err == "logs of job toy until it ends; Ctrl-C ends this\n"


@pytest.mark.usefixtures("job")
def test_a_rank_and_a_pod_together_are_refused(tenant: Tenant):
    ended = tenant("logs", "toy", "--rank", "0", "--pod", "toy-worker-0")
    assert (ended.code, "--rank 0 and --pod toy-worker-0: write one of the two" in ended.line) == (Code.USAGE, True)


@pytest.mark.usefixtures("job")
def test_a_pod_that_the_job_cannot_have_is_not_waited_for(tenant: Tenant):
    ended = tenant("logs", "toy", "-f", "--pod", "toy-worker-O")
    assert ended.code == Code.NOT_FOUND
    assert "job toy has no pod of that name; did you mean toy-worker-0?" in ended.err.splitlines()[-1]


def test_a_pod_that_is_not_there_yet_is_waited_for_aloud(
    tenant: Tenant, api: httpx.Client, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    async def end() -> None:
        await asyncio.to_thread(tenant.tell, "toy", ended_status("Succeeded", "All done."))

    send(monkeypatch, {"toy-worker-7": ["late"]}, {"toy-worker-7": end})
    say = command.screen.note

    def joined(text: str) -> None:
        say(text)
        if "waiting for it" in text:
            add_pod(api, job, "toy-worker-7")

    monkeypatch.setattr(command.screen, "note", joined)
    ended = tenant("logs", "toy", "-f", "--pod", "toy-worker-7")
    assert (ended.code, ended.out) == (0, "late\n")
    assert "pod toy-worker-7 does not exist yet: waiting for it; did you mean toy-worker-0?" in ended.err


@pytest.mark.usefixtures("job")
def test_the_rank_before_a_line_is_that_of_the_moment(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    """As after a change of size, and for `run --logs`, which begins when no rank is known."""
    printed: list[str] = []
    write = command._print

    def record(prefix: str, line: str, place: int) -> None:
        printed.append(f"[{prefix}] {line}")
        write(prefix, line, place)

    @asynccontextmanager
    async def answer(_self: Cluster, _path: str, **_params: Any) -> AsyncIterator[AsyncIterator[str]]:
        async def text() -> AsyncIterator[str]:
            yield "2026-01-01T00:00:00.000000000Z before"
            pods = [{**pod, "rank": 8} for pod in running_status()["pods"]]
            await asyncio.to_thread(tenant.tell, "toy", running_status(pods=pods))
            for number in range(400):
                yield f"2026-01-01T00:00:01.{number:09}Z after"
                if "[8 worker-0] after" in printed:
                    break
                await asyncio.sleep(0.05)
            await asyncio.to_thread(tenant.tell, "toy", ended_status("Succeeded", "All done."))

        yield text()

    ask = Cluster.lines
    of_worker = "/toy-worker-0/log"
    monkeypatch.setattr(command, "_print", record)
    monkeypatch.setattr(
        Cluster, "lines", lambda self, path, **words: (answer if path.endswith(of_worker) else ask)(self, path, **words)
    )
    assert tenant("logs", "toy", "-f").code == 0
    assert "[4 worker-0] before" in printed
    assert "[8 worker-0] after" in printed


@pytest.mark.usefixtures("job")
def test_a_log_whose_connection_broke_goes_on_where_it_was(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    """The API server hands whole seconds on to kubelets, so lines of the same second come twice."""
    time = "2026-01-01T00:00:00.00000000{}+02:00"
    first = [time.format(1) + " one", time.format(2) + " two", time.format(2) + " 2"]
    again = [*first, time.format(2) + " b", time.format(3) + " three"]
    asked: list[Mapping[str, Any]] = []

    @asynccontextmanager
    async def answer(_self: Cluster, _path: str, **params: Any) -> AsyncIterator[AsyncIterator[str]]:
        asked.append(params)

        async def text() -> AsyncIterator[str]:
            for line in first if len(asked) == 1 else again:
                yield line
            if len(asked) == 1:
                raise ConnectionLostError(Code.UNREACHABLE, "the connection broke")
            await asyncio.to_thread(tenant.tell, "toy", ended_status("Succeeded", "All done."))

        yield text()

    ask = Cluster.lines
    monkeypatch.setattr(
        Cluster, "lines", lambda self, path, **words: (answer if path.endswith("/log") else ask)(self, path, **words)
    )
    ended = tenant("logs", "toy", "-f", "--pod", "toy-worker-0", "--tail", "3")
    assert (ended.code, ended.out.split()) == (0, ["one", "two", "2", "b", "three"])
    assert [one.get("tailLines") for one in asked] == [3, None]
    assert [one.get("sinceTime") for one in asked] == [None, time.format(2)]


@pytest.mark.usefixtures("job")
def test_logs_end_when_nobody_reads_them(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    def gone(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    send(monkeypatch, {"toy-master-0": ["one"], "toy-worker-0": ["two"]})
    monkeypatch.setattr(command, "_print", gone)
    assert tenant("logs", "toy", "-f").code == Code.UNREAD
