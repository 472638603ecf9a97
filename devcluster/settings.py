"""The settings of a cluster, kept in a file for later commands such as the restart of a node."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from devcluster import binaries, names
from devcluster.errors import DevclusterError
from devcluster.names import Layout


@dataclass(frozen=True, slots=True)
class Settings:
    """`nodes` may be 0 (a control plane only). `gpus` are those of each node. The flags are added to the programs'.

    `kubernetes` is a release, such as 1.36. `network_policies`: these are enforced, not only stored.
    """

    nodes: int = 2
    gpus: int = 4
    port: int = 0
    torch_tree: str = ""
    kubernetes: str = binaries.DEFAULT_KUBERNETES
    network_policies: bool = False
    api_server_flags: tuple[str, ...] = ()
    controller_manager_flags: tuple[str, ...] = ()
    scheduler_flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.nodes <= names.MAX_NODES:
            raise DevclusterError(f"nodes={self.nodes} is out of range: write 0 (no nodes) to {names.MAX_NODES}")
        if not 0 <= self.gpus <= 64:
            raise DevclusterError(f"gpus={self.gpus} is out of range: write 0 to 64, the GPUs of each node")

    def node_names(self) -> list[str]:
        """The nodes' names: n1, n2, ..."""
        return [names.node_name(number) for number in range(1, self.nodes + 1)]


def save(layout: Layout, settings: Settings) -> None:
    """Write the settings to the cluster's folder."""
    layout.folder.mkdir(parents=True, exist_ok=True)
    layout.state_file.write_text(json.dumps(dataclasses.asdict(settings), indent=1))


def load(layout: Layout) -> Settings:
    """The settings of the cluster. Raises DevclusterError if there is no such cluster."""
    try:
        values: dict[str, Any] = json.loads(layout.state_file.read_text())
    except FileNotFoundError:
        raise DevclusterError(
            f"there is no cluster {layout.name!r}; start it with `python -m devcluster up --name {layout.name}`"
        ) from None
    found: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return Settings(**found)
