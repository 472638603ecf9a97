"""A release of the chart on a real cluster, by helm and kubectl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.chart.rendering import CHART, helm


@dataclass(frozen=True, slots=True)
class Release:
    """The release elastic-pytorch in the namespace elastic-system of a cluster."""

    kubeconfig: Path
    kubectl_program: str
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

    def operator_serves(self, namespace: str) -> bool:
        """Whether the operator's service account may make pods there."""
        account = f"--as=system:serviceaccount:{self.namespace}:{self.name}-operator"
        return self.try_kubectl("auth", "can-i", "create", "pods", account, f"--namespace={namespace}").returncode == 0

    def _helm(self, *arguments: str | Path) -> None:
        result = helm(*arguments, "--namespace", self.namespace, "--kubeconfig", self.kubeconfig)
        assert result.returncode == 0, result.stderr
