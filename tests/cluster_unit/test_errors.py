"""What is done about each error of a write: the table of `cluster/errors.py`."""

from __future__ import annotations

import json

import pytest

from elastic_operator.cluster import errors
from elastic_operator.cluster.errors import (
    MAX_RETRY_AFTER_SECONDS,
    ApiError,
    ClusterError,
    NameTaken,
    PodRefused,
    RetryPolicy,
    api_error,
    refuses_pod,
)
from tests.kit.requests import DENIED, conflict

AGAIN, LEADER, WAIT, USER, EDIT = RetryPolicy
ANSWERS = {
    400: USER,
    401: WAIT,
    403: USER,
    404: WAIT,
    409: USER,
    410: USER,
    413: USER,
    422: USER,
    429: WAIT,
    500: WAIT,
    504: WAIT,
}


@pytest.mark.parametrize(("status", "retry_policy"), ANSWERS.items())
def test_an_answer_of_the_api_server(status: int, retry_policy: RetryPolicy) -> None:
    assert api_error(status, b"").retry_policy is retry_policy


OTHERS: list[tuple[ClusterError, RetryPolicy]] = [
    (ClusterError(), USER),
    (errors.Unreachable(), WAIT),
    (errors.Fenced(), LEADER),
    (errors.Outdated(), AGAIN),
    (NameTaken(""), USER),
    (api_error(404, b'{"reason": "NotFound", "details": {"name": "a"}}'), USER),
    (api_error(409, b'{"reason": "AlreadyExists"}'), USER),
    (api_error(409, json.dumps({"message": conflict('pods "a"')}).encode()), AGAIN),
    (errors.UnversionedConflict("", status=409), WAIT),
]


@pytest.mark.parametrize(("error", "retry_policy"), OTHERS, ids=[type(error).__name__ for error, _ in OTHERS])
def test_an_error_without_such_an_answer(error: ClusterError, retry_policy: RetryPolicy) -> None:
    assert error.retry_policy is retry_policy


MALFORMED = {
    "a gateway's list of details": b'{"code": 14, "message": "x", "details": [{"@type": "type.googleapis.com/y"}]}',
    "details that are a text": b'{"message": "x", "details": "y"}',
    "details that are a number": b'{"message": "x", "details": 1}',
    "a wait that is a text": b'{"message": "x", "details": {"retryAfterSeconds": "soon"}}',
    "a wait that is a list": b'{"message": "x", "details": {"retryAfterSeconds": [1]}}',
    "a wait that is true": b'{"message": "x", "details": {"retryAfterSeconds": true}}',
    "a negative wait": b'{"message": "x", "details": {"retryAfterSeconds": -1}}',
    "a body that is a list": b'["x"]',
    "a number too large for a float": b'{"message": "x", "details": {"retryAfterSeconds": 1' + b"0" * 400 + b"}}",
    "a text cut in the middle of a character": "x\u00e9".encode()[:2],
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("status", [404, 503])
def test_a_body_that_is_no_status_of_the_api_server_has_its_message_and_names_no_wait(body: bytes, status: int) -> None:
    error = api_error(status, body)
    assert error.retry_policy is WAIT
    assert "x" in error.message
    assert error.retry_after is None


@pytest.mark.parametrize(("header", "seconds"), [(None, 2.5), ("7", 7), ("9" * 400, 2.5), ("soon", 2.5)])
def test_the_header_names_the_wait_and_without_it_the_body(header: str | None, seconds: float) -> None:
    assert api_error(503, b'{"details": {"retryAfterSeconds": 2.5}}', retry_after=header).retry_after == seconds


@pytest.mark.parametrize("header", [None, "86400"])
def test_a_gateway_that_names_an_hour_or_a_day_is_asked_again_in_half_a_minute(header: str | None) -> None:
    error = api_error(503, b'{"details": {"retryAfterSeconds": 3600}}', retry_after=header)
    assert error.retry_after == MAX_RETRY_AFTER_SECONDS


REFUSALS = [
    (400, "unknown field", EDIT),
    (422, "Required value", EDIT),
    (422, "denied request: not on Sundays", USER),
    (400, 'admission webhook "x" denied the request', USER),
    (403, "exceeded quota", USER),
    (500, "failed calling webhook", USER),
]


@pytest.mark.parametrize(("status", "message", "retry_policy"), REFUSALS)
def test_a_pod_that_is_refused(status: int, message: str, retry_policy: RetryPolicy) -> None:
    error = api_error(status, message.encode())  # a text that is no Status is the message itself
    assert PodRefused(error, role="worker").retry_policy is retry_policy


POLICY = "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: too large"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503])
@pytest.mark.parametrize("message", [DENIED, POLICY])
def test_a_denial_by_a_webhook_or_a_policy_is_about_the_pod_whatever_its_status(message: str, status: int) -> None:
    """The webhook chooses the status. As no answer, a 409 barred all jobs of the namespace from preempting."""
    error = api_error(status, json.dumps({"message": message}).encode(), retry_after="7")
    assert refuses_pod(error)
    assert PodRefused(error, role="worker").retry_policy is USER
    assert PodRefused(error, role="worker").retry_after == 7


@pytest.mark.parametrize("status", [401, 404, 409, 410, 413, 429, 500, 503])
@pytest.mark.parametrize("message", ["Too many requests, please try again later.", conflict('resourcequotas "gpus"')])
def test_an_answer_of_the_api_server_with_such_a_status_is_about_its_own_state(message: str, status: int) -> None:
    assert not refuses_pod(api_error(status, json.dumps({"message": message}).encode(), retry_after="7"))


def test_every_class_is_in_one_of_these_tables() -> None:
    def below(kind: type[ClusterError]) -> set[type[ClusterError]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    shown = {type(api_error(status, b"")) for status in ANSWERS} | {type(error) for error, _ in OTHERS}
    assert below(ClusterError) == shown | {PodRefused, ApiError}


@pytest.mark.parametrize(
    ("retry_policy", "is_transient", "is_reported"),
    [(AGAIN, True, False), (LEADER, True, False), (WAIT, True, True), (USER, False, True), (EDIT, False, True)],
)
def test_what_may_pass_and_who_is_told(retry_policy: RetryPolicy, is_transient: bool, is_reported: bool) -> None:
    assert (retry_policy.is_transient, retry_policy.is_reported) == (is_transient, is_reported)
