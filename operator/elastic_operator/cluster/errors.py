"""Turns the API server's refusals into exceptions: one class for each kind of refusal, by status and reason.

Callers catch the classes that they can act on. Any other refusal is an `ApiError` for the top of a loop.
"""

# ruff: noqa: N818 - the names are the API's own reasons
from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

MAX_RETRY_AFTER_SECONDS = 30.0
"""The longest wait that a server can impose; the operator's own waits after failures are no longer either. The API
server names a few seconds; a gateway before it may name an hour.
"""
_MAX_SHOWN = 200


class RetryPolicy(Enum):
    """Whether to retry a failed write. The last two need a person, who corrects the cause or edits the job.

    The order is that of `severity`: the gravest is last.
    """

    DECIDE_AGAIN = "decide again at once from the new state; do not report"
    NOT_LEADER = "stop writing, because another replica leads; do not report"
    RETRY = "retry the same write after a pause"
    RETRY_UNTIL_FIXED = "retry the same write after a pause, and tell the user what to do"
    WAIT_FOR_EDIT = "do not retry before the user edits the job"

    @property
    def is_transient(self) -> bool:
        """Whether the error ends without a person's action."""
        return self not in (RetryPolicy.RETRY_UNTIL_FIXED, RetryPolicy.WAIT_FOR_EDIT)

    @property
    def is_reported(self) -> bool:
        """Whether the error is reported, to users or in the log."""
        return self not in (RetryPolicy.DECIDE_AGAIN, RetryPolicy.NOT_LEADER)


class ClusterError(Exception):
    """A call to the cluster failed. `retry_after`: the seconds that the server named, at most MAX_RETRY_AFTER_SECONDS;
    None if it named none.
    """

    retry_policy = RetryPolicy.RETRY_UNTIL_FIXED
    retry_after: float | None = None


class Unreachable(ClusterError):
    """There was no answer. A write may or may not have happened."""

    retry_policy = RetryPolicy.RETRY


class Fenced(ClusterError):
    """The lease no longer covers a write; nothing was sent."""

    retry_policy = RetryPolicy.NOT_LEADER


class Outdated(ClusterError):
    """The write was decided on another state than the present one, as the operator itself has found out."""

    retry_policy = RetryPolicy.DECIDE_AGAIN


class NameTaken(ClusterError):
    """The name of an object belongs to one that is not the job's, or is being deleted. The text is for the user."""


class ApiError(ClusterError):
    """The API server refused."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class BadRequest(ApiError):
    """400; strict field validation also answers unknown fields with this status."""


class Unauthorized(ApiError):
    """401: the credentials are not accepted. The session reads them again, and users can do nothing about it."""

    retry_policy = RetryPolicy.RETRY


class Forbidden(ApiError):
    """403: no permission, a quota exceeded, or the namespace is being deleted (cause `NamespaceTerminating`)."""


class NotFound(ApiError):
    """404 for an object: there is none of that name."""


class NotServed(ApiError):
    """404 that names no object: the server does not (yet) serve the kind."""

    retry_policy = RetryPolicy.RETRY


class AlreadyExists(ApiError):
    """409 on a create: the name is in use."""


class Conflict(ApiError):
    """409 on a change: the object, or its version, is not the one that the precondition names. The 409 of a webhook or
    a proxy is an `ApiError`: it comes again, however often the operator decides again.
    """

    retry_policy = RetryPolicy.DECIDE_AGAIN


class UnversionedConflict(ApiError):
    """409 of the API server's own on a write that names no version: it met another write, such as that of a quota.
    Nothing is to be read again, and the same write passes a moment later.
    """

    retry_policy = RetryPolicy.RETRY


class Expired(ApiError):
    """410: the resourceVersion or the continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object breaks a rule of its schema or of admission."""


class TooManyRequests(ApiError):
    """429: the server asks for patience (`retry_after`)."""

    retry_policy = RetryPolicy.RETRY


class ServerError(ApiError):
    """5xx: the server could not answer, or something that it needs did not."""

    retry_policy = RetryPolicy.RETRY


WITHOUT_RIGHTS = (Forbidden, NotFound, NotServed)
"""The answers to a list in a namespace that does not exist, if the right to list was granted by a Role in it."""


def has_unknown_outcome(error: ClusterError) -> bool:
    """Whether a write that failed with this error may have been carried out nevertheless.

    It may if there was no answer, if a proxy gave up waiting (502 or 504), or if etcd did not answer the API server.
    Any other error means that it was not carried out.
    """
    if not isinstance(error, ServerError):
        return isinstance(error, Unreachable)
    return error.status in {502, 504} or "etcdserver: request timed out" in error.message


def severity(error: BaseException) -> int:
    """The severity of an error among those of several writes: the gravest error is the one to act on.

    A transient error must not hide an error that a person has to correct. Neither may hide an error of the
    operator's own, or a cancellation.
    """
    policies = list(RetryPolicy)
    return policies.index(error.retry_policy) if isinstance(error, ClusterError) else len(policies)


_MAY_CHANGE = ("webhook", "denied request")
"""The API server's words for refusals by webhooks and by a ValidatingAdmissionPolicy."""
_DENIED = ("denied the request", "denied request")
"""Its words if they have decided. They choose the status of the answer, 409 and 429 among others."""


