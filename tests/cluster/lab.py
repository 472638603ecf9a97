"""What the tests do on the cluster and see of it, in the words of a user: apply, edit, kubectl; jobs, pods, logs.

Nothing here knows how the operator works. Whoever waits in vain is told what the job's status and the pods were last.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from elastic_api.job import API_VERSION, PLURAL
from elastic_worker.contract import ROLE_MASTER
from tests.kit.wait import WaitRanOutError, until

T = TypeVar("T")
Object = dict[str, Any]

WAIT_SECONDS = 90.0
"""Far more than anything takes on a machine that is not overloaded."""
IMPORT_SECONDS = 150.0
"""On a busy machine it takes that long until pods that came together have all imported torch."""
LOG_LINES = 60
POLL_SECONDS = 0.2
OPERATOR_NAMESPACE = "elastic-system"
NO_DEFINITIONS = "the server doesn't have a resource type"
"""What kubectl says of jobs where the operator was never installed."""


class Lab:
    """The cluster with the operator in it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        tls = ssl.create_default_context(cafile=str(cluster.layout.pki / "ca.crt"))
        tls.load_cert_chain(cluster.layout.pki / "admin.crt", cluster.layout.pki / "admin.key")
        self.http = httpx.Client(base_url=cluster.api.server, verify=tls, timeout=30.0, trust_env=False)

    def kubectl(self, *words: str, objects: list[Object] | None = None) -> str:
        """What kubectl prints; what it complains of, where it fails, is the test's failure."""
        result = self.try_kubectl(*words, objects=objects)
        if result.returncode and "timed out waiting" in result.stderr:
            raise WaitRanOutError(f"kubectl {' '.join(words)}: {result.stderr}")
        assert result.returncode == 0, f"kubectl {' '.join(words)}: {result.stderr}"
        return result.stdout

    def try_kubectl(self, *words: str, objects: list[Object] | None = None) -> subprocess.CompletedProcess[str]:
        """The same, where a refusal is what is asked about."""
        command = [self.cluster.kubectl, "--kubeconfig", str(self.cluster.kubeconfig), *words]
        stdin = "\n".join(json.dumps(each) for each in objects or [])  # kubectl 1.30 reads no --- between JSON
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)

    def get(self, path: str) -> Any:
        """The object or list at a path of the API, None where there is none."""
        answer = self.http.get(path)
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        return answer.json()

    def pods(self, namespace: str) -> list[Object]:
        """All that are in the namespace."""
        items: list[Object] = self.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return items

    def wait_ready(self) -> None:
        """Until all nodes are Ready with all their GPUs."""
        try:
            self.cluster.wait_ready(seconds=WAIT_SECONDS)
        except DevclusterError as error:
            raise WaitRanOutError(str(error)) from error

    @contextlib.contextmanager
    def cordoned(self, node: str) -> Iterator[None]:
        """The node takes no new pods meanwhile."""
        self.kubectl("cordon", node)
        try:
            yield
        finally:
            self.kubectl("uncordon", node)

    @contextlib.contextmanager
    def killed(self, node: str) -> Iterator[None]:
        """The node is off meanwhile; at the end it is Ready again."""
        self.cluster.node(node).kill()
        try:
            yield
        finally:
            self.cluster.node(node).restart()
            self.wait_ready()

    @contextlib.contextmanager
    def no_operator(self) -> Iterator[None]:
        """Nobody decides anything meanwhile; at the end all replicas are Ready again."""
        operator = ("deployment", "--all", "-n", OPERATOR_NAMESPACE)
        replicas = self.get(f"/apis/apps/v1/namespaces/{OPERATOR_NAMESPACE}/deployments")["items"][0]["spec"][
            "replicas"
        ]
        self.kubectl("scale", *operator, "--replicas=0")
        self.kubectl("wait", "pods", "--all", "-n", OPERATOR_NAMESPACE, "--for=delete", "--timeout=60s")
        try:
            yield
        finally:
            self.kubectl("scale", *operator, f"--replicas={replicas}")
            self.kubectl("rollout", "status", "deployment", "-n", OPERATOR_NAMESPACE, "--timeout=90s")

    def move_operator_off(self, node: str) -> None:
        """No replica of the operator is there any more: after a drain both may have been."""
        ours = ("-n", OPERATOR_NAMESPACE, "-l", "app.kubernetes.io/name")
        with self.cordoned(node):
            self.kubectl("delete", "pod", *ours, "--field-selector", f"spec.nodeName={node}", "--wait")
            self.kubectl("wait", "pod", *ours, "--for=condition=Ready", "--timeout=60s")

    def mend_nodes(self) -> None:
        """Uncordon what a failed test left cordoned."""
        for node in self.get("/api/v1/nodes")["items"]:
            if node["spec"].get("unschedulable"):
                self.kubectl("uncordon", node["metadata"]["name"])

    def operator_log(self, lines: int = 60) -> str:
        """The end of what the operator's pods logged."""
        words = ("logs", "-n", OPERATOR_NAMESPACE, "-l", "app.kubernetes.io/name", f"--tail={lines}")
        told = self.try_kubectl(*words)
        return told.stdout + told.stderr  # of a node that is cut off there is only the error


