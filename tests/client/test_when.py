"""`when` asks by a job that it deletes again, whatever happens, and shows the operator's words (160)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from elastic_api.what_if import ANNOTATION_WHAT_IF, ONCE
from elastic_client.exits import Code
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually
from tests.client.conftest import Tenant
from tests.client.objects import condition

pytestmark = pytest.mark.apiserver

ANSWERED = "2026-01-31T12:00:00Z"
START = "2100-01-01T00:00:00Z"
FITS = {
    "answeredTime": ANSWERED,
    "fits": True,
    "replicas": 6,
    "gpus": 6,
    "limit": "InsufficientNodes",
    "message": "The job gets 6 of 8 pods. 2 more need 2 GPUs. Add a node, or wait.",
    "borrowedGpus": 4,
    "borrows": [{"policy": "speech", "gpus": 3}],
}
WAITS = {
    "answeredTime": ANSWERED,
    "fits": False,
    "limit": "HigherPriorityJobs",
    "message": "The job gets 0 of 8 pods and needs at least 2. Wait.",
}
QUEUE = {"position": 3, "estimatedStartTime": START, "confidence": 0.75}


@contextmanager
def operator(jobs: Jobs, status: dict[str, Any]) -> Iterator[list[Any]]:
    """Somebody plays an operator that writes this status into jobs that ask; gives these jobs."""
    ended, seen = threading.Event(), []

    def look() -> None:
        while not ended.wait(0.1):
            for job in jobs.api.get(jobs.path).json()["items"]:
                if ANNOTATION_WHAT_IF in job["metadata"].get("annotations", {}) and "status" not in job:
                    seen.append(job)
                    jobs.patch(job["metadata"]["name"], {"status": status}, subresource="/status")

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def answering(
    jobs: Jobs, forecast: dict[str, Any], queue: dict[str, Any] | None = None
) -> AbstractContextManager[list[Any]]:
    """One that answers."""
    return operator(jobs, {"forecast": {**forecast, "observedGeneration": 1}, **({"queue": queue} if queue else {})})


def left(jobs: Jobs) -> list[str]:
    """The names of jobs that are there."""
    return [job["metadata"]["name"] for job in jobs.api.get(jobs.path).json()["items"]]


def test_a_question_is_a_suspended_job_that_goes_once_it_is_answered(tenant: Tenant):
    with answering(tenant.jobs, FITS) as seen:
        ended = tenant("when", "--workers", "2:8", "-g", "1")
    (job,) = seen
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["annotations"] == {ANNOTATION_WHAT_IF: ONCE}
    assert (job["spec"]["minReplicas"], job["spec"]["maxReplicas"]) == (2, 8)
    assert left(tenant.jobs) == []
    assert (ended.code, ended.err) == (Code.DONE, "")
    assert ended.out.splitlines() == [
        f"2 to 8 pods in {tenant.jobs.namespace}: fits now, with 6 pods and 6 GPUs",
        "",
        "Borrows 4 GPUs",
        "  Of the idle guarantee of speech (up to 3), which may reclaim them.",
        "",
        "Limited by: InsufficientNodes",
        "  The job gets 6 of 8 pods. 2 more need 2 GPUs. Add a node, or wait.",
    ]


def test_a_job_that_would_wait_has_a_place_in_line_and_a_start(tenant: Tenant):
    with answering(tenant.jobs, WAITS, QUEUE):
        ended = tenant("when", "--workers", "2:8", "-g", "1")
    first, *_, title, told = ended.out.splitlines()
    assert first.endswith("does not fit now")
    assert title == "Place in line: 3, in its team"
    assert f"({START}), if running jobs end when they say. The end of 75% of the GPUs in use is known." in told


def test_programs_get_the_answer_as_a_document(tenant: Tenant):
    with answering(tenant.jobs, WAITS, QUEUE):
        found = json.loads(tenant("when", "--workers", "2:8", "-g", "1", "-o", "json").out)
    assert (found["kind"], found["minPods"], found["forecast"]["fits"]) == ("WhenReport", 2, False)
    assert found["queue"] == QUEUE


def test_a_manifest_is_asked_about_under_another_name(tenant: Tenant, tmp_path: Path):
    dry = tenant.elastic("run", "--name", "mine", "--workers", "4", "-i", "train:1", "--dry-run", "--", "train.py")
    path = tmp_path / "job.yaml"
    path.write_text(dry.out)
    with answering(tenant.jobs, FITS) as seen:
        assert tenant("when", "-f", str(path)).code == Code.DONE
    assert seen[0]["metadata"]["name"].startswith("when-")
    assert seen[0]["spec"]["template"] == yaml.safe_load(dry.out)["spec"]["template"]
    both = tenant("when", "-f", str(path), "--workers", "4")
    assert (both.code, "--workers" in both.line) == (Code.USAGE, True)


def test_run_asks_in_place_of_making_the_job_and_prints_the_manifest_if_that_is_asked_for(tenant: Tenant):
    words = ("run", *tenant.words, "--workers", "4", "-i", "train:1", "--when")
    with answering(tenant.jobs, FITS):
        asked = tenant.elastic(*words, "--", "train.py")
        printed = tenant.elastic(*words, "--dry-run", "--", "train.py")
    assert asked.out.startswith("4 pods in ")
    assert printed.out.startswith("apiVersion: ")
    assert printed.out.endswith(asked.out)
    assert left(tenant.jobs) == []
    wrong = tenant.elastic(*words, "--wait", "--", "train.py")
    assert (wrong.code, "--when" in wrong.line) == (Code.USAGE, True)


def test_where_nobody_answers_it_says_who_might_and_leaves_nothing(tenant: Tenant):
    ended = tenant("when", "-g", "1", "--timeout", "1s")
    assert (ended.code, left(tenant.jobs)) == (Code.TIMED_OUT, [])
    assert "no answer within 1 s: no operator looks at jobs here: see `kubectl elastic doctor" in ended.line


def test_where_an_older_operator_looks_at_jobs_it_says_so(tenant: Tenant):
    with operator(tenant.jobs, {"conditions": [condition("Ready", "True", "Suspended")]}):
        asked = tenant("when", "-g", "1", "--timeout", "3s")
    assert (asked.code, "it is of an older release" in asked.line) == (Code.TIMED_OUT, True)


def test_what_the_operator_does_not_take_is_refused_in_its_words(tenant: Tenant):
    with operator(tenant.jobs, {"conditions": [condition("Ready", "False", "InvalidSpec", "spec.x: write y.")]}):
        asked = tenant("when", "-g", "1")
    assert (asked.code, asked.line, left(tenant.jobs)) == (Code.REFUSED, "elastic: spec.x: write y.", [])


def test_who_may_only_look_may_not_ask(tenant_with: Callable[[str], Tenant]):
    viewer = tenant_with("view")
    ended = viewer("when", "-g", "1")
    assert (ended.code, ended.err.count("\n")) == (Code.NOT_ALLOWED, 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, Code.INTERRUPTED), (signal.SIGTERM, Code.STOPPED)])
def test_a_question_that_is_broken_off_leaves_no_job(tenant: Tenant, tmp_path: Path, number, code):
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "elastic_client", "when", "-g", "1", "--timeout", "10m", *tenant.words]
        asking = subprocess.Popen(command, stderr=file, stdout=file, env=os.environ)
    eventually("the job", lambda: left(tenant.jobs), report=log.read_text)
    asking.send_signal(number)
    eventually("its end", lambda: asking.poll() is not None, report=log.read_text)
    assert (asking.returncode, left(tenant.jobs)) == (code, []), log.read_text()


def test_why_and_the_wide_list_show_the_place_and_the_start(tenant: Tenant):
    accepted(tenant.jobs.api.get(tenant.jobs.path))
    tenant.create("toy", status={"queue": QUEUE, "conditions": [condition("Ready", "False", "Queued", "Waits.")]})
    assert "Place in line: 3, in its team\n  Starts in about " in tenant("why", "toy").out
    assert json.loads(tenant("list", "-o", "json").out)["jobs"][0]["queuePosition"] == 3
    headings, row = tenant("list", "-o", "wide").out.splitlines()
    assert headings.split()[-3:-1] == ["QUEUE", "STARTS"]
    assert row.split()[-3:-1] == ["3", START]
