"""docs/client.md: its examples are run in their order, on a real API server, and print what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from elastic_api.policy import COLLECTION
from elastic_client.__main__ import app, runs
from elastic_client.exits import MEANINGS
from elastic_client.release import own_version
from tests.api.policies import make_policy
from tests.apiserver.jobs_api import accepted
from tests.apiserver.policies_api import MERGE, Policies, quota
from tests.client.code.folders import make_folder
from tests.client.conftest import Ended, Tenant
from tests.client.objects import condition, ended_status, make_event, running_status
from tests.client.test_when import FITS, QUEUE, WAITS, answering
from tests.docs.pages import blocks, text

PAGE = "docs/client.md"
PROMPT = "$ kubectl elastic "
AGE = re.compile(r"\b\d+[smhd](?:\d+[smhd])?(?= |$)", re.MULTILINE)
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
LATER = "2100-01-01T00:00:0{}Z"


ROOM = "1 nvidia.com/gpu each; 2 usable nodes have"
ANSWERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "when --workers 2:8 -g 1": (
        {
            **FITS,
            "message": f"The job gets 6 of 8 pods. 2 more need {ROOM} 0 of 8 GPUs free. Add a node, or wait.",
        },
        {},
    ),
    "when --workers 8 -g 1": (
        {
            **WAITS,
            "message": f"The job gets 0 of 8 pods. 8 more need {ROOM} 6 of 8 GPUs free, and pods of other jobs"
            " use the rest. Wait, or give the job a higher priority.",
        },
        {**QUEUE, "position": 2},
    ),
}
"""What an operator would answer to each question of the page, and where the job would stand."""


def shown() -> list[tuple[str, str]]:
    """Commands and what stands under them."""
    parts = [part for block in blocks(PAGE, "console") for part in block.text.split(PROMPT)[1:]]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def plain(output: str, namespace: str = "") -> str:
    """Without ages, times, widths of columns, and what differs from run to run."""
    output = output.replace(namespace, "team-a") if namespace else output
    output = re.sub(r"https://\S+:\d+", "https://api.example.com:6443", output)
    output = re.sub(r"Kubernetes v\S+", "Kubernetes v1.36.3", output).replace(f"client {own_version()}", "client 0.2.0")
    output = TIME.sub("TIME", AGE.sub("AGE", output))
    lines = [re.sub(r" {2,}", "  ", line).rstrip() for line in output.splitlines()]
    return "\n".join(lines).strip()


def in_order(ended: Ended) -> str:
    """Both streams; `run` alone says something on stderr before its output."""
    notes, _, following = ended.err.partition("next: ")
    return f"{notes}{ended.out}next: {following}" if following else ended.out + ended.err


def prepare(tenant: Tenant, api: httpx.Client, policies: Policies) -> None:
    """What the page takes to be there."""
    uid = tenant.create(status=running_status())["metadata"]["uid"]
    done = "The master finished with exit code 0."
    tenant.create("done", status=ended_status("Succeeded", done), maxReplicas=1)
    events = [
        make_event("Pod", "toy-master-0", "Started", at=LATER.format(1)),
        make_event("ElasticPyTorchJob", "toy", "ScaledUp", at=LATER.format(2), uid=uid, count=3),
    ]
    for event in events:
        about = event["involvedObject"] | {"namespace": tenant.jobs.namespace}
        body = {**event, "involvedObject": about, "metadata": {"name": event["metadata"]["name"]}}
        api.post(f"/api/v1/namespaces/{tenant.jobs.namespace}/events", json=body).raise_for_status()
    policy = make_policy("vision", namespaces=[tenant.jobs.namespace], flavors=quota(2, limit=4))
    accepted(policies.api.post(COLLECTION, json=policy))
    total = {"guaranteed": 2, "used": 5, "borrowed": 3, "limit": 6}
    status = {
        "total": total,
        "flavors": [{"name": "default", **total, "fairShare": 4}],
        "conditions": [condition("Ready", "True", "InForce")],
    }
    accepted(policies.api.patch(f"{COLLECTION}/vision/status", headers=MERGE, json={"status": status}))


@pytest.mark.apiserver
def test_the_examples_of_the_page_print_what_it_says(
    tenant: Tenant,
    api: httpx.Client,
    policies: Policies,
    kubeconfig: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    prepare(tenant, api, policies)
    config = yaml.safe_load(tenant.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = tenant.jobs.namespace
    make_folder(tmp_path / "src", train_py="import helper\n", helper_py="x = 1\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    for command, output in shown():
        mine = kubeconfig if command.startswith("quota") else tmp_path / "config"
        monkeypatch.setenv("KUBECONFIG", str(mine))
        with answering(tenant.jobs, *ANSWERS.get(command, ({}, {}))):
            ended = tenant.elastic(*shlex.split(command))
        assert plain(in_order(ended), tenant.jobs.namespace) == plain(output), command


def test_the_page_has_the_exit_codes_of_the_program():
    rows = [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    assert "\n".join(rows) in text(PAGE)


def test_the_page_names_each_command():
    named = [str(command.name) for command in [*app.registered_commands, *runs.registered_commands]]
    assert [name for name in named if not re.search(rf"(`|elastic ){name}\b", text(PAGE))] == []
