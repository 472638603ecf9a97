"""The commands on a real API server, with the rights of a team's member. The tests speak for the operator."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import yaml

from elastic_client.cluster import Place, connected
from elastic_client.commands.completion import FOR_KUBECTL
from elastic_client.documents import CheckList, EventList, JobList, JobReport, QuotaList, QuotaReport
from elastic_client.exits import Code
from elastic_client.jobs import jobs_path
from elastic_client.watching import followed
from tests.api.jobs import make_job
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually, kubeconfig_of
from tests.apiserver.policies_api import Policies, quota
from tests.client.conftest import Elastic, Ended, Tenant
from tests.client.objects import TAKEN, WANTS, ended_status, make_event, running_status
from tests.kit.wait import within

pytestmark = pytest.mark.apiserver
SECONDS = 20


def rows(text: str) -> list[list[str]]:
    """Cells of a table, without headings and ages."""
    return [line.split()[:-1] for line in text.splitlines()[1:]]


def test_list_shows_the_definitions_own_columns_by_name(tenant: Tenant):
    tenant.create("toy", status=running_status(training={"step": 120, "goodput": 0.97}))
    tenant.create("late")
    assert rows(tenant("list").out) == [
        ["late", "1", "3"],
        ["toy", "Running", "2", "1", "3", "8", "InsufficientNodes", "0"],
    ]
    assert rows(tenant("list", "-o", "wide").out)[1][-3:] == ["8", "120", "0.97"]
    assert tenant("list", "-o", "name").out.splitlines() == [
        "elasticpytorchjob.elastic-pytorch.dev/late",
        "elasticpytorchjob.elastic-pytorch.dev/toy",
    ]
    listed = JobList.model_validate_json(tenant("list", "-o", "json").out).jobs
    assert [(job.name, job.status, job.step) for job in listed] == [("late", "Unknown", None), ("toy", "Running", 120)]


def test_list_of_all_namespaces_names_them(elastic: Elastic, tenant: Tenant, kubeconfig: Path):
    tenant.create()
    told = elastic("list", "-A", "--kubeconfig", str(kubeconfig)).out
    assert [tenant.jobs.namespace, "toy"] in [line.split()[:2] for line in told.splitlines()]


def test_an_empty_list_is_said_on_stderr_and_is_valid_json(tenant: Tenant):
    ended = tenant("list")
    assert (ended.code, ended.out, ended.line) == (0, "", f"no jobs in namespace {tenant.jobs.namespace}")
    assert json.loads(tenant("list", "-o", "json").out)["jobs"] == []


def test_why_and_describe_show_the_operators_own_words(tenant: Tenant):
    tenant.create(status=running_status())
    why, described = tenant("why", "toy").out, tenant("describe", "toy").out
    assert f"Limited by: InsufficientNodes\n  {WANTS}\n" in why
    assert TAKEN in why
    assert described.startswith(why.partition("AGO")[0])
    assert "toy-worker-0   worker   Running   4      4      n2" in described
    report = JobReport.model_validate_json(tenant("why", "toy", "-o", "json").out)
    assert report.limit is not None
    assert report.limit.message == WANTS


def test_events_of_a_job_and_of_its_pods_come_in_time_order(tenant: Tenant, api: httpx.Client):
    uid = tenant.create()["metadata"]["uid"]
    tenant.create("toy2")
    later = [f"2100-01-01T00:00:0{second}Z" for second in range(4)]
    events = [
        make_event("Pod", "toy-worker-0", "Third", at=later[3], count=5),
        make_event("ElasticPyTorchJob", "toy", "Second", at=later[2], uid=uid),
        make_event("Pod", "toy-master-0", "First", at=later[1]),
        make_event("Pod", "toy2-master-0", "OfAnother", at=later[0]),
    ]
    for event in events:
        about = event["involvedObject"] | {"namespace": tenant.jobs.namespace}
        body = {**event, "involvedObject": about, "metadata": {"name": event["metadata"]["name"]}}
        api.post(f"/api/v1/namespaces/{tenant.jobs.namespace}/events", json=body).raise_for_status()
    found = EventList.model_validate_json(tenant("events", "toy", "-o", "json").out).events
    assert [(one.reason, one.object, one.count) for one in found] == [
        ("First", "toy-master-0", 1),
        ("Second", "job", 1),
        ("Third", "toy-worker-0", 5),
    ]
    assert "Third it. (x5)" in tenant("describe", "toy").out


def test_a_job_is_scaled_suspended_resumed_and_deleted(tenant: Tenant):
    tenant.create(status=running_status())
    scaled = tenant("scale", "toy", "2:8")
    assert "job toy may have 2 to 8 pods (before: 1 to 3); see `kubectl elastic why toy" in scaled.out
    assert f"-n {tenant.jobs.namespace}" in scaled.out
    assert tenant("scale", "toy", "4").code == 0
    spec = tenant.jobs.get("toy")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 4)
    assert tenant("suspend", "toy", "-o", "name").out == "elasticpytorchjob.elastic-pytorch.dev/toy\n"
    assert tenant.jobs.get("toy")["spec"]["suspend"]
    assert tenant("resume", "toy").code == 0
    assert not tenant.jobs.get("toy")["spec"]["suspend"]
    assert tenant("delete", "toy", "toy").out == "job toy is deleted\n"
    assert tenant.jobs.api.get(f"{tenant.jobs.path}/toy").status_code == httpx.codes.NOT_FOUND


def test_run_makes_a_job_and_says_what_to_type_next(tenant: Tenant):
    ended = tenant.elastic(
        "run", *tenant.words, "--name", "first", "--workers", "2:8", "-i", "train:1", "--", "train.py"
    )
    assert ended.out == f"job first is created in namespace {tenant.jobs.namespace}\n"
    assert f"`kubectl elastic logs -f first -n {tenant.jobs.namespace}" in ended.err.splitlines()[-1]
    spec = tenant.jobs.get("first")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 8)
    again = tenant.elastic(*tenant.words, "run", "--name", "first", "-i", "train:1", "--", "train.py")
    assert again.code == Code.REFUSED
    assert "already exists: choose another --name" in again.err.splitlines()[-1]
    exported = tenant("export", "yaml", "first")
    assert yaml.safe_load(exported.out)["spec"]["maxReplicas"] == 8
    assert tenant("export", "yaml", "second").code == Code.NOT_FOUND


def test_run_ends_with_the_code_of_its_wait(tenant: Tenant, tmp_path: Path):
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "elastic_client", "run", *tenant.words]
        command += ["--name", "first", "-i", "train:1", "--wait", "--", "train.py"]
        running = subprocess.Popen(command, stderr=file, stdout=file, env=os.environ)
    eventually("its wait", lambda: "job first: Unknown" in log.read_text(), report=log.read_text)
    tenant.tell("first", ended_status("Failed", "Exit 3."))
    eventually("its end", lambda: running.poll() is not None, report=log.read_text)
    assert running.returncode == Code.FAILED, log.read_text()


def test_a_run_that_is_wrong_or_forbidden_makes_no_job(tenant: Tenant, elastic: Elastic):
    wrong = elastic("run", "-i", "train:1", "--workers", "8:2", "--", "train.py")
    assert (wrong.code, "--workers 8:2" in wrong.line) == (Code.USAGE, True)
    words = ("--kubeconfig", str(tenant.kubeconfig), "-n", "kube-system", "-i", "train:1", "--", "train.py")
    assert elastic("run", *words).code == Code.NOT_ALLOWED


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (ended_status("Succeeded", "All done."), Code.DONE, "job toy succeeded: All done."),
        (ended_status("Failed", "Exit 3."), Code.FAILED, "job toy failed: Exit 3."),
        (running_status(), Code.TIMED_OUT, "job toy has not ended within 0.2 s: it is Running"),
    ],
)
def test_wait_says_by_its_exit_code_how_the_job_ended(tenant: Tenant, status, code, told):
    tenant.create(status=status)
    ended = tenant("wait", "toy", "--timeout", "0.2")
    assert ended.code == code
    assert told in ended.err.splitlines()[-1]


@pytest.mark.parametrize("how", ["succeeds", "is deleted"])
def test_wait_goes_on_until_the_job_ends(tenant: Tenant, tmp_path: Path, how):
    tenant.create(status=running_status())
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "elastic_client", "wait", "toy", *tenant.words]
        waiting = subprocess.Popen(command, stderr=file, env=os.environ)
    eventually("its first line on the job", lambda: "job toy: Running" in log.read_text(), report=log.read_text)
    if how == "succeeds":
        tenant.tell("toy", ended_status("Succeeded", "All done."))
    else:
        accepted(tenant.jobs.api.delete(f"{tenant.jobs.path}/toy"))
    eventually("its end", lambda: waiting.poll() is not None, report=log.read_text)
    assert waiting.returncode == (Code.DONE if how == "succeeds" else Code.NOT_FOUND)
    assert ("succeeded: All done." if how == "succeeds" else "was deleted meanwhile") in log.read_text().splitlines()[
        -1
    ]


STOPS = [(signal.SIGINT, Code.INTERRUPTED)]
STOPS += [(number, Code.STOPPED) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)]


@pytest.mark.parametrize(("number", "code"), STOPS)
def test_a_command_that_is_told_to_stop_leaves_no_keys_behind(
    tenant: Tenant, kubeconfig: Path, tmp_path: Path, number, code
):
    tenant.create(status=running_status())
    log, files = tmp_path / "log", tmp_path / "files"
    files.mkdir()
    words = ["wait", "toy", "-n", tenant.jobs.namespace, "--kubeconfig", str(kubeconfig)]
    with log.open("wb") as file:
        command = [sys.executable, "-m", "elastic_client", *words]
        waiting = subprocess.Popen(command, stderr=file, env={**os.environ, "TMPDIR": str(files)})
    try:
        eventually("its first line on the job", lambda: "job toy: Running" in log.read_text(), report=log.read_text)
        assert [*files.rglob("*")] != []
        waiting.send_signal(number)
        eventually("its end", lambda: waiting.poll() is not None, report=log.read_text)
    finally:
        waiting.kill()
    assert (waiting.returncode, [*files.rglob("*")]) == (code, [])
    assert "Traceback" not in log.read_text()


def test_a_command_that_is_to_outlive_its_terminal_does(tenant: Tenant, tmp_path: Path):
    """As `nohup` asks for."""
    tenant.create(status=running_status())
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = ["nohup", sys.executable, "-m", "elastic_client", "wait", "toy", *tenant.words]
        waiting = subprocess.Popen(command, stderr=file, stdout=file, env=os.environ)
    eventually("its first line on the job", lambda: "job toy: Running" in log.read_text(), report=log.read_text)
    waiting.send_signal(signal.SIGHUP)
    tenant.tell("toy", ended_status("Succeeded", "All done."))
    eventually("its end", lambda: waiting.poll() is not None, report=log.read_text)
    assert waiting.returncode == Code.DONE, log.read_text()


def test_where_there_is_no_terminal_top_is_the_wide_list(tenant: Tenant):
    tenant.create(status=running_status())
    assert rows(tenant("top").out) == rows(tenant("list", "-o", "wide").out)


def test_logs_of_a_job_without_pods_say_why_there_are_none(tenant: Tenant):
    tenant.create(status=running_status())
    ended = tenant("logs", "toy")
    assert (ended.code, "has no pods now: Running. 2 pods run with world size 8." in ended.line) == (
        Code.NOT_FOUND,
        True,
    )


def test_quotas_are_listed_and_described_to_whoever_may_see_them(
    elastic: Elastic, kubeconfig: Path, tenant: Tenant, policies: Policies
):
    def admin(*words: str) -> Ended:
        return elastic(*words, "--kubeconfig", str(kubeconfig))

    policies.create("vision", namespaces=[tenant.jobs.namespace], flavors=quota(2, limit=4))
    flavor = {"name": "default", "guaranteed": 2, "used": 5, "borrowed": 3, "limit": 6, "fairShare": 4}
    total = {"guaranteed": 2, "used": 5, "borrowed": 3, "limit": 6}
    conditions = running_status()["conditions"]
    accepted(
        policies.patch(
            "vision", {"status": {"total": total, "flavors": [flavor], "conditions": conditions}}, subresource="/status"
        )
    )
    name = policies.name("vision")
    assert rows(admin("quota", "list").out) == [[name, "2", "5", "3", "0", "6", "0", "True"]]
    (listed,) = QuotaList.model_validate_json(admin("quota", "list", "-o", "json").out).quotas
    assert (listed.used, listed.limit, listed.lent) == (5, 6, 0)
    told = admin("quota", "describe", name).out
    assert f"namespaces  {tenant.jobs.namespace}\n" in told
    assert "Ready: True (Running)\n  2 pods run with world size 8." in told
    report = QuotaReport.model_validate_json(admin("quota", "describe", name, "-o", "json").out)
    assert report.flavors[0].fair_share == 4
    wrong = admin("quota", "describe", name[:-1])
    assert (wrong.code, f"did you mean {name}?" in wrong.line) == (Code.NOT_FOUND, True)
    forbidden = tenant("quota", "list")
    assert (forbidden.code, "ask an administrator for a ClusterRoleBinding" in forbidden.line) == (
        Code.NOT_ALLOWED,
        True,
    )


@pytest.mark.parametrize(("role", "code"), [("edit", Code.DONE), ("view", Code.FAILED)])
def test_doctor_checks_what_a_team_may_see_and_do(tenant_with: Callable[[str], Tenant], role, code):
    tenant = tenant_with(role)
    ended = tenant("doctor")
    verdicts = {line[9:].partition(":")[0]: line[:9].strip() for line in ended.out.splitlines()}
    assert ended.code == code, ended.out
    assert verdicts["definition elasticpytorchjobs"] == verdicts["fields"] == verdicts["list jobs"] == "ok"
    assert verdicts["create jobs"] == ("ok" if role == "edit" else "not ok")
    assert verdicts["versions"] == verdicts["GPUs"] == verdicts["quotas"] == "unknown"
    checks = CheckList.model_validate_json(tenant("doctor", "-o", "json").out).checks
    assert [check.name for check in checks] == [*verdicts]


def test_flags_that_name_the_place_may_stand_before_the_command_and_after_it(elastic: Elastic, tenant: Tenant):
    tenant.create()
    before = elastic(*tenant.words, "list", "-o", "name")
    assert before.out == tenant("list", "-o", "name").out
    overridden = elastic("-n", "nowhere", "list", *tenant.words, "-o", "name")
    assert overridden.out == before.out


def test_the_namespace_is_that_of_the_context_that_is_named(elastic: Elastic, tenant: Tenant, tmp_path: Path):
    tenant.create()
    config = yaml.safe_load(tenant.kubeconfig.read_text())
    (context,) = config["contexts"]
    team = {"name": "team", "context": {**context["context"], "namespace": tenant.jobs.namespace}}
    config["contexts"] = [{"name": "first", "context": {**context["context"], "namespace": "kube-system"}}, team]
    config["current-context"] = "first"
    (tmp_path / "two").write_text(yaml.safe_dump(config))
    words = ("list", "-o", "name", "--kubeconfig", str(tmp_path / "two"))
    assert elastic(*words, "--context", "team").out.endswith("/toy\n")
    assert elastic(*words).code == Code.NOT_ALLOWED


@pytest.mark.usefixtures("definitions")
def test_keys_of_the_kubeconfig_are_not_left_behind(
    elastic: Elastic, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert "no jobs in" in elastic("list", "--kubeconfig", str(kubeconfig)).err
    assert [*tmp_path.iterdir()] == []


def test_list_asks_once_however_many_jobs_there_are(elastic: Elastic, proxy: Proxy, jobs: Jobs, tmp_path: Path):
    for number in range(30):
        accepted(jobs.create(make_job(f"job-{number}")))
    (tmp_path / "config").write_text(kubeconfig_of(proxy.url))
    ended = elastic("list", "-n", jobs.namespace, "--kubeconfig", str(tmp_path / "config"))
    assert len(ended.out.splitlines()) == 31
    assert [str(entry.request) for entry in proxy.log] == [f"GET {jobs.path}"]


async def test_a_followed_list_is_asked_for_once_and_survives_what_watches_do(proxy: Proxy, jobs: Jobs, tmp_path: Path):
    (tmp_path / "config").write_text(kubeconfig_of(proxy.url))
    here = Place(namespace=jobs.namespace, kubeconfig=str(tmp_path / "config"))
    async with connected(here) as cluster, followed(cluster, jobs_path(jobs.namespace)) as changes:
        assert (await within(SECONDS, anext(changes))).objects == []
        next_ = asyncio.ensure_future(anext(changes))
        await asyncio.to_thread(eventually, "a watch", lambda: proxy.open_watches() == 1)
        accepted(jobs.create(make_job("a")))
        assert (await within(SECONDS, next_)).kind == "ADDED"
        assert [str(entry.request) for entry in proxy.log] == [f"GET {jobs.path}", f"WATCH {jobs.path}"]

        next_ = asyncio.ensure_future(anext(changes))
        proxy.cut()
        accepted(jobs.create(make_job("b")))
        change = await within(SECONDS, next_)
        assert (change.kind, change.body["metadata"]["name"]) == ("ADDED", "b")

        next_ = asyncio.ensure_future(anext(changes))
        await asyncio.to_thread(eventually, "a watch", lambda: proxy.open_watches() == 1)
        proxy.end_watches(410)
        change = await within(SECONDS, next_)
        assert (change.kind, len(change.objects)) == ("LIST", 2)
        assert len([entry for entry in proxy.log if not entry.request.watches]) == 2

        next_ = asyncio.ensure_future(anext(changes))
        await asyncio.to_thread(eventually, "a watch", lambda: proxy.open_watches() == 1)
        proxy.answer(410, where=lambda request: request.watches, times=1)
        proxy.cut()
        change = await within(SECONDS, next_)
        assert (change.kind, len(change.objects)) == ("LIST", 2)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_calls_this_program(elastic: Elastic, shell):
    ended = elastic("completion", shell)
    assert (ended.code, "_ELASTIC_COMPLETE" in ended.out) == (0, True), ended


def test_kubectl_completes_commands_and_jobs(elastic: Elastic, tenant: Tenant, tmp_path: Path):
    assert elastic("completion", "kubectl").out == FOR_KUBECTL
    tenant.create("toy")
    tenant.create("other")
    script = tmp_path / "kubectl_complete-elastic"
    script.write_text(FOR_KUBECTL)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def completed(*words: str) -> list[str]:
        environ = {**os.environ, "PATH": path}
        done = subprocess.run(["sh", script, *words], env=environ, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("sus") == ["suspend", ":4"]
    assert completed("why", *tenant.words, "t") == ["toy", ":4"]
    assert completed(*tenant.words, "why", "") == ["other", "toy", ":4"]
    assert completed("why", "--kubeconfig", "/nowhere", "t") == [":4"]
