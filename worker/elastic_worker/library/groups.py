"""Process groups that come and go beside each other: formed, made torch's default group, aborted, discarded.

torch knows one default group per process and makes it in one blocking call. A job that changes size needs the next
group while the present one trains. So a group is built from torch's own parts without being registered, and
registered later. All private calls into `torch.distributed` are in this module; `self_test` tells whether they do
with this version of torch what they did with those that were tried (2.4.1 and 2.15), and `reinit` is the public way.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import distributed as dist
from torch.distributed import distributed_c10d as c10d

from elastic_worker.library import sockets

log = logging.getLogger(__name__)

GLOO, NCCL = "gloo", "nccl"
COLLECTIVE_SECONDS = 1800.0
"""How long a collective may take: torch's own default for gloo."""
COMMUNICATION = re.compile(
    r"gloo/[\w/]+\.(cc|h):\d+|Application timeout caused pair closure|[Gg]loo connectFullMesh|NCCL (error|comm)"
)
"""In the messages that torch raises as bare RuntimeErrors."""
IDLE_SECONDS = 0.5
"""After this gloo's threads are done with what they were doing when the connections were shut down."""
SELF_TEST = "elastic-self-test"
REGISTERS = (
    "pg_map",
    "pg_names",
    "pg_group_ranks",
    "pg_backend_config",
    "pg_to_tag",
    "tags_to_pg",
    "pg_coalesce_state",
    "pg_default_device",
    "pg_flight_recorder_hooks",
)
"""Where torch keeps what it knows of its groups."""

_device_lock = threading.Lock()
_installed: Formed | None = None


class GroupError(Exception):
    """A group could not be formed: somebody did not come in time, or the store is gone."""


@dataclass(frozen=True, eq=False)
class Formed:
    """A process group, full mesh connected. `mesh` is None where its connections are not known."""

    backend: str
    rank: int
    world: int
    name: str
    group: Any
    store: Any
    mesh: sockets.Mesh | None = None


def current() -> Formed | None:
    """The group that was installed last, unless it was discarded."""
    return _installed


def control_device(formed: Formed) -> torch.device:
    """Where small tensors of the library's own must lie to be sent in this group: the host, if it can."""
    try:
        formed.group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


# -- forming -----------------------------------------------------------------------------------------------------------


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
    """Meet the other ranks in the store at `host`:`port`, connect to all of them; registers nothing.

    Blocks for `timeout` seconds at most, and a little; the collectives' own limit is `collective_timeout` seconds.
    `prefix` must be new for every attempt. With NCCL the group has gloo for host tensors, too. Raises GroupError.
    """
    if backend not in (GLOO, NCCL):
        raise ValueError(f"backend={backend!r}: must be 'gloo' or 'nccl'")
    with _as_group_error(f"rank {rank} of {world} could not form the group {prefix}"):
        began = time.monotonic()
        store = _meet(host, port, prefix, timeout)
        listener = _Listener(host, port)
        mesh = _publish(store, rank, world, listener.address)
        limit = timedelta(seconds=collective_timeout)

        def build() -> Any:
            group = _empty_group(store, backend, rank, world, limit)
            members = _Members(store, prefix, rank, world, limit)
            _add_gloo(group, members, listener.device, kinds=["cpu"] if backend == NCCL else ["cpu", "cuda"])
            if backend == NCCL:
                _add_nccl(group, members, torch.device(device))
            return group

        group = _within(began + timeout - time.monotonic(), build, otherwise=lambda: _close(mesh))
        group._set_group_name(prefix)
        group._set_group_desc("default_pg")
        store.set_timeout(limit)
    return Formed(backend, rank, world, prefix, group, store, mesh)


def _meet(host: str, port: int, prefix: str, timeout: float) -> Any:
    limit = timedelta(seconds=timeout)
    store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)
    return dist.PrefixStore(prefix, store)


def _within(seconds: float, build: Callable[[], Any], *, otherwise: Callable[[], None]) -> Any:
    """What `build` makes, on a thread that is left behind when it does not come back in time.

    gloo's constructor has one limit for connecting and for all collectives to come, until 2.5 even for good.
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


def _empty_group(store: Any, backend: str, rank: int, world: int, timeout: timedelta) -> Any:
    """Until 2.5 the backend's name is an option of the constructor, later it is set."""
    kind = dist.ProcessGroup.BackendType
    if hasattr(dist.ProcessGroup, "_set_default_backend"):
        group = dist.ProcessGroup(store, rank, world)
        group._set_default_backend(kind.NCCL if backend == NCCL else kind.GLOO)
        return group
    options = dist.ProcessGroup.Options(backend=backend)
    options._timeout = timeout
    return dist.ProcessGroup(store, rank, world, options)


