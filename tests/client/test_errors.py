"""Everything that a person can do wrong, or find broken, ends with one line and its exit code."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from anyio.streams.tls import TLSStream

from elastic_client import cluster as connection
from elastic_client import jobs as jobs_module
from elastic_client.exits import MEANINGS, Code
from elastic_client.release import own_version
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.operators import kubeconfig_of
from tests.client.conftest import Elastic, Tenant

USAGE = [
    (("lst",), "Did you mean 'list'?"),
    (("list", "-o", "xml"), "'table', 'wide', 'json', 'yaml', 'name'"),
    (("scale", "toy"), "SIZE: write how many pods, as in `scale toy 4`"),
    (("scale", "toy", "8:2"), "write 2:8"),
    (("wait", "toy", "--timeout", "soon"), "such as 10m"),
    (("logs", "toy", "--rank", "-1"), "--rank"),
    (("why",), "Missing argument 'JOB'"),
    (("quota", "set", "vision"), "there is nothing to set: write one of --guaranteed"),
    (("quota", "set", "vision", "--guaranteed", "-1"), "--guaranteed '-1': write a number"),
    (("list", "-n", "team/../a"), "write the name of a namespace"),
    (("why", "toy", "-n", "Team"), "write the name of a namespace"),
]
NO_NAMES = ["", "?", "#", ".", "..", "a/b", "toy?dryRun=All", "toy,metadata.namespace=other", "Toy", "-toy", "t" * 254]
"""Some of them would be the whole list of jobs as a path, or another request."""
NAMING = [
    ("why", "--", "?"),
    ("describe", "--", "?"),
    ("logs", "--", "?"),
    ("events", "--", "?"),
    ("wait", "--", "?"),
    ("suspend", "--", "?"),
    ("resume", "--", "?"),
    ("restart", "--", "?"),
    ("scale", "--", "?", "2:3"),
    ("delete", "--", "toy", "?"),
    ("quota", "describe", "--", "?"),
    ("quota", "set", "--weight", "2", "--", "?"),
]


@pytest.mark.parametrize(
    ("words", "told"), USAGE, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_a_wrong_flag_or_value_is_told_before_anybody_is_asked(elastic: Elastic, words, told):
    ended = elastic(*words)
    assert ended.code == Code.USAGE
    assert told in ended.line


@pytest.mark.parametrize("words", [*(("delete", "--", name) for name in NO_NAMES), *NAMING], ids=" ".join)
def test_what_is_no_name_is_refused_before_anybody_is_asked(elastic: Elastic, words):
    ended = elastic(*words)
    assert ended.code == Code.USAGE
    assert "name alone, such as" in ended.line


@pytest.mark.apiserver
@pytest.mark.parametrize("name", ["?", "", "..", "a/b", "#", "other?dryRun=All"])
def test_delete_of_what_is_no_name_deletes_nothing(tenant: Tenant, name):
    """Without a name the API server would delete all jobs of the namespace, which the role `edit` may."""
    tenant.create("toy")
    tenant.create("other")
    assert tenant("delete", name).code == Code.USAGE
    assert tenant("delete", "toy", name).code == Code.USAGE
    assert tenant("list", "-o", "name").out.split() == [
        "elasticpytorchjob.elastic-pytorch.dev/other",
        "elasticpytorchjob.elastic-pytorch.dev/toy",
    ]


def test_the_program_says_its_version(elastic: Elastic):
    assert elastic("--version").out == f"elastic {own_version()}\n"


def test_the_help_of_run_shows_where_the_script_stands(elastic: Elastic):
    assert "Usage: elastic run [OPTIONS] -- SCRIPT [ARG]..." in elastic("run", "--help").out


def test_help_names_each_exit_code(elastic: Elastic):
    told = " ".join(elastic("--help").out.split())
    for code, meaning in MEANINGS.items():
        assert f"{code.value} {meaning}" in told


@pytest.mark.parametrize("words", [(), ("quota",), ("--help",), ("list", "-h")])
def test_without_a_command_there_is_the_help(elastic: Elastic, words):
    ended = elastic(*words)
    assert (ended.code, ended.err, "Usage: elastic" in ended.out) == (0, "", True)


def test_without_a_kubeconfig_the_user_is_told_how_to_name_one(elastic: Elastic):
    ended = elastic("list")
    assert (ended.code, "name one by --kubeconfig" in ended.line) == (Code.UNREACHABLE, True)
    ended = elastic("list", "--kubeconfig", "/nowhere/else")
    assert (ended.code, "/nowhere/else: there is no such file" in ended.line) == (Code.UNREACHABLE, True)


@pytest.mark.parametrize("text", ["{", "[]", "contexts: 3", "current-context: gone"])
def test_a_kubeconfig_that_is_none_is_told_as_such(elastic: Elastic, tmp_path: Path, text):
    (tmp_path / "config").write_text(text)
    ended = elastic("list", "--kubeconfig", str(tmp_path / "config"))
    assert (ended.code, "kubeconfig" in ended.line) == (Code.UNREACHABLE, True)


@pytest.mark.parametrize("namespace", ["..", "a/b", "?", "5"])
def test_a_kubeconfig_with_a_namespace_that_is_none_is_told_as_such(elastic: Elastic, tmp_path: Path, namespace):
    config = yaml.safe_load(kubeconfig_of("http://127.0.0.1:9"))
    config["contexts"][0]["context"]["namespace"] = yaml.safe_load(namespace)
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    ended = elastic("list", "--kubeconfig", str(tmp_path / "config"))
    assert (ended.code, "name another by -n" in ended.line) == (Code.UNREACHABLE, True)


def test_a_kubeconfig_without_a_current_context_is_told_as_such(elastic: Elastic, tmp_path: Path):
    config = yaml.safe_load(kubeconfig_of("http://127.0.0.1:9"))
    for context in ({}, {"current-context": ""}):
        del config["current-context"]
        config |= context
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        ended = elastic("list", "--kubeconfig", str(tmp_path / "config"))
        assert ended.code == Code.UNREACHABLE
        assert "has no current context: name one by --context; it has: here" in ended.line
        config["current-context"] = "here"


@pytest.mark.processes
def test_a_context_that_is_named_needs_no_current_one(elastic: Elastic, tmp_path: Path):
    config = yaml.safe_load(kubeconfig_of("http://127.0.0.1:9"))
    del config["current-context"]
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    ended = elastic("list", "--context", "here", "--kubeconfig", str(tmp_path / "config"))
    assert (ended.code, "http://127.0.0.1:9 cannot be reached" in ended.line) == (Code.UNREACHABLE, True)


def test_a_kubeconfig_that_is_no_text_is_told_as_such(elastic: Elastic, tmp_path: Path):
    (tmp_path / "config").write_bytes(b"contexts: \xff")
    ended = elastic("list", "--kubeconfig", str(tmp_path / "config"))
    assert (ended.code, "config: must be text in UTF-8" in ended.line) == (Code.UNREACHABLE, True)


def test_a_context_that_is_not_there_is_answered_with_a_near_name(elastic: Elastic, tmp_path: Path):
    (tmp_path / "config").write_text(kubeconfig_of("http://127.0.0.1:9"))
    ended = elastic("--context", "her", "list", "--kubeconfig", str(tmp_path / "config"))
    assert (ended.code, "did you mean here?" in ended.line) == (Code.UNREACHABLE, True)


@pytest.mark.processes
@pytest.mark.parametrize(
    "words", [("run", "--dry-run", "-i", "train:1", "--", "train.py"), ("completion", "bash"), ("--help",)]
)
def test_a_reader_that_has_gone_is_no_failed_job(words):
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run([sys.executable, "-m", "elastic_client", *words], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (ended.returncode, b"Pipe" in ended.stderr) == (Code.UNREAD, False), ended.stderr


@pytest.mark.processes
def test_a_server_that_nobody_listens_at_cannot_be_reached(elastic: Elastic, tmp_path: Path):
    (tmp_path / "config").write_text(kubeconfig_of("http://127.0.0.1:9"))
    ended = elastic("why", "toy", "--kubeconfig", str(tmp_path / "config"))
    assert (ended.code, "http://127.0.0.1:9 cannot be reached" in ended.line) == (Code.UNREACHABLE, True)


@pytest.mark.apiserver
@pytest.mark.usefixtures("definitions")
def test_a_server_that_is_silent_or_overloaded_is_told_as_such(
    elastic: Elastic, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.5)
    (tmp_path / "config").write_text(kubeconfig_of(proxy.url))
    words = ("list", "--kubeconfig", str(tmp_path / "config"))
    proxy.answer(503)
    overloaded = elastic(*words)
    proxy.heal()
    proxy.swallow()
    silent = elastic(*words)
    assert (overloaded.code, "cannot answer now" in overloaded.line) == (Code.UNREACHABLE, True)
    assert (silent.code, "did not answer within 0.5 s" in silent.line) == (Code.UNREACHABLE, True)


@pytest.mark.processes
def test_a_wait_that_is_shorter_than_a_handshake_leaves_no_connection_open(
    elastic: Elastic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent, warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        (tmp_path / "config").write_text(kubeconfig_of(f"https://127.0.0.1:{silent.getsockname()[1]}"))
        ended = elastic("wait", "toy", "--timeout", "0.1", "--kubeconfig", str(tmp_path / "config"))
        gc.collect()
    assert (ended.code, "did not answer within 0.5 s" in ended.err) == (Code.UNREACHABLE, True)
    assert [str(one.message) for one in left_open] == []


@pytest.mark.apiserver
def test_a_request_that_is_cancelled_in_its_handshake_leaves_no_connection_open(kubeconfig: Path):
    """As when `logs -f` ends while it connects for the log of one more pod."""
    shaking, wrap = asyncio.Event(), TLSStream.wrap

    async def told(*arguments: Any, **options: Any) -> TLSStream:
        shaking.set()
        return await wrap(*arguments, **options)

    async def cancel_one() -> None:
        async with connection.connected(connection.Place(kubeconfig=str(kubeconfig))) as cluster:
            request = asyncio.create_task(cluster.get("/version"))
            await shaking.wait()
            request.cancel()
            await asyncio.wait([request])
            assert request.cancelled()

    with warnings.catch_warnings(record=True) as left_open, patch.object(TLSStream, "wrap", told):
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(cancel_one())
        gc.collect()
    assert [str(one.message) for one in left_open] == []


@pytest.mark.apiserver
def test_credentials_that_are_not_accepted_are_told_as_such(elastic: Elastic, kubeconfig: Path, tmp_path: Path):
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "stale"}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    ended = elastic("list", "--kubeconfig", str(tmp_path / "config"))
    assert (ended.code, "log in again" in ended.line) == (Code.NOT_ALLOWED, True)


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "words", [("list",), ("why", "toy"), ("scale", "toy", "2"), ("wait", "toy"), ("delete", "toy")]
)
def test_a_cluster_without_the_definitions_is_told_as_such(
    elastic: Elastic, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, words
):
    """A release of the operator that does not serve this client's version looks the same."""
    monkeypatch.setattr(jobs_module, "BASE", "/apis/elastic-pytorch.dev/v9")
    ended = elastic(*words, "--kubeconfig", str(kubeconfig))
    assert ended.code == Code.NOT_INSTALLED
    assert "this cluster has no elasticpytorchjobs" in ended.err.splitlines()[-1]


