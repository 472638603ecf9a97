"""Process groups beside each other: formed, made torch's default group, aborted, discarded.

torch knows one default group per process and makes it in one blocking call. A job that changes size needs the next
group while the present one trains. So a group is built from torch's parts without being registered, and is registered
later. Private calls into `torch.distributed` are in this module and in forming.py. private.py lists the private names,
and trial.py checks that they work in this version of torch as in those that were tried (2.4.1 and 2.15).
"""

from __future__ import annotations

import atexit
import logging
import re
import threading
from contextlib import suppress
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed import distributed_c10d as c10d

from elastic_worker.library.collectives import GivenUpError, keep_for_ever
from elastic_worker.library.forming import (
    NCCL,
    Formed,
    GroupError,
    close,
    form,
)
from elastic_worker.processes import quiesce

__all__ = ["Formed", "GroupError", "abort", "current", "discard", "form", "install"]

log = logging.getLogger(__name__)

COMMUNICATION = re.compile(
    r"gloo/[\w/]+\.(cc|h):\d+|Application timeout caused pair closure|[Gg]loo connectFullMesh"
    r"|NCCL (error|comm|operation|Async Error)|NCCL( \w+)+ (failed|timed out)|NCCL Last Error"
)
"""Marks of communication errors in torch's bare RuntimeErrors. The last ones are of 2.15's second NCCL backend."""
IDLE_SECONDS = 0.5
"""Time after which gloo's threads are idle once the connections were shut down."""
BURIAL_SECONDS = 5.0
"""Time for a destructor that runs at the end of the process."""
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
"""Attributes in which torch keeps its registered groups."""

quiesce.install()  # needed in processes that torchrun or srun has started

_installed: Formed | None = None


def current() -> Formed | None:
    """The group that was installed last, unless it was discarded."""
    return _installed


def control_device(formed: Formed) -> torch.device:
    """Device for small tensors of the library in this group: the host, if the group can send from there."""
    try:
        formed.group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def default_store() -> Any:
    """The store of torch's default group, made by `init_process_group`."""
    return c10d._get_default_store()


def collectives_begun() -> int | None:
    """Number of collectives begun in all of torch's groups; None if one of them does not count."""
    try:
        return sum(int(group._get_sequence_number_for_group()) for group in c10d._world.pg_map)
    except (RuntimeError, AttributeError):
        return None


# -- being torch's default group ---------------------------------------------------------------------------------------


def install(formed: Formed) -> None:
    """Make the group torch's default. The previous group and its subgroups are unregistered and stay connected."""
    global _installed
    register(formed)
    _installed = formed


@atexit.register
def _leave_as_it_is() -> None:
    """Keep the groups of a process that exits: their destructors would wait for gloo threads that may never end.

    The interpreter would end our thread inside a group's destructor, and thereby the process, by SIGABRT.
    """
    if _installed is not None:
        keep_for_ever(_installed.group)
    burials = [thread for thread in threading.enumerate() if isinstance(thread, _Burial)]
    for burial in burials:
        burial.call_off()
    for burial in burials:
        burial.join(BURIAL_SECONDS)


def register(formed: Formed) -> None:
    """Make the group torch's default and unregister all others. Use `install` for a group that stays."""
    unregister_all()
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


def unregister_all() -> None:
    """Unregister all groups as `destroy_process_group` does, without shutting anything down."""
    world = c10d._world
    c10d._update_default_pg(None)
    for name in REGISTERS:
        getattr(world, name, {}).clear()
    c10d._unregister_all_process_groups()


# -- the end of a group ------------------------------------------------------------------------------------------------


def abort(formed: Formed) -> None:
    """Raise in the threads that wait in a collective of the group, and in peers that wait for this rank.

    gloo's `abort` in 2.15 frees no waiting thread, and 2.4 has none, so gloo's sockets are shut down. Do not use the
    group afterwards: a later collective may wait for ever.
    """
    close(formed.mesh)
    formed.calls.give_up()
    if formed.backend == NCCL:
        backend = formed.group._get_backend(torch.device("cuda"))
        end = getattr(backend, "abort", None) or getattr(backend, "_abort", None)
        if end is not None:
            with suppress(RuntimeError):
                end()


def discard(formed: Formed) -> None:
    """Close the group without waiting. Peers that still wait for this rank in it get an exception.

    Sent data may not have been read yet, so call this after the first collective of the next group: each rank enters
    that only after it has left the last collective of this group.
    """
    global _installed
    abort(formed)
    if formed is _installed:
        unregister_all()
        _installed = None
    _Burial(formed).start()


class _Burial(threading.Thread):
    """Frees a group once gloo's threads are idle.

    A gloo thread may be about to free a tensor of the last collective, for which it needs the interpreter's lock; the
    group's destructor holds that lock and waits for the thread, for good.
    """

    def __init__(self, formed: Formed) -> None:
        super().__init__(name="elastic-discard", daemon=True)
        self._formed: Formed | None = formed
        self._called_off = threading.Event()

    def run(self) -> None:
        self._called_off.wait(IDLE_SECONDS)
        if self._formed is not None and self._formed.calls.unfinished:
            keep_for_ever(self._formed.group)
        self._formed = None  # here its destructor runs

    def call_off(self) -> None:
        """Keep the group for ever, unless its destructor runs already."""
        formed = self._formed
        if formed is not None:
            keep_for_ever(formed.group)
        self._called_off.set()


# -- errors ------------------------------------------------------------------------------------------------------------


def is_communication_error(error: BaseException) -> bool:
    """Whether a collective or the store failed, as opposed to the script's own code.

    gloo's errors are bare RuntimeErrors. Each message begins with a place in gloo's sources, which identifies them.
    """
    if isinstance(error, (GroupError, GivenUpError, dist.DistError)):
        return True
    return isinstance(error, RuntimeError) and COMMUNICATION.search(str(error)) is not None
