"""The chart's release on the shared cluster, as an administrator handles it with helm."""

from __future__ import annotations

from pathlib import Path

import yaml

from demo.install import CHART, NAMESPACE, RELEASE, REPOSITORY, install_operator
from demo.kube import Kube
from devcluster.progress import Progress
from tests.cluster.lab import Lab, Object, wait

RELEASED = sorted((REPOSITORY / "tests" / "chart" / "released").glob("*.tgz"))[-1]
"""The chart as it was last published."""
STRICT = ("networkPolicy.enabled=true", "settings.jobNetworkPolicy.enabled=true")
"""Both are off by default. What runs behind network policies that are enforced runs without them."""


class Installation:
    """What helm made of the chart; there when a test begins, and to be there when it ends.

    The operator and each job are behind their network policies.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.kube = Kube(lab.cluster.kubeconfig, lab.cluster.kubectl, lab.cluster.programs["helm"])

    def install(self, *flags: str, chart: Path = CHART) -> None:
        """Install, or upgrade to, a chart; the flags are helm's. Returns when the operator is ready.

        The chart that was published before has no network policies.
        """
        strict = [word for value in STRICT for word in ("--set", value)] if chart == CHART else []
        install_operator(self.kube, Progress(quiet=True), *strict, *flags, chart=chart)

    def roll_back(self) -> None:
        """To the revision before this one."""
        self.kube.helm("rollback", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "120s")

    def uninstall(self) -> None:
        """Until nothing of the operator runs."""
        self.kube.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "120s")
        wait("the operator's pods to go", lambda: not self.pods())

    def pods(self) -> list[Object]:
        """The operator's."""
        return [
            pod
            for pod in self.lab.pods(NAMESPACE)
            if pod["metadata"]["labels"].get("app.kubernetes.io/name") == "elastic-operator"
        ]

    def uids(self) -> set[str]:
        """Of these pods, those that are on their way out too."""
        return {pod["metadata"]["uid"] for pod in self.pods()}

    def version(self) -> str:
        """Of the chart that is installed."""
        deployment = self.lab.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-operator")
        return str(deployment["metadata"]["labels"]["helm.sh/chart"])

    def alerting_rules(self) -> str:
        """The rules file in the chart's PrometheusRule."""
        shown = self.kube.helm(
            *(
                "template",
                RELEASE,
                str(CHART),
                "--namespace",
                NAMESPACE,
                "--set",
                "metrics.prometheusRule.enabled=true,image.registry=any",
            ),
            *("--show-only", "templates/prometheusrule.yaml"),
        )
        return yaml.safe_dump(yaml.safe_load(shown)["spec"])
