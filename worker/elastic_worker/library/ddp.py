"""One DistributedDataParallel object for many groups.

torch's wrapper belongs to one process group for life. Here it is a plain wrapper until the first group, and `regroup`
runs torch's constructor again on the same object, so that a script's references, hooks and options stay. All private
calls into torch's DistributedDataParallel are in this module.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as torch_ddp

from elastic_worker.library.rollback import Rollback

if TYPE_CHECKING:
    from elastic_worker.library.groups import Formed

HAS_INIT_SYNC = "init_sync" in inspect.signature(DistributedDataParallel.__init__).parameters
CONSTRUCTION_COLLECTIVES = ("_verify_param_shape_across_processes", "_sync_module_states")
"""Collectives of the constructor that no argument switches off."""
REFUSED_OPTIONS = {
    "process_group": "leave it out, the job chooses the group",
    "device_mesh": "leave it out, the job chooses the group",
    "init_sync": "leave it out, the job sends the state to newcomers",
    "mixed_precision": "use torch.autocast",
    "delay_all_reduce_named_params": "leave it out, it is bound to one group",
    "param_to_hook_all_reduce": "leave it out, it is bound to one group",
    "static_graph": "leave it out, it holds for the number of micro-batches that a rank began with",
}
MODULE_STATE = tuple(vars(torch.nn.Module()))
"""Attributes that `torch.nn.Module`'s constructor would empty: hooks, the mode, submodules."""


