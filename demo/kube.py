"""The demo's access to the cluster: a user's actions with kubectl and helm, by the same programs and the client."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config

from devcluster import shell
from devcluster.errors import DevclusterError

T = TypeVar("T")


class DemoError(DevclusterError):
    """A condition was not met in time; the message names it and where to look."""


@dataclass(frozen=True, slots=True)
class Kube:
    """A cluster, and the programs to talk to it with."""

    kubeconfig: Path
    kubectl_path: str
    helm_path: str

    def run(self, *words: str, input_text: str = "") -> str:
        """Run a program against this cluster; return its output. Raises DevclusterError with its error."""
        return shell.run(*words, env={"KUBECONFIG": str(self.kubeconfig)}, input_text=input_text)

    def kubectl(self, *words: str, input_text: str = "") -> str:
        """kubectl WORDS."""
        return self.run(self.kubectl_path, *words, input_text=input_text)

    def helm(self, *words: str) -> str:
        """helm WORDS."""
        return self.run(self.helm_path, *words)

    def apis(self) -> tuple[Any, Any]:
        """The core API and the API of custom resources."""
        connected = config.new_client_from_config(config_file=str(self.kubeconfig))  # type: ignore[no-untyped-call]
        return client.CoreV1Api(connected), client.CustomObjectsApi(connected)


def wait_for(what: str, look: Callable[[], T | None], *, seconds: float, pause: float = 0.3) -> T:
    """Wait until `look` returns something, and return that. Raises DemoError after `seconds`."""
    deadline = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise DemoError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)
    return found
