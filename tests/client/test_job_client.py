"""Jobs from Python, as in a notebook: on a real API server with a tenant's rights. The tests speak for the operator."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import tempfile
import threading

import pytest

from elastic_client.convert.run import RunFlags
from elastic_client.exits import ClientError, Code
from elastic_client.job_client import AsyncJobClient, JobClient, _result
from tests.api.jobs import make_job
from tests.client.objects import ended_status, running_status
from tests.docs.pages import blocks
from tests.kit.wait import until

PAGE = "docs/client.md"
SECONDS = 20


def client_of(tenant, kind=JobClient):
    return kind(tenant.jobs.namespace, kubeconfig=str(tenant.kubeconfig))


def manifest(name, **spec):
    """As somebody writes it who has a namespace of their own."""
    job = make_job(name, **spec)
    return {**job, "metadata": {"name": name}}


@pytest.mark.apiserver
async def test_the_example_of_the_page_runs_in_a_notebook(tenant, monkeypatch, capsys):
    """A notebook's cells run in its event loop, as this does."""
    (example,) = blocks(PAGE, "python")
    monkeypatch.setenv("KUBECONFIG", str(tenant.kubeconfig))
    exec(compile(example.text.replace("team-a", tenant.jobs.namespace), PAGE, "exec"), {})
    shown = capsys.readouterr().out
    assert shown.startswith(f"first in {tenant.jobs.namespace}: Unknown, 0 pods (2 to 4 allowed)")
    assert (await client_of(tenant, AsyncJobClient).list()).jobs == []


@pytest.mark.apiserver
def test_a_job_is_seen_and_changed(tenant):
    jobs = client_of(tenant)
    assert jobs.create(manifest("toy", maxReplicas=3)).job.max_pods == 3
    tenant.tell("toy", running_status())
    assert [job.name for job in jobs.list().jobs] == ["toy"]
    assert (jobs.get("toy").job.status, jobs.get("toy").history[0].reason) == ("Running", "QuotaReclaimed")
    assert jobs.scale("toy", "2:8").job.max_pods == 8
    assert jobs.scale("toy", 4).job.min_pods == 2
    assert "Limited by: InsufficientNodes" in jobs.why("toy")
    jobs.suspend("toy")
    assert tenant.jobs.get("toy")["spec"]["suspend"] is True
    jobs.resume("toy")
    assert tenant.jobs.get("toy")["spec"]["suspend"] is False
    jobs.delete("toy")
    assert jobs.list().jobs == []


@pytest.mark.apiserver
async def test_both_clients_wait_until_the_job_has_ended(tenant):
    tenant.create("toy", status=running_status())
    waiting = asyncio.create_task(client_of(tenant, AsyncJobClient).wait("toy", timeout_seconds=SECONDS))
    other = asyncio.create_task(asyncio.to_thread(client_of(tenant).wait, "toy", timeout_seconds=SECONDS))
    await asyncio.sleep(0.5)
    await asyncio.to_thread(tenant.tell, "toy", ended_status("Failed", "rank 1 failed with exit code 1"))
    for report in await asyncio.gather(waiting, other):
        assert report.job.status == "Failed"
        assert report.state.message == "rank 1 failed with exit code 1"


WRONG = [
    (lambda jobs: jobs.get("tou"), Code.NOT_FOUND, "job 'tou': namespace .* did you mean toy"),
    (lambda jobs: jobs.wait("toy", timeout_seconds=0.5), Code.TIMED_OUT, "job toy has not ended within 0.5 s"),
    (lambda jobs: jobs.scale("toy", 1), Code.USAGE, "SIZE 1: job toy has 2 pods at least; write 1:1"),
    (lambda jobs: jobs.scale("toy", "many"), Code.USAGE, "SIZE 'many': write 2:8"),
    (lambda jobs: jobs.create(manifest("toy")), Code.REFUSED, "already exists"),
    (lambda jobs: jobs.create(RunFlags(command=["t.py"])), Code.USAGE, "--image: write the image"),
    (lambda jobs: jobs.create(manifest("b", minReplicas=0)), Code.REFUSED, "spec.minReplicas"),
    (lambda jobs: jobs.delete("gone"), Code.NOT_FOUND, "job 'gone': namespace"),
    (lambda jobs: jobs.logs("toy"), Code.NOT_FOUND, "job toy has no pods now"),
    (lambda jobs: jobs.list(all_namespaces=True), Code.NOT_ALLOWED, "cannot list"),
]