class PodRefused(ClusterError):
    """The API server refuses a pod as it is: by its template, a quota, a policy, a webhook.

    `own_variables`: how many variables of its main container's environment stand before those of the template.
    """

    def __init__(self, error: ApiError, *, role: str, own_variables: int = 0) -> None:
        super().__init__(str(error))
        self.own_variables = own_variables
        self.error = error
        self.retry_after = error.retry_after
        self.role = role
        # A webhook or an admission policy may change its mind, whatever code it answers with.
        may_change = any(sign in error.message for sign in _MAY_CHANGE)
        self.retry_policy = (
            RetryPolicy.WAIT_FOR_EDIT
            if isinstance(error, BadRequest | Invalid) and not may_change
            else RetryPolicy.RETRY_UNTIL_FIXED
        )


def refuses_pod(error: ApiError) -> bool:
    """Whether the answer to the creation of a pod is about the pod, and not about the server's own state."""
    if 'serviceaccount "default" not found' in error.message:
        return False  # in a new namespace the service account is created a moment later
    fails_at_webhook = isinstance(error, ServerError) and "webhook" in error.message
    is_denied = any(sign in error.message for sign in _DENIED)
    return is_denied or fails_at_webhook or isinstance(error, Forbidden | BadRequest | Invalid)


_CONFLICT = "Operation cannot be fulfilled on "
"""The API server's own conflicts begin so (apimachinery: NewConflict)."""
_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def api_error(status: int, body: bytes, *, retry_after: str | None = None) -> ApiError:
    """The exception for a response with an HTTP `status` of 400 or more; `retry_after` is that header's text."""
    return _error(status, _parsed(body), header=retry_after)


def error_event(body: bytes) -> ApiError:
    """The exception for an ERROR event of a watch; its object is a Status, whose `code` stands for the HTTP status."""
    parsed = _parsed(body)
    code = parsed.get("code")
    return _error(code if isinstance(code, int) else 500, parsed)


def _error(status: int, body: Mapping[str, Any], *, header: str | None = None) -> ApiError:
    reason = str(body.get("reason") or "")
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    message = str(body.get("message") or "no message")
    if kind is Conflict and not message.startswith(_CONFLICT):
        kind = AlreadyExists if reason == "AlreadyExists" else ApiError
    details = body.get("details")
    if not isinstance(details, Mapping):
        details = {}  # a gateway in between puts a list there
    if kind is NotFound and not details.get("name"):
        kind = NotServed
    return kind(
        message,
        status=status,
        reason=reason,
        retry_after=_wait(_seconds(header)) or _wait(details.get("retryAfterSeconds")),
    )


def _wait(seconds: object) -> float | None:
    """The wait that the server named, cut to the longest; None if it is no number above zero that a float can hold."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return min(float(seconds), MAX_RETRY_AFTER_SECONDS) if 0 < seconds <= sys.float_info.max else None


def _parsed(body: bytes) -> dict[str, Any]:
    """The Status in `body`. Proxies in between answer with text or HTML, which becomes the message."""
    try:
        parsed = msgspec.json.decode(body)
    except msgspec.DecodeError:
        parsed = None
    if isinstance(parsed, dict):
        return parsed
    return {"message": body[:_MAX_SHOWN].decode(errors="replace").strip()}


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds. The API server does not use its other form, a date, which counts as absent."""
    return float(header) if header and header.isdecimal() else None
