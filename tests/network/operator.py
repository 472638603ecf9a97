"""The operator on the cluster of these tests, installed from the chart as each test wants it."""

from __future__ import annotations

import json

from demo.install import NAMESPACE, install_operator
from demo.kube import Kube
from devcluster.progress import Progress
from tests.cluster.lab import Lab, Object, Team

METRICS_FROM = {"namespaceSelector": {"matchLabels": {"metrics": "read"}}}
"""Namespaces so labelled may connect to the operator."""


class Operator:
    """Its own network policy is always on."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.team = Team(lab, NAMESPACE)
        self._installed: tuple[str, ...] | None = None
        self._kube = Kube(lab.cluster.kubeconfig, lab.cluster.kubectl, lab.cluster.programs["helm"])

    def runs_with(self, *, job_policies: bool, job_egress: list[Object] | None = None) -> None:
        """Until it is installed so and ready; nothing happens if it is."""
        flags = ["--set", "networkPolicy.enabled=true"]
        flags += ["--set-json", f"networkPolicy.metricsFrom={json.dumps([METRICS_FROM])}"]
        flags += ["--set", f"settings.jobNetworkPolicy.enabled={str(job_policies).lower()}"]
        if job_egress is not None:
            flags += ["--set-json", f"settings.jobNetworkPolicy.egress={json.dumps(job_egress)}"]
        if tuple(flags) != self._installed:
            install_operator(self._kube, Progress(quiet=True), *flags)
            self._installed = tuple(flags)

    def pods(self) -> list[Object]:
        """Those that run."""
        return [pod for pod in self.lab.pods(NAMESPACE) if "deletionTimestamp" not in pod["metadata"]]
