"""Metrics name the jobs of all namespaces: if the administrator wants, the cluster's roles say who may read them."""

from __future__ import annotations

import pytest

from tests.apiserver.faults.lab import World, await_service_account
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.operators import Operator, eventually
from tests.apiserver.rights.account import READER, token_of
from tests.apiserver.rights.conftest import Estate, Install, Start
from tests.apiserver.rights.requests import Right, refusals, uses

pytestmark = pytest.mark.apiserver

REVIEWS = {
    Right("create", "authentication.k8s.io", "tokenreviews"),
    Right("create", "authorization.k8s.io", "subjectaccessreviews"),
}


def status(operator: Operator, path: str = "/metrics", *, token: str = "") -> int:
    """Of the operator's answer; 0 while there is none."""
    answer = operator.get(path, token=token)
    return 0 if answer is None else answer.status_code


def test_metrics_are_for_whom_the_roles_of_the_cluster_let_read_them(
    estate: Estate, install: Install, world: World, start: Start, watcher: Proxy
) -> None:
    installed = install("--set", "metrics.authorization=true")
    namespace = world.jobs.namespace
    await_service_account(estate.api, namespace)
    reader, tenant = token_of(estate.api, READER), token_of(estate.api, "default", namespace)
    operator = start(AUTHORIZE_METRICS="true")
    eventually("an answer", lambda: status(operator, "/readyz") == 200, report=operator.text)
    assert status(operator) == 401
    assert status(operator, token="nobody's") == 401
    refused = operator.get("/metrics", token=tenant)
    assert refused is not None
    assert (refused.status_code, f"system:serviceaccount:{namespace}:default may not" in refused.text) == (403, True)
    # A role that was bound just now may be heard of a moment later.
    eventually("metrics", lambda: status(operator, token=reader) == 200, report=operator.text)
    told = operator.get("/metrics", token=reader)
    assert told is not None
    assert "elastic_pytorch_build_info" in told.text
    assert status(operator, "/healthz") == 200
    used = {use.right for use in uses(watcher.log)}
    assert used >= REVIEWS
    assert installed.granted() >= REVIEWS
    assert refusals(watcher.log) == []


def test_without_the_right_to_ask_nobody_reads_them(estate: Estate, install: Install, start: Start) -> None:
    """As where an operator is told to ask, and its rights come from elsewhere."""
    installed = install()
    eventually("an end of those rights", lambda: not any(installed.may(right, "") for right in REVIEWS))
    operator = start(AUTHORIZE_METRICS="true")
    eventually("an answer", lambda: status(operator, "/readyz") == 200, report=operator.text)
    assert status(operator, token=estate.token) == 503
