"""Breaks parts of a running cluster on purpose, and repairs them: whole nodes, and single programs."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from devcluster import clocks, control_plane, fakenodes, kubeletdisks, network, node, processes
from devcluster.binaries import Programs
from devcluster.errors import DevclusterError
from devcluster.names import Layout
from devcluster.progress import Progress
from devcluster.settings import Settings


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """The faults of one node, whose name is n1, n2, ..."""

    layout: Layout
    settings: Settings
    programs: Programs
    name: str

    def kill(self) -> None:
        """Switch the node off at once, with all its pods, without notice to the API server."""
        node.kill(self.layout, self.name)

    def restart(self) -> None:
        """Switch the node off and on; images and ended containers stay. Returns before the node is Ready."""
        node.restart(self.layout, self.settings, self.programs, self.name)

    def freeze(self) -> None:
        """Stop every process of the node, in containers too (SIGSTOP)."""
        processes.send(node.pids(self.layout, self.name), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the node's processes continue."""
        processes.send(node.pids(self.layout, self.name), signal.SIGCONT)

    def cut_off(self) -> None:
        """Disconnect the node from the network: no packet passes, and connections stay open on both sides."""
        network.cut(self.layout, self.name)

    def heal(self) -> None:
        """Reconnect the node to the network."""
        network.heal(self.layout, self.name)

    def part_from(self, other: str) -> None:
        """Drop all packets between this node with its pods and another one; both still reach the API server."""
        network.part(self.layout, self.name, self._another(other))

    def join(self, other: str) -> None:
        """Let packets pass again between this node and another one."""
        network.join(self.layout, self.name, self._another(other))

    def silence_dns(self) -> None:
        """Drop DNS queries of the node's pods: each waits for its timeout."""
        network.silence_dns(self.layout, self.name)

    def refuse_dns(self) -> None:
        """Refuse DNS queries at once again."""
        network.refuse_dns(self.layout, self.name)

    def fill_disk(self) -> None:
        """Fill the disk of kubelet and of emptyDirs; kubelet notices it within 10 s, and evicts all pods."""
        kubeletdisks.fill(self.layout, self.name)

    def free_disk(self) -> None:
        """Free the disk; kubelet accepts pods again some 15 s later."""
        kubeletdisks.free(self.layout, self.name)

    def take_image(self, ref: str) -> None:
        """Remove an image, REGISTRY/REPOSITORY:TAG, which cannot be pulled from anywhere. Its containers continue."""
        node.remove_image(self.layout, self.name, ref)

    def give_image(self, archive: Path) -> None:
        """Put the images of an archive on the node."""
        node.load_image(self.layout, self.name, archive)

    def set_clock(self, seconds: int) -> None:
        """Set the node's clock ahead of this machine's by `seconds` (behind, if negative), for all its processes.

        A program that is started later has the right time until it is set again.
        """
        clocks.shift(node.pids(self.layout, self.name), seconds)

    def set_sick(self, gpus: Iterable[int]) -> None:
        """Make exactly these GPUs (0, 1, ...) unhealthy, the others healthy; the node's status follows in seconds."""
        wanted = sorted(set(gpus))
        wrong = [gpu for gpu in wanted if not 0 <= gpu < self.settings.gpus]
        if wrong:
            raise DevclusterError(f"gpu={wrong[0]}: node {self.name} has GPUs 0 to {self.settings.gpus - 1}")
        node.sick_file(self.layout, self.name).write_text("".join(f"{gpu}\n" for gpu in wanted))

    def _another(self, other: str) -> str:
        if other == self.name or other not in self.settings.node_names():
            raise DevclusterError(f"other={other!r}: write another node than {self.name}, of this cluster")
        return other


@dataclass(frozen=True, slots=True)
class PartFaults:
    """The faults of one program, of the control plane or of a node."""

    layout: Layout
    settings: Settings
    programs: Programs
    part: str

    @classmethod
    def named(cls, layout: Layout, settings: Settings, programs: Programs, name: str) -> PartFaults:
        """The faults of etcd, apiserver, controller-manager, scheduler, kwok, NODE/PROGRAM. Raises DevclusterError."""
        short = {part.split("/")[1]: part for part in (*control_plane.PARTS, fakenodes.PART)}
        of_nodes = [f"{n}/{program}" for n in settings.node_names() for program in node.programs_of(settings)]
        if name not in short and name not in of_nodes:
            known = ", ".join([*short, *of_nodes])
            raise DevclusterError(f"part={name!r}: there is no such part; write one of {known}")
        return cls(layout, settings, programs, short.get(name, name))

    def kill(self) -> None:
        """Send SIGKILL, and wait for the program's end. Containers outlive their kubelet and containerd."""
        processes.kill_all(self._pids)

    def freeze(self) -> None:
        """Stop the program (SIGSTOP): its connections stay open, and nothing answers."""
        processes.send(self._pids(), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the program continue."""
        processes.send(self._pids(), signal.SIGCONT)

    def restart(self) -> None:
        """Kill the program if it runs, and start it. Returns when the process exists, before it is ready."""
        self.kill()
        if self.part in control_plane.PARTS:
            control_plane.start(self.layout, self.settings, self.programs, part=self.part)
        elif self.part == fakenodes.PART:
            fakenodes.start(self.layout, Progress(quiet=True))
        else:
            node.start_part(self.layout, self.settings, self.programs, self.part)

    def runs(self) -> bool:
        """Whether the program runs."""
        return bool(self._pids())

    def _pids(self) -> list[int]:
        """The pid of the program alone: containerd's shims carry its mark, and must survive."""
        return [process.pid for process in processes.find(self.layout, self.part) if process.leads]
