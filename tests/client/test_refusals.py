"""Answers of an API server that say no, and what the user is told."""

from __future__ import annotations

import json

import pytest

from elastic_api.job import API_VERSION
from elastic_client.exits import Code
from elastic_client.refusals import refusal

JOB = f"/apis/{API_VERSION}/namespaces/team/elasticpytorchjobs/toy"
FORBIDDEN = (
    'elasticpytorchjobs.elastic-pytorch.dev "toy" is forbidden: User "x" cannot get resource "elasticpytorchjobs"'
)
CAUSES = [
    {"field": "spec.maxReplicas", "message": "Invalid value: 9: must be\nat most 4"},
    {"field": "spec.minReplicas", "message": "Invalid value: 0: must be at least 1"},
    {"reason": "FieldValueInvalid", "message": "without a field"},
]


def status(message: str = "", **details: object) -> bytes:
    return json.dumps({"kind": "Status", "message": message, "details": details}).encode()


@pytest.mark.parametrize(
    ("number", "body", "path", "code", "told"),
    [
        (401, b"", JOB, Code.NOT_ALLOWED, "log in again"),
        (403, status(FORBIDDEN), JOB, Code.NOT_ALLOWED, "ask for the cluster role `view` or `edit`"),
        (403, status("exceeded quota: pods"), JOB, Code.NOT_ALLOWED, "exceeded quota: pods"),
        (404, status("x", name="toy", kind="elasticpytorchjobs"), JOB, Code.NOT_FOUND, "'toy': there is none"),
        (404, b"404 page not found\n", JOB, Code.NOT_INSTALLED, "has no elasticpytorchjobs"),
        (404, b"404 page not found\n", f"/apis/{API_VERSION}/gpuquotapolicies", Code.NOT_INSTALLED, "has no gpuquota"),
        (404, b"<html>", "/api/v1/namespaces/x", Code.UNREACHABLE, "https://it does not answer as an API server"),
        (422, status("all of it", causes=CAUSES), JOB, Code.REFUSED, "spec.maxReplicas: Invalid value: 9: must be at"),
        (409, status("the object has been modified"), JOB, Code.REFUSED, "the object has been modified"),
        (429, status("too many requests"), JOB, Code.UNREACHABLE, "too many requests; try again"),
        (503, b"upstream", JOB, Code.UNREACHABLE, "HTTP 503; try again"),
        (410, status("too old resource version"), JOB, Code.DEFECT, "too old"),
        (418, b"", JOB, Code.DEFECT, "answers 418"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_and_what_to_do(number, body, path, code, told):
    error = refusal(number, body, path, server="https://it")
    assert error.code == code
    assert told in str(error)
    assert "\n" not in str(error)


def test_an_invalid_edit_is_told_by_each_field_once():
    told = str(refusal(422, status("m", causes=[*CAUSES, CAUSES[1]]), JOB, server="https://it"))
    assert told.count("spec.minReplicas") == 1
    assert "; spec.minReplicas: " in told
