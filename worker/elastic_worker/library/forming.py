"""Forms a process group from torch's parts, beside the one in use, without registering it."""

from __future__ import annotations

import ipaddress
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist

from elastic_worker.library import sockets
from elastic_worker.library.collectives import Calls
from elastic_worker.library.gathering import Gathering

GLOO, NCCL = "gloo", "nccl"
COLLECTIVE_SECONDS = 1800.0
"""How long a collective may take: torch's default for gloo."""
_device_lock = threading.Lock()


class GroupError(Exception):
    """A group could not be formed: a rank did not come in time, or the store has ended."""


@dataclass(frozen=True, eq=False)
class Formed:
    """A process group, connected as a full mesh. `mesh` is None if its connections are not known.

    `addresses` is the store that gloo holds. `calls` are the library's collectives in the group. `announced` are the
    abilities that this process has announced to the other ranks (releases.py).
    """

    backend: str
    rank: int
    world: int
    name: str
    group: Any
    store: Any
    mesh: sockets.Mesh | None = None
    addresses: Gathering | None = None
    calls: Calls = field(default_factory=Calls)
    announced: set[str] = field(default_factory=set)


def form(
    *,
    backend: str,
    host: str,
    port: int,
    prefix: str,
    rank: int,
    world: int,
    timeout: float,
    device: torch.device | str = "cpu",
    collective_timeout: float = COLLECTIVE_SECONDS,
) -> Formed:
    """Meet the other ranks in the store at `host`:`port` and connect to all of them, without registering the group.

    Blocks for little more than `timeout` seconds; the collectives' own limit is `collective_timeout` seconds.
    `prefix` must be new for every attempt. With NCCL the group has gloo for host tensors, too. Raises GroupError.
    """
    if backend not in (GLOO, NCCL):
        raise ValueError(f"backend={backend!r}: must be 'gloo' or 'nccl'")
    with _as_group_error(f"rank {rank} of {world} could not form the group {prefix}"):
        began = time.monotonic()
        store = _meet(host, port, prefix, timeout)
        listener = Listener(host, port)
        mesh = _publish(store, rank, world, listener.address)
        limit = timedelta(seconds=collective_timeout)
        # A thread left behind must not return while the process exits: the process would end by SIGABRT.
        store.set_timeout(limit)
        members = Members(store, prefix, rank, world, limit)

        def build() -> Any:
            group = empty_group(store, backend, rank, world, limit)
            add_gloo(group, members, listener.device, kinds=["cpu"] if backend == NCCL else ["cpu", "cuda"])
            if backend == NCCL:
                _add_nccl(group, members, torch.device(device))
            return group

        group = _within(began + timeout - time.monotonic(), build, otherwise=lambda: close(mesh))
        group._set_group_name(prefix)
        group._set_group_desc("default_pg")
    return Formed(backend, rank, world, prefix, group, store, mesh, members.addresses)


def _meet(host: str, port: int, prefix: str, timeout: float) -> Any:
    """Open the store at that address, under a prefix."""
    limit = timedelta(seconds=timeout)
    store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
    return dist.PrefixStore(prefix, store)


def close(mesh: sockets.Mesh | None) -> None:
    """Shut the group's connections down: waiting threads get an error."""
    if mesh is not None:
        sockets.shut_down(mesh)


def _within(seconds: float, build: Callable[[], Any], *, otherwise: Callable[[], None]) -> Any:
    """Run `build` on a thread, which is left behind if it does not return in time.

    gloo's constructor has one limit for connecting and for all later collectives; until 2.5 it cannot be changed.
    """
    made: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            result = build()
        except Exception as error:  # noqa: BLE001  # raised where it is waited for
            result = error
        made.put(result)

    threading.Thread(target=run, name="elastic-form", daemon=True).start()
    try:
        result = made.get(timeout=max(seconds, 0.0))
    except queue.Empty:
        otherwise()
        raise GroupError(f"a peer did not connect within {seconds:.1f} s") from None
    if isinstance(result, Exception):
        raise result
    return result


