"""The requests that these tests make for jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from elastic_api.job import GROUP, PLURAL, VERSION


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of one namespace."""

    api: httpx.Client
    namespace: str

    @property
    def path(self) -> str:
        """Of the collection."""
        return f"/apis/{GROUP}/{VERSION}/namespaces/{self.namespace}/{PLURAL}"

    def create(
        self, job: dict[str, Any], *, validation: str = "Strict", headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """POST, as `kubectl create` does."""
        params = {"fieldValidation": validation}
        return self.api.post(self.path, params=params, headers=headers, json=self._here(job))

    def apply(self, job: dict[str, Any]) -> httpx.Response:
        """Server-side apply."""
        name = job["metadata"]["name"]
        options = {"fieldManager": "tests", "fieldValidation": "Strict"}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        return self.api.patch(f"{self.path}/{name}", params=options, headers=headers, json=self._here(job))

    def patch(self, name: str, change: dict[str, Any], *, subresource: str = "") -> httpx.Response:
        """A JSON merge patch; a field given as None is removed."""
        headers = {"Content-Type": "application/merge-patch+json"}
        return self.api.patch(f"{self.path}/{name}{subresource}", headers=headers, json=change)

    def get(self, name: str, *, accept: str = "application/json") -> dict[str, Any]:
        """The object as stored, or what `accept` makes of it."""
        answer = self.api.get(f"{self.path}/{name}", headers={"Accept": accept})
        answer.raise_for_status()
        return answer.json()

    def _here(self, job: dict[str, Any]) -> dict[str, Any]:
        return {**job, "metadata": {**job["metadata"], "namespace": self.namespace}}


def accepted(answer: httpx.Response) -> dict[str, Any]:
    """The object that the API server has stored."""
    assert answer.is_success, answer.text
    return answer.json()


def refused(answer: httpx.Response) -> dict[str, str]:
    """What the API server complains of: field -> message."""
    assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY, answer.text
    return {cause["field"]: cause["message"] for cause in answer.json()["details"]["causes"]}
