"""Breaks parts of a running cluster on purpose, and mends them: whole nodes, single programs, cables, GPUs."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass

from devcluster import control_plane, fakenodes, network, node, processes
from devcluster.binaries import Programs
from devcluster.errors import DevclusterError
from devcluster.names import Layout
from devcluster.progress import Progress
from devcluster.settings import Settings


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """What can happen to a node. Its name is n1, n2, ..."""

    layout: Layout
    settings: Settings
    programs: Programs
    name: str

    def kill(self) -> None:
        """Off, at once, with all its pods; the API server is not told. Cluster.wait_ready waits after a restart."""
        node.kill(self.layout, self.name)

    def restart(self) -> None:
        """Off and on again; images and finished containers are still there. Returns before the node is Ready."""
        node.restart(self.layout, self.settings, self.programs, self.name)

    def freeze(self) -> None:
        """Stop every process of the node, in containers too, where it is."""
        processes.send(node.pids(self.layout, self.name), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        processes.send(node.pids(self.layout, self.name), signal.SIGCONT)

    def cut_off(self) -> None:
        """Pull its network cable: no packet passes, connections stay open on both sides."""
        network.cut(self.layout, self.name)

    def heal(self) -> None:
        """Put its network cable back."""
        network.heal(self.layout, self.name)

    def set_sick(self, gpus: Iterable[int]) -> None:
        """Make exactly these GPUs (0, 1, ...) unhealthy, the others healthy; the node's status follows in seconds."""
        wanted = sorted(set(gpus))
        wrong = [gpu for gpu in wanted if not 0 <= gpu < self.settings.gpus]
        if wrong:
            raise DevclusterError(f"gpu={wrong[0]}: node {self.name} has GPUs 0 to {self.settings.gpus - 1}")
        node.sick_file(self.layout, self.name).write_text("".join(f"{gpu}\n" for gpu in wanted))


@dataclass(frozen=True, slots=True)
class PartFaults:
    """What can happen to one program, of the control plane or of a node."""

    layout: Layout
    settings: Settings
    programs: Programs
    part: str

    @classmethod
    def named(cls, layout: Layout, settings: Settings, programs: Programs, name: str) -> PartFaults:
        """etcd, apiserver, controller-manager, scheduler, kwok, or NODE/PROGRAM. DevclusterError for other names."""
        short = {part.split("/")[1]: part for part in (*control_plane.PARTS, fakenodes.PART)}
        of_nodes = [f"{n}/{program}" for n in settings.node_names() for program in node.programs_of(settings)]
        if name not in short and name not in of_nodes:
            known = ", ".join([*short, *of_nodes])
            raise DevclusterError(f"part={name!r}: there is no such part; write one of {known}")
        return cls(layout, settings, programs, short.get(name, name))

    def kill(self) -> None:
        """End it at once (SIGKILL). Containers outlive their kubelet and containerd."""
        processes.send(self._pids(), signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it where it is: its connections stay open and nothing answers."""
        processes.send(self._pids(), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        processes.send(self._pids(), signal.SIGCONT)

    def restart(self) -> None:
        """Kill it if it runs, and start it. Returns when the process is there, before it is ready."""
        processes.kill_all(self._pids)
        if self.part in control_plane.PARTS:
            control_plane.start(self.layout, self.settings, self.programs, part=self.part)
        elif self.part == fakenodes.PART:
            fakenodes.start(self.layout, Progress(quiet=True))
        else:
            node.start_part(self.layout, self.settings, self.programs, self.part)

    def _pids(self) -> list[int]:
        """Only the program itself: containerd's shims carry its mark and must live on."""
        return [process.pid for process in processes.find(self.layout, self.part) if process.leads]