@pytest.mark.apiserver
def test_a_job_that_is_not_there_is_answered_with_near_names_or_its_namespace(
    elastic: Elastic, kubeconfig: Path, tenant: Tenant
):
    tenant.create("toy")
    near = tenant("why", "tou")
    elsewhere = elastic("why", "toy", "--kubeconfig", str(kubeconfig))
    assert (near.code, "did you mean toy?" in near.line) == (Code.NOT_FOUND, True)
    assert elsewhere.code == Code.NOT_FOUND
    assert f"namespace {tenant.jobs.namespace} has one: add -n {tenant.jobs.namespace}" in elsewhere.line


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "words",
    [
        ("describe", "no"),
        ("logs", "no"),
        ("events", "no"),
        ("wait", "no"),
        ("scale", "no", "2"),
        ("suspend", "no"),
        ("resume", "no"),
        ("restart", "no"),
        ("delete", "no"),
    ],
)
def test_each_command_says_where_there_is_no_such_job(tenant: Tenant, words):
    ended = tenant(*words)
    assert ended.code == Code.NOT_FOUND
    assert f"job 'no': namespace {tenant.jobs.namespace} has none of that name" in ended.err.splitlines()[-1]


@pytest.mark.apiserver
@pytest.mark.usefixtures("definitions")
def test_a_namespace_that_is_not_there_is_told_to_whoever_may_know(elastic: Elastic, kubeconfig: Path):
    ended = elastic("list", "-n", "kube-sytem", "--kubeconfig", str(kubeconfig))
    assert (ended.code, "did you mean kube-system?" in ended.line) == (Code.NOT_FOUND, True)


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "words", [("list",), ("why", "toy"), ("scale", "toy", "2"), ("delete", "toy"), ("wait", "toy")]
)
def test_the_namespace_of_others_is_forbidden_in_the_servers_words(tenant: Tenant, words):
    ended = tenant.elastic(*words, "--kubeconfig", str(tenant.kubeconfig), "-n", "kube-system")
    assert ended.code == Code.NOT_ALLOWED
    line = ended.err.splitlines()[-1]
    assert 'in the namespace "kube-system"' in line
    assert "ask for the cluster role `" in line
    assert ("`view` or" in line) == (words[0] != "delete")


@pytest.mark.apiserver
def test_an_edit_that_the_server_refuses_is_told_by_its_field(tenant: Tenant):
    tenant.create(allowedReplicas=[1, 3])
    ended = tenant("scale", "toy", "2:9999")
    assert ended.code == Code.REFUSED
    assert "spec.maxReplicas: " in ended.line
    ended = tenant("scale", "toy", "2:3")
    assert ended.code == Code.REFUSED
    assert "allowedReplicas" in ended.line


@pytest.mark.apiserver
def test_a_maximum_below_the_minimum_is_answered_with_the_words_to_type(tenant: Tenant):
    tenant.create(minReplicas=2)
    ended = tenant("scale", "toy", "1")
    assert (ended.code, "write 1:1 to lower both" in ended.line) == (Code.USAGE, True)
