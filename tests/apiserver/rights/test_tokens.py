"""The token by which the pods of an Elastic job know each other stands in its Secret, and nowhere that others look."""

from __future__ import annotations

import base64
import json

import pytest

from elastic_operator.build.names import secret_name
from elastic_worker import contract
from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.operators import eventually
from tests.apiserver.rights.conftest import Estate, Install, Start

pytestmark = pytest.mark.apiserver

OBJECTS = (
    "/apis/elastic-pytorch.dev/v1beta1/namespaces/{}/elasticpytorchjobs",
    "/apis/events.k8s.io/v1/namespaces/{}/events",
    "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/services",
    "/api/v1/namespaces/{}/configmaps",
)


def test_no_token_is_in_logs_objects_or_metrics(estate: Estate, install: Install, world: World, start: Start) -> None:
    install()
    operator = start(LOGGING__LEVEL="debug")
    job = elastic_job("toy", small=1, big=4)
    job["spec"]["runtime"] = {"mode": "Elastic"}
    job["spec"]["elasticity"]["checkpointPath"] = "/checkpoints"
    world.start(job)
    world.wait_settled("toy", 4)
    world.delete_pod("toy-master-0")
    world.wait_settled("toy", 4)
    world.end("toy-worker-0", 1)
    eventually("the loss", lambda: world.status().get("restarts"), report=world.report)
    name = secret_name("toy", world.jobs.get("toy")["metadata"]["uid"])
    secret = world.api.get(f"/api/v1/namespaces/{world.jobs.namespace}/secrets/{name}").raise_for_status().json()
    encoded = secret["data"][contract.SECRET_KEY]
    secrets = {encoded, base64.b64decode(encoded).decode(), estate.token}
    shown = {path: world.api.get(path.format(world.jobs.namespace)).raise_for_status().text for path in OBJECTS}
    metrics = operator.get("/metrics")
    assert metrics is not None
    shown["metrics"] = metrics.raise_for_status().text
    shown["log"] = operator.text()
    assert "toy" in shown["log"], "it has something to say"
    assert json.loads(shown[OBJECTS[1]])["items"], "and told events"
    assert [where for where, text in shown.items() for token in secrets if token in text] == []