def wait(what: str, look: Callable[[], T], *, seconds: float = WAIT_SECONDS, report: Callable[[], str] = str) -> T:
    """The first true thing that `look` finds; a WaitRanOutError with `report()` after `seconds`."""
    return until(what, look, seconds=seconds, poll_seconds=POLL_SECONDS, report=lambda: f"\n{report()}")


@dataclass(frozen=True, slots=True)
class Team:
    """A namespace and who works in it."""

    lab: Lab
    name: str

    # -- do ----------------------------------------------------------------------------------------------------------

    def kubectl(self, *words: str, objects: list[Object] | None = None) -> str:
        """kubectl in the team's namespace."""
        return self.lab.kubectl("-n", self.name, *words, objects=objects)

    def apply(self, *objects: Object) -> None:
        """kubectl apply."""
        self.kubectl("apply", "-f", "-", objects=list(objects))

    def edit(self, job: str, **spec: Any) -> None:
        """Change fields of the job's spec."""
        self.kubectl("patch", PLURAL, job, "--type=merge", "-p", json.dumps({"spec": spec}))

    def scale(self, job: str, replicas: int) -> None:
        """kubectl scale."""
        self.kubectl("scale", f"{PLURAL}/{job}", f"--replicas={replicas}")

    def delete_pod(self, name: str, *options: str) -> None:
        """kubectl delete pod, without waiting."""
        self.kubectl("delete", "pod", name, "--wait=false", *options)

    def is_removed(self) -> None:
        """With all that is in it. Jobs go first, else they make new pods; no pod holds a GPU any more afterwards."""
        jobs = self.lab.try_kubectl("-n", self.name, "delete", PLURAL, "--all", "--wait")
        assert not jobs.returncode or NO_DEFINITIONS in jobs.stderr, jobs.stderr
        self.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait", "--timeout=60s")
        self.lab.kubectl("delete", "namespace", self.name, "--wait=false")
        self.lab.kubectl("delete", "pv", f"{self.name}-checkpoints", "--ignore-not-found", "--wait=false")

    # -- see ---------------------------------------------------------------------------------------------------------

    def job(self, name: str = "toy") -> Object | None:
        """The job."""
        found: Object | None = self.lab.get(f"/apis/{API_VERSION}/namespaces/{self.name}/{PLURAL}/{name}")
        return found

    def status(self, job: str = "toy") -> Object:
        """The job's status; {} before it has one."""
        return (self.job(job) or {}).get("status") or {}

    def condition(self, kind: str, job: str = "toy") -> Object:
        """One condition of the job, {} if it has none of that type."""
        return next((c for c in self.status(job).get("conditions", []) if c["type"] == kind), {})

    def column(self, title: str, job: str = "toy") -> str:
        """What `kubectl get` shows in that column."""
        heads, values = self.kubectl("get", PLURAL, job).splitlines()
        start = heads.index(title)
        rest = [match.start() for match in re.finditer(r"(?<=\s\s)\S", heads) if match.start() > start]
        return values[start : rest[0] if rest else None].strip()

    def all_pods(self, job: str = "toy") -> list[Object]:
        """The pods that the job controls, master first."""
        uid = ((self.job(job) or {}).get("metadata") or {}).get("uid")
        own = [
            p
            for p in self.lab.pods(self.name)
            if any(o["uid"] == uid for o in p["metadata"].get("ownerReferences", []))
        ]
        return sorted(own, key=_place)

    def pods(self, job: str = "toy") -> list[str]:
        """Live pods, by what comes after the job in their names: master-0, worker-0, ..."""
        return [p["metadata"]["name"].removeprefix(f"{job}-") for p in self.all_pods(job) if is_alive(p)]

    def uids(self, job: str = "toy") -> dict[str, str]:
        """Live pods by name, with their uids."""
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in self.all_pods(job) if is_alive(p)}

    def nodes_of(self, job: str = "toy") -> list[str]:
        """The nodes of the live pods, master's first."""
        return [p["spec"].get("nodeName", "") for p in self.all_pods(job) if is_alive(p)]

    def logs(self, pod: str) -> str:
        """What the pod's main container has printed; "" while there is none."""
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}/log"
        answer = self.lab.http.get(path)
        return answer.text if answer.status_code == 200 else ""

    @contextlib.contextmanager
    def following(self, pod: str) -> Iterator[Callable[[], str]]:
        """Follow a pod's log from its beginning; what is given waits for the pod's end, and returns all of it."""
        command = [self.lab.cluster.kubectl, "--kubeconfig", str(self.lab.cluster.kubeconfig), "-n", self.name]
        with tempfile.TemporaryFile("w+") as file:
            process = subprocess.Popen([*map(str, command), "logs", "--follow", pod], stdout=file)

            def last_words() -> str:
                assert process.wait(timeout=WAIT_SECONDS) == 0
                file.seek(0)
                return file.read()

            try:
                yield last_words
            finally:
                process.kill()
                process.wait()

    def events(self, job: str = "toy") -> list[str]:
        """Reasons of the job's events."""
        items = self.lab.get(f"/apis/events.k8s.io/v1/namespaces/{self.name}/events")["items"]
        return [e["reason"] for e in items if e["regarding"].get("name") == job]

    # -- wait --------------------------------------------------------------------------------------------------------

    def wait(self, what: str, look: Callable[[], T], *, seconds: float = WAIT_SECONDS) -> T:
        """See `wait`."""
        return wait(what, look, seconds=seconds, report=self.report)

    def wait_for(
        self,
        job: str,
        phase: str,
        *,
        pods: int | None = None,
        limited_by: str | None = None,
        seconds: float = WAIT_SECONDS,
    ) -> Object:
        """Until the job's STATUS is `phase` for its spec as it is now (with so many live pods, and limited so).

        Returns the status.
        """

        def reached() -> Object | None:
            found = self.job(job) or {"metadata": {"generation": -1}}
            status: Object = found.get("status") or {}
            reasons = {c["type"]: c["reason"] for c in status.get("conditions", [])}
            fits = (
                status.get("observedGeneration") == found["metadata"]["generation"]
                and reasons.get("Ready") == phase
                and limited_by in (None, reasons.get("FullSize"))
            )
            return status if fits and pods in (None, len(self.pods(job))) else None

        with_pods = f" with {pods} pods" if pods is not None else ""
        limit = f", limited by {limited_by}" if limited_by else ""
        found = self.wait(f"job {job} to be {phase}{with_pods}{limit}", reached, seconds=seconds)
        assert found is not None
        return found

    def wait_log(self, pod: str, text: str, *, times: int = 1, seconds: float = WAIT_SECONDS) -> str:
        """Until the pod's log holds `text` so many times; returns the log."""

        def said() -> str:
            log = self.logs(pod)
            return log if log.count(text) >= times else ""

        return self.wait(f"{pod} to say {text!r}", said, seconds=seconds)

    def report(self) -> str:
        """Everything that helps to understand a failure."""
        parts = [
            ("jobs", self.lab.try_kubectl("-n", self.name, "get", PLURAL, "-o", "yaml").stdout),
            ("pods", self.lab.try_kubectl("-n", self.name, "get", "pods", "-o", "wide").stdout),
            ("events", self.lab.try_kubectl("-n", self.name, "get", "events", "--sort-by=.lastTimestamp").stdout),
            ("nodes", self.lab.try_kubectl("get", "nodes").stdout),
            ("operator", self.lab.operator_log()),
            *((f"log of {pod}", self._end_of_log(pod)) for pod in self.pods()),
        ]
        return "\n".join(f"--- {title} ---\n{text}" for title, text in parts)

    def _end_of_log(self, pod: str) -> str:
        return self.lab.try_kubectl("-n", self.name, "logs", pod, f"--tail={LOG_LINES}").stdout


@contextlib.contextmanager
def two_teams(lab: Lab) -> Iterator[list[Team]]:
    """Two namespaces, gone at the end with all that is in them."""
    made = [Team(lab, f"team-{letter}-{secrets.token_hex(3)}") for letter in "ab"]
    for team in made:
        lab.kubectl("create", "namespace", team.name)
    with contextlib.ExitStack() as stack:
        for team in made:
            stack.callback(team.is_removed)
        yield made


def is_alive(pod: Object) -> bool:
    """Whether the pod is not being deleted and has not ended."""
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ("Succeeded", "Failed")


def _place(pod: Object) -> tuple[bool, int]:
    """Master first, then workers by number."""
    role, _, number = pod["metadata"]["name"].rpartition("-")
    return not role.endswith(ROLE_MASTER), int(number)
