"""Quota policies on a real API server, in the words of an administrator: create, change, delete, look."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx

from elastic_api.policy import COLLECTION
from tests.api.policies import make_flavor, make_policy
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import eventually

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MERGE = {"Content-Type": "application/merge-patch+json"}


@dataclass(slots=True)
class Policies:
    """Policies under names that nobody else has: each name gets the mark of the test."""

    api: httpx.Client
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def name(self, short: str) -> str:
        return f"{short}-{self.mark}"

    def post(self, policy: dict[str, Any]) -> httpx.Response:
        """The answer to a policy that is created as `kubectl create` does; its name is a short one."""
        return self.api.post(COLLECTION, params={"fieldValidation": "Strict"}, json=self.named(policy))

    def named(self, policy: dict[str, Any]) -> dict[str, Any]:
        """The policy under a name of this test's own."""
        return {**policy, "metadata": {"name": self.name(policy["metadata"]["name"])}}

    def patch(self, short: str, change: dict[str, Any], *, subresource: str = "") -> httpx.Response:
        """The answer to a JSON merge patch."""
        return self.api.patch(f"{COLLECTION}/{self.name(short)}{subresource}", headers=MERGE, json=change)

    def create(self, short: str, *, parent: str = "", **spec: Any) -> None:
        """A policy; `parent` is another's short name."""
        above = {"parent": self.name(parent)} if parent else {}
        accepted(self.post(make_policy(short, **above, **spec)))

    def change(self, short: str, **spec: Any) -> None:
        """Edit it."""
        accepted(self.patch(short, {"spec": spec}))

    def delete(self, short: str) -> None:
        self.api.delete(f"{COLLECTION}/{self.name(short)}").raise_for_status()

    def status(self, short: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(short).get("status", {})
        return found

    def condition(self, short: str, kind: str) -> dict[str, Any]:
        conditions = self.status(short).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def row(self, short: str) -> dict[str, Any]:
        """What `kubectl get gpuq` shows of it, without its age."""
        table = self.get(short, accept=TABLE)
        columns = [column["name"].upper() for column in table["columnDefinitions"]]
        cells = dict(zip(columns, table["rows"][0]["cells"], strict=True))
        return {column: cell for column, cell in cells.items() if column not in ("NAME", "AGE")}

    def get(self, short: str, *, accept: str = "application/json") -> dict[str, Any]:
        answer = self.api.get(f"{COLLECTION}/{self.name(short)}", headers={"Accept": accept})
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def wait_row(self, short: str, **expected: object) -> None:
        """Until its row shows this."""

        def shown() -> bool:
            return {key: self.row(short)[key] for key in expected} == expected

        eventually(f"{short} {expected}", shown, report=lambda: self.get(short))

    def wait_condition(self, short: str, kind: str, status: str, reason: str) -> str:
        """Until it is so; returns the message."""

        def found() -> bool:
            told = self.condition(short, kind)
            return (told.get("status"), told.get("reason")) == (status, reason)

        eventually(f"{short} {kind}={status} ({reason})", found, report=lambda: self.get(short))
        message: str = self.condition(short, kind)["message"]
        return message


def quota(guaranteed: int, *, limit: int | None = None) -> list[dict[str, Any]]:
    """GPUs of the one flavor; `limit` is that of borrowing."""
    return [make_flavor(guaranteed=guaranteed, **({} if limit is None else {"borrowing": {"limit": limit}}))]