class _Listener:
    """A gloo device on the interface that leads to the store, and the `address` where it listens, None if unknown.

    GLOO_SOCKET_IFNAME decides where it is set. A route over the loopback says nothing about other machines: there gloo
    chooses, by the machine's name.
    """

    def __init__(self, host: str, port: int) -> None:
        with _device_lock:
            before = sockets.listeners()
            self.device = self._make(host, port)
            new = sockets.listeners() - before
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
    """Tell the others where this rank's gloo listens, and wait for what they tell."""
    store.set(f"listener/{rank}", json.dumps(own))
    others = [json.loads(store.get(f"listener/{other}")) for other in range(world) if other != rank]
    if own is None or None in others:
        return None
    return sockets.Mesh(own, frozenset((host, port) for host, port in others))


class _Members(NamedTuple):
    """What a backend's constructor wants to know."""

    store: Any
    name: str
    rank: int
    world: int
    timeout: timedelta


def _add_gloo(group: Any, members: _Members, device: Any, *, kinds: list[str]) -> None:
    """Connect to everybody; for tensors on devices of these kinds."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [device]
    options._timeout = members.timeout
    options._threads = 2
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("cpu/", members.store), members.rank, members.world, options)
    _start_sequence(gloo)
    for kind in kinds:
        group._register_backend(torch.device(kind), dist.ProcessGroup.BackendType.GLOO, gloo)


def _start_sequence(backend: Any) -> None:
    """Until torch starts the numbers by itself: there the groups are told by `_set_default_backend`'s absence."""
    if not hasattr(dist.ProcessGroup, "_set_default_backend"):
        backend._set_sequence_number_for_group()


def _add_nccl(group: Any, members: _Members, device: torch.device) -> None:
    """Connect at once: else the first collective would, on the thread that trains."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = members.timeout
    options.global_ranks_in_group = []
    options.group_name = members.name
    nccl = dist.ProcessGroupNCCL(dist.PrefixStore("cuda/", members.store), members.rank, members.world, options)
    _start_sequence(nccl)
    group._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.NCCL, nccl)
    nccl.eager_connect_single_device(device)


@contextmanager
def _as_group_error(what: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise GroupError(f"{what}: {error}") from error


# -- being torch's default group ---------------------------------------------------------------------------------------


def install(formed: Formed) -> None:
    """Make it torch's default group. The one before, and its subgroups, are unregistered and stay connected."""
    global _installed
    _register(formed)
    _installed = formed


def _register(formed: Formed) -> None:
    _unregister_all()
    world, group = c10d._world, formed.group
    names = "cpu:gloo,cuda:nccl" if formed.backend == NCCL else formed.backend
    world.pg_map[group] = (c10d.Backend(names), formed.store)
    world.pg_names[group] = formed.name
    world.pg_backend_config[group] = str(c10d.BackendConfig(c10d.Backend(names)))
    world.pg_group_ranks[group] = {rank: rank for rank in range(formed.world)}
    tag = f"ptd:{formed.name}"
    world.tags_to_pg[""] = [group]
    world.tags_to_pg[tag] = [group]
    world.pg_to_tag[group] = tag
    world.group_count = 1
    c10d._register_process_group(formed.name, group)
    c10d._update_default_pg(group)
    c10d._backend = names


def _unregister_all() -> None:
    """What `destroy_process_group` does, without shutting anything down."""
    world = c10d._world
    c10d._update_default_pg(None)
    for name in REGISTERS:
        getattr(world, name, {}).clear()
    c10d._unregister_all_process_groups()


# -- the end of a group ------------------------------------------------------------------------------------------------


def abort(formed: Formed) -> None:
    """Whoever waits in a collective of it, on any thread, gets an exception; so do peers that wait for us."""
    _close(formed.mesh)
    for backend in _backends(formed.group):
        end = getattr(backend, "abort", None) or getattr(backend, "_abort", None)
        if end is not None:
            with suppress(RuntimeError):
                end()