@pytest.mark.apiserver
def test_what_goes_wrong_is_one_line_with_the_code_of_the_command(tenant):
    tenant.create("toy", minReplicas=2)
    for call, code, told in WRONG:
        with pytest.raises(ClientError, match=told) as refused:
            call(client_of(tenant))
        assert refused.value.code == code, told
        assert "\n" not in str(refused.value)


@pytest.mark.apiserver
async def test_temporary_files_stay_where_they_were_while_a_job_is_waited_for(tenant):
    before = tempfile.gettempdir()
    tenant.create("toy")
    waiting = asyncio.create_task(client_of(tenant, AsyncJobClient).wait("toy", timeout_seconds=1.5))
    await asyncio.sleep(1)
    assert not waiting.done()
    assert tempfile.gettempdir() == before
    with pytest.raises(ClientError):
        await waiting


def test_the_client_that_does_not_await_has_all_that_the_other_one_has():
    def signatures(kind):
        public = {name: one for name, one in vars(kind).items() if not name.startswith("_")}
        return {name: inspect.signature(one) for name, one in public.items()}

    assert signatures(JobClient) == signatures(AsyncJobClient)


async def test_a_result_comes_where_an_event_loop_runs_already():
    async def answer():
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert _result(answer()) == "JobClient"


def test_nothing_is_left_running_after_a_result():
    closed = []

    async def answer():
        try:
            await asyncio.sleep(0)
            raise ClientError(Code.NOT_FOUND, "there is none")
        finally:
            closed.append(1)

    with pytest.raises(ClientError, match="there is none"):
        _result(answer())
    assert closed == [1]
    assert "JobClient" not in [thread.name for thread in threading.enumerate()]


def test_an_interrupt_before_the_caller_waits_cancels_the_work_too(monkeypatch):
    begun, seen, schedule = threading.Event(), [], asyncio.run_coroutine_threadsafe

    def interrupted(work, loop):
        monkeypatch.undo()
        schedule(work, loop)
        begun.wait()
        raise KeyboardInterrupt

    async def wait():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("closes")

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _result(wait())
    assert seen == ["closes"]


INTERRUPTED = """\
import asyncio, sys
from elastic_client.job_client import _result

async def wait():
    print("waits", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("closes", flush=True)

try:
    _result(wait())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.processes
def test_ctrl_c_ends_a_wait_and_its_connection():
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        process.send_signal(2)
        until("its end", lambda: process.poll() is not None, seconds=SECONDS)
        assert process.stdout.read() == "closes\ninterrupted\n"


@pytest.mark.processes
def test_a_notebook_that_imports_the_client_pulls_neither_kopf_nor_the_operator_in():
    asked = "import sys, elastic_client.job_client; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    assert not {"elastic_operator", "kopf", "kubernetes", "torch", "kr8s"} & set(done.stdout.split())


@pytest.mark.processes
def test_the_package_has_both_clients_and_imports_them_when_they_are_asked_for():
    """Each command imports the package, and its start should not wait for what it does not need."""
    code = """
import sys, elastic_client
print({"typer", "kr8s", "httpx", "pydantic"} & {*sys.modules})
from elastic_client import AsyncJobClient, JobClient
print({"kr8s"} & {*sys.modules}, AsyncJobClient.__name__, JobClient.__name__)
try:
    elastic_client.JobsClient
except AttributeError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [
        "set()",
        "set() AsyncJobClient JobClient",
        "module 'elastic_client' has no attribute 'JobsClient'",
    ]
