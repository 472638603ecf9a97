"""The place of a process, its group and rank, from the variables of our launcher, torchrun or srun."""

from __future__ import annotations

import os
from collections.abc import Mapping

from elastic_worker import contract
from elastic_worker.protocol.process_orders import GroupPlace


class SurroundingsError(RuntimeError):
    """The environment variables of the launcher do not fit together; the message names them."""


def set_environment(place: GroupPlace) -> None:
    """Set torchrun's variables, for libraries that read them later."""
    values = {
        "RANK": place.rank,
        "WORLD_SIZE": place.world,
        "GROUP_RANK": place.pod,
        "GROUP_WORLD_SIZE": place.pods,
        "ROLE_RANK": place.rank,
        "ROLE_WORLD_SIZE": place.world,
        "MASTER_ADDR": place.host,
        "MASTER_PORT": place.port,
        "TORCHELASTIC_RESTART_COUNT": place.generation,
        contract.ENV_GENERATION: place.generation,
        contract.ENV_MASTER_EPOCH: place.epoch,
    }
    os.environ.update({name: str(value) for name, value in values.items()})


def find(environ: Mapping[str, str]) -> GroupPlace:
    """Read the place from the variables of our launcher, torchrun or `srun`; without these, the process is alone.

    Under `srun`, MASTER_ADDR must be set (the first host of `scontrol show hostnames`), as for any torch script. Raises
    SurroundingsError.
    """
    if "RANK" in environ and "WORLD_SIZE" in environ:
        rank, world = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    elif "SLURM_PROCID" in environ and _number(environ, "SLURM_NTASKS", 1) > 1:
        rank, world = _number(environ, "SLURM_PROCID"), _number(environ, "SLURM_NTASKS")
    else:
        return GroupPlace(generation=1, rank=0, world=1, host="127.0.0.1", port=0)
    if not 0 <= rank < world:
        names = ("RANK", "WORLD_SIZE") if "RANK" in environ else ("SLURM_PROCID", "SLURM_NTASKS")
        raise SurroundingsError(f"{names[0]}={rank} does not fit {names[1]}={world}: ranks are 0 to {world - 1}")
    host = environ.get("MASTER_ADDR", "")
    if world > 1 and not host:
        raise SurroundingsError(f"{world} processes, but MASTER_ADDR is not set: set it to the host of rank 0")
    return GroupPlace(
        generation=_number(environ, contract.ENV_GENERATION, 1),
        rank=rank,
        world=world,
        host=host or "127.0.0.1",
        port=_number(environ, "MASTER_PORT", 29500),
        epoch=_number(environ, contract.ENV_MASTER_EPOCH, 0),
    )


def local_rank(environ: Mapping[str, str]) -> int:
    """The local rank: the index of this process among those of its pod or machine, from 0."""
    name = next((name for name in ("LOCAL_RANK", "SLURM_LOCALID") if name in environ), "")
    return _number(environ, name) if name else 0


def _number(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = environ.get(name, "")
    if not value and default is not None:
        return default
    try:
        return int(value)
    except ValueError:
        raise SurroundingsError(f"{name} must be a whole number, not {value!r}") from None
