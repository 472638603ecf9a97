"""Debian's Prometheus beside the cluster: asks the operator's pods as a PodMonitor would have it; it has our alerts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import yaml

from demo.install import NAMESPACE
from devcluster import network, packages
from devcluster.progress import Progress
from tests.cluster.install import Installation
from tests.cluster.lab import Object, wait

PORT = 9090
SCRAPE_SECONDS = 1
FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


class Prometheus:
    """It runs while this is open, in the control plane's network namespace, from where pods can be reached."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        layout = installation.lab.cluster.layout
        self._enter = ["nsenter", "--target", str(network.anchor(layout, network.CONTROL_PLANE)), "--net"]
        self._program = packages.metrics_programs(Progress(quiet=True))["prometheus"]
        self._folder, rules = folder, installation.alerting_rules()
        (folder / "rules.yaml").write_text(rules)
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration(installation.pods())))

    def __enter__(self) -> Self:
        options = [
            f"--config.file={self._folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{PORT}",
        ]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen([*self._enter, str(self._program), *options], stdout=log, stderr=log)
        wait("Prometheus to scrape both replicas", lambda: len(self.query("up == 1")) == 2, report=self._report)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that it finds now; none while it does not answer. A query that is wrong fails the test."""
        answer = self._get("/api/v1/query", query=expression)
        if answer is None:
            return []
        assert answer["status"] == "success", (expression, answer)
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def alerts(self) -> dict[str, str]:
        """Each alert's state: inactive, pending or firing."""
        answer = self._get("/api/v1/rules", type="alert")
        assert answer is not None, self._report()
        return {rule["name"]: rule["state"] for group in answer["data"]["groups"] for rule in group["rules"]}

    def _get(self, path: str, **parameters: str) -> Any:
        address = f"http://127.0.0.1:{PORT}{path}?{urlencode(parameters)}"
        done = subprocess.run([*self._enter, sys.executable, "-c", FETCH, address], capture_output=True, check=False)
        assert b"HTTP Error 4" not in done.stderr, (parameters, done.stderr.decode())
        return json.loads(done.stdout) if done.returncode == 0 else None

    def _report(self) -> str:
        return (self._folder / "log").read_text()[-3000:]


def configuration(pods: list[Object]) -> dict[str, Any]:
    """Every second, the port `http` of these pods, with the labels that Prometheus Operator gives them.

    The addresses are written down: Debian leaves the discovery of pods out of its build.
    """
    targets = [
        {
            "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
            "labels": {"namespace": NAMESPACE, "pod": pod["metadata"]["name"]},
        }
        for pod in pods
        for port in pod["spec"]["containers"][0]["ports"]
        if port["name"] == "http"
    ]
    operator = {"job_name": f"{NAMESPACE}/elastic-pytorch-operator", "honor_labels": True, "static_configs": targets}
    return {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [operator],
    }
