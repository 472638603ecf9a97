"""Tests with a group of one rank, in milliseconds, whether groups can change in place with the installed torch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist

from elastic_worker.library import groups, private, sockets
from elastic_worker.library.ddp import ElasticDDP
from elastic_worker.library.forming import GLOO, Formed, GroupError, Listener, Members, add_gloo, empty_group

NAME = "elastic-self-test"


def self_test() -> str:
    """Why changing groups in place does not work with this torch; "" if it does. Leaves nothing behind.

    Makes two groups of one rank the default in turn, with a wrapped model in both, unless there is a default group.
    """
    if lacks := private.lacking():
        return lacks
    tensor = torch.ones(2)  # outlives the groups: a gloo thread may still hold it
    try:
        _try(tensor)
    except Exception as error:  # noqa: BLE001  # any error of another version of torch is the answer
        return f"{type(error).__name__}: {error}"
    return ""


def _try(tensor: Any) -> None:
    first = _alone()
    first.group.allreduce([tensor]).wait()
    if dist.is_initialized():
        return
    try:
        groups.register(first)
        dist.all_reduce(tensor)
        seen = (dist.get_rank(), dist.get_world_size(), dist.get_backend(), dist.get_process_group_ranks(first.group))
        _try_model(first, _alone())
    finally:
        groups.unregister_all()
    if seen != (0, 1, GLOO, [0]):
        raise GroupError(f"as torch's default group it has rank, world size, backend and ranks {seen}")


def _try_model(first: Formed, second: Formed) -> None:
    """One wrapped model in one group after the other, with gradients for both of its parameters in each.

    Nothing is sent: a gloo thread may hold sent data for a moment longer, and the group's end would wait for it.
    """
    model = ElasticDDP(_small())
    model.register_comm_hook(None, _send_nothing)
    for formed in (first, second):
        groups.register(formed)
        model.regroup(formed)
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        gradients = [None if each.grad is None else each.grad.tolist() for each in model.parameters()]
        if gradients != [[[1.0, 1.0]], [1.0]]:
            raise GroupError(f"a model wrapped for one group after another has the gradients {gradients}")


def _send_nothing(_state, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # torch looks at annotations
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def _small() -> torch.nn.Module:
    """A model that is made without a random number, so that the script's random numbers do not change."""
    model = torch.nn.utils.skip_init(torch.nn.Linear, 2, 1)
    for each in model.parameters():
        torch.nn.init.zeros_(each)
    return model


def _alone() -> Formed:
    limit = timedelta(seconds=5)
    store, name = dist.PrefixStore(NAME, dist.HashStore()), NAME
    listener = Listener("127.0.0.1", 9)
    if listener.address is None:
        raise GroupError("gloo's listener was not found among this process's sockets")
    group = empty_group(store, GLOO, 0, 1, limit)
    members = Members(store, name, 0, 1, limit)
    add_gloo(group, members, listener.device, kinds=["cpu"])
    group._set_group_name(name)
    return Formed(GLOO, 0, 1, name, group, store, sockets.Mesh(listener.address, frozenset()), members.addresses)
