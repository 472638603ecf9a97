"""A namespace of one's own, with what an administrator may put into it: quotas, limits, levels, webhooks."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

from tests.apiserver.admission.webhook import Webhook
from tests.apiserver.faults.lab import MERGE, await_service_account
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import eventually

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
WEBHOOKS = f"{ADMISSION}/mutatingwebhookconfigurations"
POLICIES, BINDINGS = f"{ADMISSION}/validatingadmissionpolicies", f"{ADMISSION}/validatingadmissionpolicybindings"


@dataclass(slots=True)
class Place:
    """A namespace; `close` takes it down with all that was put there."""

    api: httpx.Client
    webhook: Webhook
    namespace: str = field(default_factory=lambda: f"place-{uuid.uuid4().hex[:6]}")
    _undo: list[Callable[[], object]] = field(default_factory=list)

    def open(self) -> Place:
        """Create it."""
        self.api.post("/api/v1/namespaces", json={"metadata": {"name": self.namespace}}).raise_for_status()
        self._undo.append(lambda: self.api.delete(self.path))
        return self

    def await_service_account(self) -> None:
        """Without it no pod is taken; it comes some time after the namespace."""
        await_service_account(self.api, self.namespace)

    def close(self) -> None:
        """What was put there goes, the namespace last."""
        self.api.delete(self.jobs.path)
        for undo in reversed(self._undo):
            undo()

    @property
    def path(self) -> str:
        """Of the namespace."""
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def jobs(self) -> Jobs:
        """Its jobs."""
        return Jobs(self.api, self.namespace)

    def put(self, plural: str, spec: dict[str, Any]) -> Callable[[], object]:
        """Create an object of the core API; returns what deletes it."""
        body = {"metadata": {"name": "here"}, "spec": spec}
        self.api.post(f"{self.path}/{plural}", json=body).raise_for_status()
        return lambda: self.api.delete(f"{self.path}/{plural}/here").raise_for_status()

    def put_quota(self, **hard: str) -> Callable[[], object]:
        """A ResourceQuota that is in force; returns what deletes it."""
        remove = self.put("resourcequotas", {"hard": hard})
        path = f"{self.path}/resourcequotas/here"
        eventually("the quota in force", lambda: "used" in self.api.get(path).json().get("status", {}))
        return remove

    def label(self, **labels: str | None) -> None:
        """Labels of the namespace."""
        body = {"metadata": {"labels": labels}}
        self.api.patch(self.path, headers=MERGE, json=body).raise_for_status()

    def put_webhook(self, client_config: dict[str, str]) -> Callable[[], object]:
        """A mutating webhook that sees the pods of this namespace; returns what deletes it."""
        hook = {
            "name": "judge.example.com",
            "clientConfig": client_config,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "timeoutSeconds": 2,
        }
        path = f"{WEBHOOKS}/{self.namespace}"
        body = {"metadata": {"name": self.namespace}, "webhooks": [hook]}
        self.api.post(WEBHOOKS, json=body).raise_for_status()
        self._undo.append(lambda: self.api.delete(path))
        return lambda: self.api.delete(path).raise_for_status()

    def put_policy(self, message: str) -> Callable[[], object]:
        """A ValidatingAdmissionPolicy in force that denies all pods of this namespace; returns what deletes it."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}}
        policy = {
            "matchConstraints": {**where, "resourceRules": [rule]},
            "validations": [{"expression": "false", "message": message}],
        }
        binding = {"policyName": self.namespace, "validationActions": ["Deny"]}
        for path, spec in ((POLICIES, policy), (BINDINGS, binding)):
            self.api.post(path, json={"metadata": {"name": self.namespace}, "spec": spec}).raise_for_status()
            self._undo.append(partial(self.api.delete, f"{path}/{self.namespace}"))
        eventually("the policy in force", lambda: message in self._dry_run().text)
        return lambda: self.api.delete(f"{BINDINGS}/{self.namespace}").raise_for_status()

    def _dry_run(self) -> httpx.Response:
        """The answer to a pod that is only tried."""
        pod = {"metadata": {"name": "tried"}, "spec": {"containers": [{"name": "c", "image": "local/none:1"}]}}
        return self.api.post(f"{self.path}/pods", params={"dryRun": "All"}, json=pod)

    def events(self, reason: str) -> list[dict[str, Any]]:
        """The namespace's events of that reason."""
        found: list[dict[str, Any]] = self.api.get(f"{self.path}/events").json()["items"]
        return [event for event in found if event["reason"] == reason]