def empty_group(store: Any, backend: str, rank: int, world: int, timeout: timedelta) -> Any:
    """A group without connections. Until 2.5 the backend's name is an option of the constructor, later it is set."""
    kind = dist.ProcessGroup.BackendType
    if hasattr(dist.ProcessGroup, "_set_default_backend"):
        group = dist.ProcessGroup(store, rank, world)
        group._set_default_backend(kind.NCCL if backend == NCCL else kind.GLOO)
        return group
    options = dist.ProcessGroup.Options(backend=backend)
    options._timeout = timeout
    return dist.ProcessGroup(store, rank, world, options)


class Listener:
    """A gloo device on the interface that leads to the store, and the `address` where it listens, None if unknown.

    GLOO_SOCKET_IFNAME has precedence, if set. A route over the loopback gives no address for other machines: there gloo
    chooses one by the machine's name.
    """

    def __init__(self, host: str, port: int) -> None:
        with _device_lock:
            old = sockets.listeners()
            self.device = self._make(host, port)
            new = sockets.listeners() - old
        self.address = new.pop() if len(new) == 1 else None

    @staticmethod
    def _make(host: str, port: int) -> Any:
        gloo = dist.ProcessGroupGloo
        interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
        if interface:
            return gloo.create_device(interface=interface)
        address = sockets.route_to(host, port)
        if address is None or ipaddress.ip_address(address).is_loopback:
            return gloo.create_default_device()
        return gloo.create_device(hostname=address)


def _publish(store: Any, rank: int, world: int, own: sockets.Address | None) -> sockets.Mesh | None:
    """Publish the address where this rank's gloo listens, and wait for those of the others."""
    gathering = Gathering(store, world)
    gathering.set(f"listener/{rank}", json.dumps(own))
    others = [json.loads(gathering.get(f"listener/{other}")) for other in range(world) if other != rank]
    if own is None or None in others:
        return None
    return sockets.Mesh(own, frozenset((host, port) for host, port in others))


class Members:
    """Arguments of a backend's constructor; gloo exchanges its addresses through the store `addresses`."""

    def __init__(self, store: Any, name: str, rank: int, world: int, timeout: timedelta) -> None:
        self.store, self.name, self.rank, self.world, self.timeout = store, name, rank, world, timeout
        self.addresses = Gathering(dist.PrefixStore("cpu/", store), world)


def add_gloo(group: Any, members: Members, device: Any, *, kinds: list[str]) -> None:
    """Add gloo, connected to all ranks, for tensors on devices of these kinds."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [device]
    options._timeout = members.timeout
    options._threads = 2
    gloo = dist.ProcessGroupGloo(members.addresses, members.rank, members.world, options)
    _start_sequence(gloo)
    for kind in kinds:
        group._register_backend(torch.device(kind), dist.ProcessGroup.BackendType.GLOO, gloo)


def _start_sequence(backend: Any) -> None:
    """Start the sequence numbers if torch does not do so itself: in versions without `_set_default_backend`."""
    if not hasattr(dist.ProcessGroup, "_set_default_backend"):
        backend._set_sequence_number_for_group()


def _add_nccl(group: Any, members: Members, device: torch.device) -> None:
    """Add NCCL and connect at once: else the first collective would, on the training thread."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = members.timeout
    options.global_ranks_in_group = []
    options.group_name = members.name
    store = dist.PrefixStore("cuda/", members.store)
    if (newer := nccl2()) is not None:
        nccl = newer(store, members.rank, members.world, options, device)
    else:
        nccl = dist.ProcessGroupNCCL(store, members.rank, members.world, options)
    _start_sequence(nccl)
    group._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.NCCL, nccl)
    nccl.eager_connect_single_device(device)


def nccl2() -> Any:
    """torch's second backend for NCCL, which the name "nccl" means in 2.15; None if torch has a single one.

    This was read in torch's sources, and not tried on a GPU. It takes the old backend's options, and the device.
    Neither backend's `abort` ends the process.
    """
    newer = getattr(dist, "ProcessGroupNCCL2", None)
    return None if os.environ.get("TORCH_DIST_USE_NCCL2") == "0" else newer


@contextmanager
def _as_group_error(what: str) -> Iterator[None]:
    """Convert any error to a GroupError that names the operation `what`."""
    try:
        yield
    except (RuntimeError, GroupError) as error:
        raise GroupError(f"{what}: {error}") from error
