"""The cluster of a soak, made as an administrator makes it: nodes, fake nodes, the chart, classes of priority."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import httpx

from demo import install
from demo.kube import Kube
from devcluster.cluster import Cluster
from devcluster.progress import Progress
from tests.cluster.lab import OPERATOR_NAMESPACE, Lab, wait
from tests.cluster.leader import LEASE_PATH
from tests.simulate import server as kinds
from tests.simulate.facts import FLAVORS, GPU, POOL

REAL = "real"
"""The pool, and the flavor, of the nodes that are not fake."""
NODES, GPUS = 2, 3
CLASSES = {"low": 0, "high": 10}
"""Of jobs."""
SCHEDULER = "scheduler"
FRESH_SECONDS = 8.0
"""Whoever leads renews its lease in so long."""
PATIENCE_SECONDS = 60.0
"""So long the API server may be away before a user's request fails."""


class PatientTransport(httpx.HTTPTransport):
    """Requests that the API server does not answer are sent again, as users do."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The first answer there is."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer = super().handle_request(request)
                if answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR or time.monotonic() > end:
                    return answer
                answer.close()
            except httpx.TransportError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.5)


@dataclass(slots=True)
class Site:
    """The cluster with the operator. `rolled_out` counts its upgrades."""

    lab: Lab
    kube: Kube
    rolled_out: int = field(default=0)

    @classmethod
    def make(cls, name: str, progress: Progress) -> Site:
        """From nothing."""
        cluster, kube = install.local_cluster(name=name, nodes=NODES, gpus=GPUS, progress=progress)
        site = cls(Lab(cluster), kube)
        site.lab.http = site.client()
        site.lab.kubectl("label", "nodes", *cluster.settings.node_names(), f"{POOL}={REAL}", "--overwrite")
        cluster.add_fake_nodes(0, gpus=0, progress=progress)
        site._make_classes()
        site.install(progress)
        return site

    @property
    def cluster(self) -> Cluster:
        """The machine's side of it."""
        return self.lab.cluster

    @property
    def nodes(self) -> list[str]:
        """Names of the real ones."""
        return self.cluster.settings.node_names()

    def client(self, headers: Mapping[str, str] | None = None) -> httpx.Client:
        """An administrator's, or with these headers somebody else's, that comes again while the API server is away."""
        plain = self.lab.cluster.api
        transport = PatientTransport(verify=plain.context, trust_env=False)
        return httpx.Client(base_url=plain.server, transport=transport, timeout=10.0, trust_env=False, headers=headers)

    def install(self, progress: Progress) -> None:
        """Install the chart, or upgrade to one that differs in an annotation of the operator's pods."""
        flavors = [{"name": each, "resources": [GPU], "nodeSelector": {POOL: each}} for each in (*FLAVORS, REAL)]
        words = ("--set-json", f"settings.flavors={json.dumps(flavors)}", "--set", f"nodeSelector.{POOL}={REAL}")
        own = ("--set", f"podAnnotations.rolledOut=time-{self.rolled_out}")
        install.install_operator(self.kube, progress, *words, *own)
        self.rolled_out += 1

    def leads(self) -> bool:
        """Whether somebody holds the lease, and has just renewed it."""
        spec = (self.lab.get(LEASE_PATH) or {"spec": {}})["spec"]
        if not spec.get("holderIdentity"):
            return False
        return time.time() - datetime.fromisoformat(spec["renewTime"]).timestamp() < FRESH_SECONDS

    def wait_operators(self) -> None:
        """Until all replicas are Ready."""
        self.lab.kubectl("rollout", "status", "deployment", "-n", OPERATOR_NAMESPACE, "--timeout=180s")

    def wait_node(self, node: str) -> None:
        """Until it is Ready with all its GPUs."""
        self.cluster.wait_ready([node], seconds=120.0)

    def start_ended_scheduler(self) -> bool:
        """Whether it had ended by itself; started again, as a kubelet does. Not while somebody has killed it.

        It ends itself when its cache contradicts the API server, as it may after one that was killed and came back:
        "Scheduler cache is corrupted".
        """
        part = self.cluster.part(SCHEDULER)
        if part.runs():
            return False
        part.restart()
        return True

    def wait_answers(self) -> None:
        """Until the API server is ready."""
        wait("the API server", self.cluster.api.is_ready)

    def logs_of_operators(self) -> list[Path]:
        """The files into which kubelets write what the operators log."""
        disks = [self.cluster.layout.node(node) / "pod-logs" for node in self.nodes]
        return [file for disk in disks for file in disk.glob(f"{OPERATOR_NAMESPACE}_*/*/*.log*")]

    def _make_classes(self) -> None:
        of_jobs = {name: {"value": value, "preemptionPolicy": "Never"} for name, value in CLASSES.items()}
        of_pods = {
            name: {"value": one["priority"], "preemptionPolicy": one["preemptionPolicy"]}
            for name, one in kinds.PRIORITIES.items()
            if name and not name.startswith("elastic-pytorch-")
        }
        for name, spec in {**of_jobs, **of_pods}.items():
            body = {"metadata": {"name": name}, **spec}
            answer = self.lab.http.post("/apis/scheduling.k8s.io/v1/priorityclasses", json=body)
            assert answer.is_success or answer.status_code == httpx.codes.CONFLICT, answer.text
