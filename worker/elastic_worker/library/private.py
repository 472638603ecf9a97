"""Every private name of torch that the worker uses, by the module that uses it.

A test looks for each name in every version of torch that is tried, and makes sure that no other one is used. Before
groups change in place `lacking` looks at the installed torch (see `trial.py`).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

_C10D, _DDP = "torch.distributed.distributed_c10d", "torch.nn.parallel.distributed"
PrivateName = str
"""`MODULE:NAME.NAME`; the last name may be an attribute of the class's objects, if the class declares it."""
GROUPS: tuple[tuple[PrivateName, ...], ...] = (
    # groups.py: being torch's default group
    (f"{_C10D}:_world",),
    (f"{_C10D}:_World.pg_map",),
    (f"{_C10D}:_World.pg_names",),
    (f"{_C10D}:_World.pg_group_ranks",),
    (f"{_C10D}:_World.pg_backend_config",),
    (f"{_C10D}:_World.pg_to_tag",),
    (f"{_C10D}:_World.tags_to_pg",),
    (f"{_C10D}:_World.group_count",),
    (f"{_C10D}:_backend",),
    (f"{_C10D}:_get_default_store",),
    (f"{_C10D}:_update_default_pg",),
    (f"{_C10D}:_register_process_group",),
    (f"{_C10D}:_unregister_all_process_groups",),
    (f"{_C10D}:ProcessGroup._get_backend",),
    (f"{_C10D}:ProcessGroup._get_sequence_number_for_group",),
    # forming.py: making one
    (f"{_C10D}:ProcessGroup._set_default_backend", f"{_C10D}:ProcessGroup.Options._timeout"),
    (f"{_C10D}:ProcessGroup._register_backend",),
    (f"{_C10D}:ProcessGroup._set_group_name",),
    (f"{_C10D}:ProcessGroup._set_group_desc",),
    ("torch._C._distributed_c10d:Backend._set_sequence_number_for_group",),
    (f"{_C10D}:ProcessGroupGloo._Options._devices",),
    (f"{_C10D}:ProcessGroupGloo._Options._threads",),
    (f"{_C10D}:ProcessGroupGloo._Options._timeout",),
    # ddp.py
    (f"{_DDP}:DistributedDataParallel._register_builtin_comm_hook",),
    (f"{_DDP}:DistributedDataParallel._set_params_and_buffers_to_ignore_for_model",),
    (f"{_DDP}:_verify_param_shape_across_processes",),
    (f"{_DDP}:_sync_module_states",),
    (f"{_DDP}:DistributedDataParallel._sync_buffers",),
    ("torch.distributed:Reducer._remove_autograd_hooks",),
    # rollback.py
    ("torch.nn:Module._buffers",),
    ("torch:Tensor._version",),
    ("torch:_foreach_copy_",),
)
"""Names that groups which change in place need; at least one name of each line must exist."""
OTHERS: tuple[tuple[PrivateName, ...], ...] = (
    ("torch.cuda:_is_in_bad_fork",),  # processes/fitness.py
    # processes/standin_client.py
    ("torch.distributed.elastic.rendezvous.api:RendezvousHandlerRegistry._registry",),
    ("torch.distributed.tensor:DTensor", "torch.distributed._tensor:DTensor"),  # ddp.py, checkpoint_state.py
)
OF_NCCL: tuple[tuple[PrivateName, ...], ...] = (
    (f"{_C10D}:ProcessGroupNCCL.Options._timeout",),
    (f"{_C10D}:ProcessGroupNCCL.eager_connect_single_device",),
)
"""Names needed if torch has NCCL (`forming.py`)."""
MAY_LACK = ("_abort", "_ddp_params_and_buffers_to_ignore")
"""Names that may be absent: a backend's in some versions, and the marks that DDP leaves in a module for a script."""


def lacking(what: tuple[tuple[PrivateName, ...], ...] = GROUPS) -> str:
    """Describe the names that this torch lacks; "" if it has all."""
    missing = [" or ".join(alternatives) for alternatives in what if not any(map(_is_there, alternatives))]
    return f"this torch has no {', '.join(missing)}" if missing else ""


def names() -> Iterator[str]:
    """The names of all lines, one by one."""
    for alternatives in (*GROUPS, *OTHERS, *OF_NCCL):
        for name in alternatives:
            module, _, path = name.partition(":")
            yield from (*module.split("."), *path.split("."))
    yield from MAY_LACK


def _is_there(name: PrivateName) -> bool:
    module, _, path = name.partition(":")
    try:
        found = importlib.import_module(module)
        *owners, last = path.split(".")
        for owner in owners:
            found = getattr(found, owner)
    except (ImportError, AttributeError):
        return False
    return hasattr(found, last) or last in getattr(found, "__annotations__", ())
