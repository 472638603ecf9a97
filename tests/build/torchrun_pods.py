"""Pods of Torchrun mode as processes of this machine: what the operator built, run with a real torch."""

import os
import re

from devcluster import torchtree
from devcluster.progress import Progress
from elastic_api.job import JobSpec
from elastic_operator.build.torchrun_group import GroupRank, last_rank
from elastic_worker.contract import ENV_LOCAL_ADDR, ENV_MASTER_ADDR, ENV_MASTER_PORT, ENV_RDZV_ENDPOINT
from tests.build.containers import Container, start
from tests.build.objects import env_of, make_pod
from tests.kit.wait import until
from tests.worker.job.local import free_port
from tests.worker.job.pod import RESOLVER


class TorchrunPods:
    """Pod 0 is the master. Each has an address of its own; the Service's is the master's port on loopback."""

    def __init__(self, folder, spec: JobSpec, *, tree=torchtree.DEFAULT_TREE, packages=()):
        self.folder, self.spec, self.port = folder, spec, free_port()
        self.tree, *more = (torchtree.ensure(Progress(quiet=True), tree=name) for name in (tree, *packages))
        self.modules = os.pathsep.join(map(str, (self.tree, *more)))
        self.pods: list[Container] = []
        # Debian has no `python`, which images of torch have.
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to("/usr/bin/python3.11")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pod in self.pods:
            pod.kill()

    def begin(self, number: int) -> Container:
        """Start one, in the job's folder."""
        pod = make_pod(self.spec, role="worker" if number else "master", index=max(0, number - 1))
        service = {ENV_MASTER_ADDR: "127.0.0.1", ENV_MASTER_PORT: str(self.port)}
        own = {ENV_LOCAL_ADDR: f"127.0.0.{number + 1}", ENV_RDZV_ENDPOINT: f"127.0.0.1:{self.port}", **service}
        path = f"{self.tree}/bin:{self.folder}/bin:/usr/bin:/bin"
        torch = {"PATH": path, "PYTHONPATH": self.modules, "PYTHONDONTWRITEBYTECODE": "1"}
        alone = RESOLVER | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        main = pod["spec"]["containers"][0]
        _shell, _c, script, _name, *command = main["command"]
        env = _expanded(env_of(pod) | own)
        words = [_expanded_in(word, env) for word in [*command, *main.get("args", ())]]
        env |= torch | alone
        errors = self.folder / f"errors-{number}"
        self.pods.append(start("dash", script, *words, env=env, folder=self.folder, errors=errors))
        return self.pods[-1]

    def rank(self, number: int) -> GroupRank | None:
        """Where the pod said last that torchrun has put it."""
        return last_rank((self.folder / f"errors-{number}").read_text())

    def end(self, *, seconds: float) -> list[tuple[int, str, str]]:
        """Of each pod, once all have ended: exit code, output and errors."""
        until("all have ended", lambda: not any(pod.running() for pod in self.pods), seconds=seconds)
        return [pod.end() for pod in self.pods]


def _expanded(env: dict[str, str]) -> dict[str, str]:
    """As the kubelet does it: `$(NAME)` is the value of that variable, if there is one."""
    return {name: _expanded_in(value, env) for name, value in env.items()}


def _expanded_in(text: str, env: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: env.get(found[1], found[0]), text)
