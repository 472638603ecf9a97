"""Turns the API server's refusal of a pod into words about the job that the pod was made for.

The user wrote a template, not the pod. So a message names fields by their places in the job, and has a remedy for each
mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elastic_api.job import JobSpec
from elastic_api.status import shortened
from elastic_api.template import main_container
from elastic_worker.contract import ROLE_MASTER

_PREAMBLE = re.compile(
    r'^Pod "[^"]*" is invalid: |^Pod in version "v1" cannot be handled as a Pod: (strict decoding error: )?'
)
_WRONG_TYPE = re.compile(r"json: cannot unmarshal (.+?) into Go struct field \w+\.(\S+) of type (\S+)")
_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]*)"')
_FIELD = re.compile(r"(^|\[|, )(?=(?:spec|metadata)[.\[])")
_VARIABLE = re.compile(r"(?<=\bcontainers\[)(\d{1,9})(\]\.env\[)(\d{1,9})(?=\])")
_UNKNOWN = r"\1: must be absent: there is no such field; check its spelling and its indentation"
REMEDY = "Correct the template; while it is edited the job must be suspended (spec.suspend: true)."

_REMEDIES = (
    ("exceeded quota", "Lower maxReplicas, have the ResourceQuota raised, or wait."),
    ("PodSecurity", "Change the template, or have the namespace's Pod Security level changed."),
    ("being terminated", "The namespace is being deleted: create the job in another one."),
    ("webhook", "Ask who runs that webhook, or change the template."),
    ("denied request", "Ask who wrote that admission policy, or change the template."),
    ("cannot create", "Grant the operator's service account that right."),
    ("maximum", "Ask for less per pod, or have the LimitRange changed."),
    ("minimum", "Ask for more per pod, or have the LimitRange changed."),
)


def pod_refusal(spec: JobSpec, *, role: str, message: str, own_variables: int = 0) -> str:
    """The refusal of a pod of `role`, with `message` as in the API server's Status, as text for the job's condition.

    `own_variables`: how many variables of the main container's environment stand before the user's.
    """
    own = spec.master if role == ROLE_MASTER else spec.worker
    template = f"spec.{role}.template" if own else "spec.template"
    text = _WRONG_TYPE.sub(r"\2: \1: must be of type \3", _PREAMBLE.sub("", shortened(message)))
    text = _UNKNOWN_FIELD.sub(_UNKNOWN, text)
    text = _FIELD.sub(rf"\1{template}.", text)
    text = _VARIABLE.sub(lambda match: _as_written(match, spec.template_of(role), own_variables), text)
    return f"{text.rstrip('.')}. {REMEDY}"


def _as_written(match: re.Match[str], template: Mapping[str, Any], own_variables: int) -> str:
    """The place of a variable in the template, from its place in the pod."""
    container, between, variable = int(match[1]), match[2], int(match[3])
    users = template["spec"]["containers"]
    is_users = container < len(users) and users[container] is main_container(template) and variable >= own_variables
    return f"{container}{between}{variable - own_variables if is_users else variable}"


def pod_blocked(message: str) -> str:
    """A refusal that may pass without an edit (a quota, a policy, a webhook), with the remedy (27)."""
    remedy = next((remedy for sign, remedy in _REMEDIES if sign in message), "Have that changed, or the template.")
    return f"The API server takes no more pods of this job: {shortened(message).rstrip('.')}. {remedy}"
