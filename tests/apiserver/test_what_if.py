"""A tenant asks a real operator on a real API server when a job would start, and nobody is left with anything (160)."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.operators import Operators, eventually
from tests.client import conftest as client
from tests.client.conftest import Tenant

pytestmark = pytest.mark.apiserver

elastic, roles, tenant, tenant_with = client.elastic, client.roles, client.tenant, client.tenant_with


def test_a_tenant_asks_when_a_job_would_start_and_is_told_what_it_then_gets(
    operators: Operators, world: World, tenant: Tenant, api: httpx.Client
) -> None:
    running = operators.start()
    world.start(elastic_job(small=6, big=6))
    world.wait_settled("toy", 6)

    asked = tenant("when", "--workers", "1:4", "-g", "1", "-o", "json")
    would = json.loads(asked.out)["forecast"]
    assert (would["fits"], would["replicas"], would["gpus"]) == (True, 2, 2)
    asked = tenant("when", "--workers", "5", "-g", "1")
    assert "does not fit now" in asked.out
    assert "Place in line: 1, in its team" in asked.out

    pods = api.get(f"/api/v1/namespaces/{tenant.jobs.namespace}/pods").json()["items"]
    jobs = tenant.jobs.api.get(tenant.jobs.path).json()["items"]
    assert (pods, jobs) == ([], [])
    assert [running.metric(f'elastic_pytorch_what_ifs_total{{fits="{fits}"}}') for fits in ("true", "false")] == [1, 1]

    words = ("run", *tenant.words, "--name", "real", "--workers", "1:4", "-g", "1", "-i", "train:1", "--", "train.py")
    assert tenant.elastic(*words).code == 0
    eventually("what was told", lambda: tenant.jobs.get("real").get("status", {}).get("targetReplicas") == 2)
