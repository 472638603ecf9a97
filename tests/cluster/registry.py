"""A container registry on this machine's loopback, CNCF's own; the nodes of a cluster reach it at the same address."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from demo.install import REPOSITORY
from devcluster import binaries, network
from devcluster.cluster import Cluster
from devcluster.progress import Progress
from tests.kit.wait import until

USER = "docker"
"""Whom the registry makes, with a password, where it has a file of users to make."""
PASSWORD = re.compile(r"password=(\S+)")


@dataclass(frozen=True)
class Registry:
    """An address, and a folder for what is pushed there and for what those who push need."""

    address: str
    folder: Path

    def environment(self, password: str) -> dict[str, str]:
        """With which skopeo and buildah speak to it, and find pytorch's images in it, and leave the machine's alone."""
        registries = (
            f'[[registry]]\nlocation = "{self.address}"\ninsecure = true\n'
            f'[[registry]]\nprefix = "docker.io/pytorch"\nlocation = "{self.address}/mirror"\ninsecure = true\n'
        )
        storage = f'[storage]\ndriver = "vfs"\ngraphroot = "{self.folder}/images"\nrunroot = "{self.folder}/run"\n'
        login = b64encode(f"{USER}:{password}".encode()).decode()
        auths = json.dumps({"auths": {self.address: {"auth": login}} if password else {}})
        files = {"registries.conf": registries, "storage.conf": storage, "auth.json": auths}
        for name, text in files.items():
            (self.folder / name).write_text(text)
        return {
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "REGISTRY_AUTH_FILE": str(self.folder / "auth.json"),
            "BUILDAH_ISOLATION": "chroot",
            "REGISTRY_USER": USER,
            "REGISTRY_PASSWORD": password,
        }

    def run(self, script: str, environment: Mapping[str, str]) -> str:
        """What a script of bash prints that uses skopeo and buildah; fails the test where a line of it fails.

        It has mounts of its own: that this registry speaks plain HTTP can be said to skopeo in /etc only, and buildah
        leaves mounts behind.
        """
        mount = f"mount --bind {self.folder}/registries.conf /etc/containers/registries.conf\n"
        apart = ("unshare", "--mount", "--propagation", "private")
        done = subprocess.run(
            [*apart, "bash", "-euxo", "pipefail", "-c", mount + script],
            cwd=REPOSITORY,
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    @contextlib.contextmanager
    def serving(self, *, asks: bool) -> Iterator[dict[str, str]]:
        """It runs meanwhile, with what was pushed before, and asks for a name and a password or not."""
        config = self.folder / "registry.json"
        access = {"auth": {"htpasswd": {"realm": "any", "path": str(self.folder / "users")}}} if asks else {}
        storage = {"filesystem": {"rootdirectory": str(self.folder / "pushed")}}
        config.write_text(json.dumps({"version": 0.1, "http": {"addr": self.address}, "storage": storage, **access}))
        program = binaries.ensure_module(binaries.REGISTRY, Progress(quiet=True)) / "registry"
        log = self.folder / "registry.log"
        with log.open("w") as said, _running([str(program), "serve", str(config)], said=said.fileno()):
            until("the registry to listen", self._status, seconds=30)
            assert self._status() == (401 if asks else 200)
            password = PASSWORD.search(log.read_text())
            yield self.environment(password[1].strip('"') if asks and password else "")

    def _status(self) -> int:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://{self.address}/v2/", trust_env=False).status_code
        return 0


@contextlib.contextmanager
def reachable(cluster: Cluster, folder: Path) -> Iterator[Registry]:
    """A registry to be, and on each node a loopback port that leads to it."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    with contextlib.ExitStack() as stack:
        for node in cluster.settings.node_names():
            inside = ("nsenter", "--target", str(network.anchor(cluster.layout, node)), "--net")
            command = [*inside, sys.executable, "-m", "devcluster.forwarder", str(port), str(os.getpid()), str(port)]
            stack.enter_context(_running(command))
        yield Registry(f"127.0.0.1:{port}", folder)


@contextlib.contextmanager
def _running(command: list[str], *, said: int | None = None) -> Iterator[None]:
    with subprocess.Popen(command, stdout=said, stderr=said, cwd=REPOSITORY) as process:
        try:
            yield
        finally:
            process.terminate()
