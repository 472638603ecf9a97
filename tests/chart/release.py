"""A release of the chart on a real cluster, by helm and kubectl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.chart.rendering import CHART, helm


@dataclass(frozen=True, slots=True)
class Release:
    """The release elastic-pytorch in the namespace elastic-system of a cluster."""

    kubeconfig: Path
    kubectl_program: str
    api: httpx.Client
    namespace: str = "elastic-system"
    name: str = "elastic-pytorch"

    def install(self) -> None:
        """Install it with the chart's defaults."""
        self._helm("install", self.name, CHART)

    def upgrade(self, *flags: str) -> None:
        """Change its values."""
        self._helm("upgrade", self.name, CHART, *flags)

    def rollback(self) -> None:
        """Go back to the revision before the last."""
        self._helm("rollback", self.name)

    def uninstall(self) -> None:
        """Take it away."""
        self._helm("uninstall", self.name)

    def kubectl(self, *arguments: str | Path) -> str:
        """What kubectl prints; fails the test where kubectl fails."""
        result = self.try_kubectl(*arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def try_kubectl(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """The same, where a refusal is what is asked about."""
        command = [self.kubectl_program, "--kubeconfig", str(self.kubeconfig), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def operator_may(self, verb: str, resource: str, *, subresource: str = "", name: str = "", namespace: str) -> bool:
        """Whether the operator's service account has a right in a namespace ("" for what has none)."""
        account = f"system:serviceaccount:{self.namespace}:{self.name}-operator"
        return self.may(account, verb, resource, subresource=subresource, name=name, namespace=namespace)

    def may(
        self, user: str, verb: str, resource: str, *, subresource: str = "", name: str = "", namespace: str
    ) -> bool:
        """Whether a user has a right to a resource, PLURAL or PLURAL.GROUP, in a namespace ("" for what has none)."""
        plural, _, group = resource.partition(".")
        what = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
        review = {"spec": {"user": user, "resourceAttributes": {**what, "name": name, "namespace": namespace}}}
        answer = self.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", json=review).raise_for_status()
        return bool(answer.json()["status"]["allowed"])

    def _helm(self, *arguments: str | Path) -> None:
        result = helm(*arguments, "--namespace", self.namespace, "--kubeconfig", self.kubeconfig)
        assert result.returncode == 0, result.stderr
