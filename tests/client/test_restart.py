"""`restart` on a real API server, with the rights of a team's member. The tests speak for the operator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from elastic_client.cluster import Place, connected
from elastic_client.commands.wait import states
from elastic_client.exits import ClientError, Code
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import eventually
from tests.client.conftest import Tenant
from tests.client.objects import condition, ended_status, running_status

pytestmark = pytest.mark.apiserver

Started = Callable[..., AbstractContextManager[tuple[subprocess.Popen[bytes], Path]]]


@pytest.fixture
def restarting(tenant: Tenant, tmp_path: Path) -> Started:
    """Begins `restart toy`, and waits until the job is suspended."""

    @contextmanager
    def begin(*words: str):
        log = tmp_path / "log"
        command = [sys.executable, "-m", "elastic_client", "restart", "toy", *tenant.words, *words]
        with log.open("wb") as file, subprocess.Popen(command, stderr=file, stdout=file, env=os.environ) as running:
            eventually("its suspension", lambda: is_suspended(tenant), report=log.read_text)
            yield running, log
            eventually("its end", lambda: running.poll() is not None, report=log.read_text)

    return begin


def is_suspended(tenant: Tenant) -> bool:
    return bool(tenant.jobs.get("toy")["spec"].get("suspend"))


def suspended_status(*pods: dict[str, Any], generation: int = 2) -> dict[str, Any]:
    """What the operator says once it has seen the suspension; `pods` are those that still stop."""
    conditions = [condition("Ready", "True", "Suspended", "Set spec.suspend to false to resume.")]
    return running_status(observedGeneration=generation, replicas=0, gpus=0, pods=list(pods), conditions=conditions)


LEAVING = {"name": "toy-master-0", "role": "master", "phase": "Terminating", "gpus": 4}
DONE = {**LEAVING, "name": "toy-worker-0", "role": "worker", "phase": "Failed"}


def test_a_job_is_resumed_once_the_operator_says_that_its_pods_are_gone(tenant: Tenant, restarting: Started):
    tenant.create(status=running_status())
    with restarting() as (running, log):
        eventually("its first line", lambda: "job toy: its 2 pods stop" in log.read_text(), report=log.read_text)
        tenant.tell("toy", suspended_status(generation=1))  # of an earlier suspension
        tenant.tell("toy", suspended_status(LEAVING, DONE))
        eventually("a pod that stops", lambda: "1 pod still stopping" in log.read_text(), report=log.read_text)
        assert is_suspended(tenant)
        assert running.poll() is None
        tenant.tell("toy", suspended_status(DONE))
    assert running.returncode == Code.DONE, log.read_text()
    assert not is_suspended(tenant)
    assert "job toy restarts from its newest checkpoint as soon as its pods fit" in log.read_text().splitlines()[-1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, Code.INTERRUPTED), (signal.SIGTERM, Code.STOPPED)])
def test_whoever_interrupts_it_is_told_that_the_job_stays_suspended(tenant: Tenant, restarting: Started, number, code):
    tenant.create(status=running_status())
    with restarting() as (running, log):
        eventually("its first line", lambda: "job toy: its 2 pods stop" in log.read_text(), report=log.read_text)
        running.send_signal(number)
    assert running.returncode == code
    assert is_suspended(tenant)
    last = log.read_text().splitlines()[-1]
    assert last.startswith(f"job toy stays suspended: `kubectl elastic resume toy -n {tenant.jobs.namespace}")


def test_pods_that_do_not_go_in_time_leave_it_suspended_and_told(tenant: Tenant, restarting: Started):
    tenant.create(status=running_status())
    with restarting("--timeout", "0.5") as (running, log):
        pass
    assert (running.returncode, is_suspended(tenant)) == (Code.TIMED_OUT, True)
    assert "its pods still exist after 0.5 s\njob toy stays suspended: `kubectl elastic resume toy" in log.read_text()


def test_a_job_that_somebody_else_resumes_or_deletes_is_not_said_to_stay_suspended(tenant: Tenant, restarting: Started):
    tenant.create(status=running_status())
    with restarting() as (running, log):
        accepted(tenant.jobs.patch("toy", {"spec": {"suspend": False}}))
    assert running.returncode == Code.DONE, log.read_text()
    with restarting() as (running, log):
        accepted(tenant.jobs.api.delete(f"{tenant.jobs.path}/toy"))
    assert running.returncode == Code.NOT_FOUND
    assert log.read_text().splitlines()[-1] == "elastic: job toy was deleted meanwhile"
    assert "stays suspended" not in log.read_text()


@pytest.mark.parametrize("another", [False, True], ids=["deleted", "another of its name"])
async def test_a_job_that_is_deleted_before_the_first_answer_counts_as_deleted(tenant: Tenant, another: bool):
    uid = tenant.create()["metadata"]["uid"]
    accepted(tenant.jobs.api.delete(f"{tenant.jobs.path}/toy"))
    if another:
        tenant.create()
    here = Place(namespace=tenant.jobs.namespace, kubeconfig=str(tenant.kubeconfig))
    async with connected(here) as cluster:
        with pytest.raises(ClientError, match=r"^job toy was deleted meanwhile$"):
            await anext(states(cluster, "toy", uid=uid))


@pytest.mark.parametrize(
    ("status", "spec", "told"),
    [
        (ended_status("Succeeded", "Done."), {}, "job toy has ended: delete it and run it again"),
        (suspended_status(), {"suspend": True}, "job toy is suspended: `kubectl elastic resume toy"),
        (running_status(replicas=0, pods=[]), {}, "job toy has no pods to restart: it is Running"),
    ],
    ids=["ended", "suspended", "without pods"],
)
def test_a_job_without_pods_is_left_as_it_is(tenant: Tenant, status, spec, told):
    tenant.create(status=status, **spec)
    before = tenant.jobs.get("toy")
    refused = tenant("restart", "toy")
    assert (refused.code, told in refused.line) == (Code.USAGE, True)
    assert tenant.jobs.get("toy") == before