class ElasticDDP(DistributedDataParallel):  # type: ignore[misc]
    """DistributedDataParallel for `module` with the same options except the group; it trains after `regroup`.

    Gradients are averaged over the ranks, as in torch.
    """

    def __init__(self, module: Any, **options: Any) -> None:
        for name in sorted(options.keys() & REFUSED_OPTIONS.keys()):
            raise TypeError(f"job.wrap(model, {name}=...): {REFUSED_OPTIONS[name]}")
        torch.nn.Module.__init__(self)
        self.module = module
        self._options, self._alone = options, False
        self.rollback = Rollback(module)
        self._comm_hook_calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def regroup(self, formed: Formed, *, can_be_given_up: bool = False) -> None:
        """Reduce in this group. Communicates nothing: all ranks must have the same state already.

        With `can_be_given_up` gradients are averaged by `formed.calls`, unless a hook was registered; call its `check`
        after each backward.
        """
        self._release()
        self.rollback.forget()
        sync = self.__dict__.get("require_backward_grad_sync", True)
        kept = {name: self.__dict__[name] for name in MODULE_STATE}
        with _without_collectives():
            DistributedDataParallel.__init__(self, self.module, process_group=formed.group, **self._init_options())
        self.__dict__.update(kept)
        self._alone, self.require_backward_grad_sync = False, sync
        for register, arguments in self._comm_hook_calls:
            register(self, *arguments)
        if can_be_given_up and not self._comm_hook_calls:

            def average(group, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # torch looks at annotations
                return formed.calls.reduce(group, bucket)

            DistributedDataParallel.register_comm_hook(self, formed.group, average)

    def use_alone(self) -> None:
        """Use the model without a group: nothing is reduced."""
        self._release()
        self.rollback.forget()
        self._alone = True

    def set_sync(self, last: bool) -> None:
        """Set whether the coming micro-batch is the step's last one, whose backward reduces the gradients."""
        self.require_backward_grad_sync = last

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self._alone or not torch.is_grad_enabled():
            # Evaluation communicates nothing, as ranks may have different numbers of batches.
            return self.module(*inputs, **kwargs)
        if "reducer" not in self.__dict__:
            raise RuntimeError("the model was called before its group was formed: call job.restore(state) first")
        return super().forward(*inputs, **kwargs)

    def train(self, mode: bool = True) -> ElasticDDP:
        torch.nn.Module.train(self, mode)
        return self

    def _sync_buffers(self) -> None:
        with self.rollback.not_counting():
            super()._sync_buffers()

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Register a hook as in torch. It may be called before there is a group, and holds for all later groups."""
        self._remember(DistributedDataParallel.register_comm_hook, state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        self._remember(DistributedDataParallel._register_builtin_comm_hook, comm_hook_type)

    @property
    def has_own_hook(self) -> bool:
        """Whether the script has registered a communication hook."""
        return bool(self._comm_hook_calls)

    @property
    def parameters_left_alone(self) -> Collection[str]:
        """Names of the parameters that the script has excluded from DDP."""
        return getattr(self.module, "_ddp_params_and_buffers_to_ignore", ())

    def check_hooks(self, objects: Iterable[object]) -> None:
        """Raise TypeError for a hook whose state newcomers would not receive; they receive `objects`.

        With PowerSGD's state, for example, a newcomer would send other messages than the other ranks, and abort them.
        """
        handed_over = {id(each) for each in objects}
        for _, (state, *hook) in self._comm_hook_calls:
            if hook and state is not None and id(state) not in handed_over:
                raise TypeError(
                    f"register_comm_hook(state, {getattr(hook[0], '__name__', hook[0])}): a newcomer would not have "
                    f"that state, of type {type(state).__name__}. Pass None, or an object with state_dict and "
                    "load_state_dict that job.state gets too, or use elastic.init(in_place=False)"
                )

    def _remember(self, register: Callable[..., None], *arguments: Any) -> None:
        if "reducer" in self.__dict__:
            register(self, *arguments)
        self._comm_hook_calls.append((register, arguments))

    def _init_options(self) -> dict[str, Any]:
        return {**self._options, **({"init_sync": False} if HAS_INIT_SYNC else {})}

    def _release(self) -> None:
        """Drop the reducer, even a half-built one, and remove its hooks from the parameters."""
        reducer = self.__dict__.pop("reducer", None)
        self.__dict__.pop("process_group", None)
        self.__dict__.pop("logger", None)
        if reducer is not None:
            reducer._remove_autograd_hooks()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("the wrapped model cannot be pickled or copied: use model.module, or model.state_dict()")


@contextmanager
def _without_collectives() -> Iterator[None]:
    """Run the constructor without communication.

    Verifying shapes and broadcasting parameters is not needed here and costs as much as handing the state over.
    """
    stays = {name: getattr(torch_ddp, name) for name in CONSTRUCTION_COLLECTIVES if not HAS_INIT_SYNC}
    for name in stays:
        setattr(torch_ddp, name, lambda *_args, **_kwargs: None)
    try:
        with warnings.catch_warnings():
            # torch 2.15 warns at each construction of an option that it renames.
            warnings.filterwarnings("ignore", message=".*`broadcast_buffers` is deprecated", category=FutureWarning)
            yield
    finally:
        for name, function in stays.items():
            setattr(torch_ddp, name, function)


def is_fsdp(module: Any) -> bool:
    """Whether `fully_shard` (FSDP2) was applied to the module or to a part of it."""
    kinds = _kinds("FSDPModule", "torch.distributed.fsdp", "torch.distributed._composable.fsdp")
    return any(isinstance(part, kinds) for part in module.modules())


def check_supported(module: Any, optimizers: Iterable[Any] = ()) -> None:
    """Refuse models that cannot change their group in place. Raises TypeError that names what to use instead."""
    for part in module.modules():
        if isinstance(part, torch.nn.SyncBatchNorm):
            raise TypeError(
                "SyncBatchNorm communicates in each forward, and ranks may have different numbers of micro-batches: "
                "use BatchNorm, whose statistics are those of a micro-batch, whatever the number of ranks"
            )
        if isinstance(part, _kinds("FullyShardedDataParallel", "torch.distributed.fsdp")):
            raise TypeError("FullyShardedDataParallel (FSDP1) cannot change its size: use fully_shard (FSDP2)")
        if isinstance(part, DistributedDataParallel):
            raise TypeError("the model is a DistributedDataParallel already: pass the bare module to job.wrap")
    sharded = is_fsdp(module)
    for name, parameter in module.named_parameters():
        if _is_parallel(parameter, sharded=sharded):
            raise TypeError(
                f"parameter {name} is split by tensor or pipeline parallelism, which cannot change its size: "
                "use data parallelism (job.wrap) or fully_shard (FSDP2) only"
            )
    for optimizer in optimizers:
        if isinstance(optimizer, _kinds("ZeroRedundancyOptimizer", "torch.distributed.optim")):
            raise TypeError(
                "ZeroRedundancyOptimizer keeps parts of the state on one rank only, which a lost rank takes along: "
                "use the optimizer itself, or fully_shard (FSDP2)"
            )


def _is_parallel(parameter: Any, *, sharded: bool) -> bool:
    """Whether it is a DTensor that FSDP2 alone would not have made; FSDP2 shards in one dimension of the mesh."""
    if not isinstance(parameter, _kinds("DTensor", "torch.distributed.tensor", "torch.distributed._tensor")):
        return False
    return not sharded or sum(placement.is_shard() for placement in parameter.placements) > 1


def _kinds(name: str, *modules: str) -> tuple[Any, ...]:
    """The class from the imported ones of these modules: only then can an object of it exist."""
    loaded = (getattr(sys.modules.get(module), name, None) for module in modules)
    return tuple(kind for kind in loaded if isinstance(kind, type))