def discard(formed: Formed) -> None:
    """Close it without waiting for anybody. Peers that still wait for this rank in it get an exception.

    What has been sent may not have been read yet: call it after the first collective of the next group, which no rank
    enters before it has left the last one of this group.
    """
    global _installed
    abort(formed)
    if formed is _installed:
        _unregister_all()
        _installed = None
    _bury(formed)


def _bury(formed: Formed) -> None:
    """Let go of it when gloo's threads are idle.

    A gloo thread may be about to free a tensor of the last collective, for which it needs the interpreter's lock; the
    group's destructor holds that lock and waits for the thread, for good.
    """
    keeper = threading.Timer(IDLE_SECONDS, id, [formed])
    keeper.name, keeper.daemon = "elastic-discard", True
    keeper.start()


def _close(mesh: sockets.Mesh | None) -> None:
    if mesh is not None:
        sockets.shut_down(mesh)


def _backends(group: Any) -> list[Any]:
    found = []
    for kind in ("cpu", "cuda"):
        with suppress(RuntimeError):
            backend = group._get_backend(torch.device(kind))
            if backend not in found:
                found.append(backend)
    return found


# -- where the private way does not work -------------------------------------------------------------------------------


def self_test() -> str:
    """Why the private way does not work with this torch; empty if it does. Leaves nothing behind.

    Makes a group of one rank, and makes it the default for a moment unless there is one.
    """
    tensor = torch.ones(2)  # outlives the group: see `_bury`
    try:
        _try(tensor)
    except Exception as error:  # noqa: BLE001  # whatever a torch of another version raises is the answer
        return f"{type(error).__name__}: {error}"
    return ""


def _alone() -> Formed:
    limit = timedelta(seconds=5)
    store, name = dist.PrefixStore(SELF_TEST, dist.HashStore()), SELF_TEST
    listener = _Listener("127.0.0.1", 9)
    if listener.address is None:
        raise GroupError("gloo's listener was not found among this process's sockets")
    group = _empty_group(store, GLOO, 0, 1, limit)
    _add_gloo(group, _Members(store, name, 0, 1, limit), listener.device, kinds=["cpu"])
    group._set_group_name(name)
    return Formed(GLOO, 0, 1, name, group, store, sockets.Mesh(listener.address, frozenset()))


def _try(tensor: Any) -> None:
    formed = _alone()
    formed.group.allreduce([tensor]).wait()
    if dist.is_initialized():
        return
    _register(formed)
    try:
        dist.all_reduce(tensor)
        seen = (dist.get_rank(), dist.get_world_size(), dist.get_backend(), dist.get_process_group_ranks(formed.group))
    finally:
        _unregister_all()
    if seen != (0, 1, GLOO, [0]):
        raise GroupError(f"as torch's default group it has rank, world size, backend and ranks {seen}")


def reinit(
    *,
    backend: str,
    host: str,
    port: int,
    prefix: str,
    rank: int,
    world: int,
    timeout: float,
    collective_timeout: float = COLLECTIVE_SECONDS,
) -> Formed:
    """End the default group, then make the next one, both by torch's public calls; nothing trains meanwhile.

    `abort` reaches the sockets of such a group, too. Raises GroupError; then there is no default group.
    """
    global _installed
    previous, _installed = _installed, None
    if previous is not None:
        _close(previous.mesh)
        _bury(previous)
    if dist.is_initialized():
        dist.destroy_process_group()
    with _as_group_error(f"rank {rank} of {world} could not form the group {prefix}"):
        store = _meet(host, port, prefix, timeout)
        before = sockets.listeners()
        limit = timedelta(seconds=collective_timeout)
        _within(
            timeout,
            lambda: dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=limit),
            otherwise=lambda: None,
        )
        new = sockets.listeners() - before
        mesh = _publish(store, rank, world, new.pop() if len(new) == 1 else None)
        store.set_timeout(limit)
    _installed = Formed(backend, rank, world, prefix, dist.group.WORLD, store, mesh)
    return _installed


# -- errors ------------------------------------------------------------------------------------------------------------


def is_communication_error(error: BaseException) -> bool:
    """Whether a collective or the store failed, as opposed to the script's own code.

    gloo's errors are bare RuntimeErrors: they are known by the place in gloo's sources that each message begins with.
    """
    if isinstance(error, (GroupError, dist.DistError)):
        return True
    return isinstance(error, RuntimeError) and COMMUNICATION.search(str(error)) is not None
