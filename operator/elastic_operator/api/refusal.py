"""What the API server says of a pod that it refuses, said of the job that the pod was made for.

The user wrote no pod but a template: fields are named where they stand in the job, and each mistake has its remedy. A
variable of the environment is named by its place in the pod, where the operator's own come first.
"""

from __future__ import annotations

import re

from elastic_operator.api.job import JobSpec

_PREAMBLE = re.compile(
    r'^Pod "[^"]*" is invalid: |^Pod in version "v1" cannot be handled as a Pod: (strict decoding error: )?'
)
_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]*)"')
_FIELD = re.compile(r"(^|\[|, )(?=(?:spec|metadata)[.\[])")
_UNKNOWN = r"\1: must be absent: there is no such field; check its spelling and its indentation"
REMEDY = "Correct the template; while it is edited the job must be suspended (spec.suspend: true)."

_REMEDIES = (
    ("exceeded quota", "Lower maxReplicas, have the ResourceQuota raised, or wait."),
    ("PodSecurity", "Change the template, or have the namespace's Pod Security level changed."),
    ("being terminated", "The namespace is being deleted: create the job in another one."),
    ("webhook", "Ask who runs that webhook, or change the template."),
    ("cannot create", "Grant the operator's service account that right."),
    ("maximum", "Ask for less per pod, or have the LimitRange changed."),
    ("minimum", "Ask for more per pod, or have the LimitRange changed."),
)


def pod_refusal(spec: JobSpec, *, role: str, message: str) -> str:
    """The refusal of a pod of `role`, with `message` as in the API server's Status, as text for the job's condition."""
    own = spec.master if role == "master" else spec.worker
    template = f"spec.{role}.template" if own else "spec.template"
    told = _UNKNOWN_FIELD.sub(_UNKNOWN, _PREAMBLE.sub("", message))
    told = _FIELD.sub(rf"\1{template}.", told)
    return f"{told.rstrip('.')}. {REMEDY}"


def pod_blocked(message: str) -> str:
    """A refusal that may pass without an edit (a quota, a policy, a webhook), with what can be done about it."""
    remedy = next((remedy for sign, remedy in _REMEDIES if sign in message), "Have that changed, or the template.")
    return f"the API server takes no more pods of this job: {message.rstrip('.')}. {remedy}"
