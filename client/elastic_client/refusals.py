"""Converts an API server's refusal to one line for the user: what, where, and what to do. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from elastic_api.job import API_VERSION, GROUP
from elastic_api.policy import COLLECTION
from elastic_client.exits import ClientError, Code
from elastic_client.words import printable

NOT_INSTALLED = (
    "this cluster has no {plural} ({version}): the operator is not installed, or its release is too old;"
    " ask its administrator, or see `kubectl elastic doctor`"
)
VIEWER = "view"
QUOTA_ADMIN = "elastic-pytorch-quota-admin"
"""The chart's role if it is installed as in docs/install.md; another release's role begins with that release's name."""
LOGIN = "your credentials are not accepted: log in again, or name another context by --context"
NO_API_SERVER = "{server} does not answer as an API server: check the address in your kubeconfig"


class GoneError(ClientError):
    """The server no longer knows the version that a watch began with: list again."""


class ConflictError(ClientError):
    """The object has changed since it was read: read it again."""


def refusal(status: int, body: bytes, path: str, *, server: str) -> ClientError:
    """The error for an answer with HTTP status `status` >= 400 to a request for `path`."""
    answer = _status_object(body)
    if status == 401:
        return ClientError(Code.NOT_ALLOWED, LOGIN)
    if status == 403:
        return ClientError(Code.NOT_ALLOWED, _forbidden(answer, path))
    if status == 404:
        return _not_found(answer, path, server)
    if status == 410:
        return GoneError(Code.DEFECT, _line(answer.get("message") or "that version is gone"))
    if answer.get("reason") == "Conflict":
        return ConflictError(Code.REFUSED, _invalid(answer))
    if status in (400, 409, 422):
        return ClientError(Code.REFUSED, _invalid(answer))
    if status == 429 or status >= 500:
        why = answer.get("message") or f"HTTP {status}"
        return ClientError(Code.UNREACHABLE, f"the API server {server} cannot answer now: {_line(why)}; try again")
    return ClientError(Code.DEFECT, f"the API server answers {status} to {path}: {_line(answer.get('message', ''))}")


def _status_object(body: bytes) -> Mapping[str, Any]:
    """The `Status` that API servers send; empty for anything else."""
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) and answer.get("kind") == "Status" else {}


def _forbidden(answer: Mapping[str, Any], path: str) -> str:
    """The API server's message, which names user, verb, resource and namespace, and a remedy."""
    message = _line(answer.get("message") or "the API server forbids it")
    if "cannot" not in message:  # a quota or an admission policy, whose message has the remedy
        return message
    reads = any(f"cannot {verb} " in message for verb in ("get", "list", "watch"))
    if path.startswith(COLLECTION):
        role = VIEWER if reads else QUOTA_ADMIN
        return f"{message}: ask an administrator for a ClusterRoleBinding to the cluster role `{role}`"
    if message.endswith("at the cluster scope"):
        return f"{message}: ask an administrator for a ClusterRoleBinding that lets you, or look in one namespace by -n"
    role = "`view` or `edit`" if reads else "`edit`"
    return f"{message}: ask for the cluster role {role} in that namespace, or name another by -n"


def _not_found(answer: Mapping[str, Any], path: str, server: str) -> ClientError:
    if not answer or not (details := answer.get("details") or {}).get("name"):
        if path.startswith(f"/apis/{GROUP}/"):
            plural = next((part for part in path.split("/")[4:] if part in ("gpuquotapolicies",)), "elasticpytorchjobs")
            return ClientError(Code.NOT_INSTALLED, NOT_INSTALLED.format(plural=plural, version=API_VERSION))
        return ClientError(Code.UNREACHABLE, NO_API_SERVER.format(server=server))
    return ClientError(Code.NOT_FOUND, f"{details.get('kind', 'object')} {details['name']!r}: there is none")


def _invalid(answer: Mapping[str, Any]) -> str:
    """Field and message of each mistake, as the API server found them."""
    causes = (answer.get("details") or {}).get("causes") or []
    named = [f"{cause['field']}: {cause.get('message', '')}" for cause in causes if cause.get("field")]
    return _line("; ".join(dict.fromkeys(named)) or answer.get("message") or "the API server refuses the change")


def _line(text: str) -> str:
    return " ".join(printable(text).split())
