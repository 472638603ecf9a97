"""The variables that tell torchrun of its group, on a cluster and on what a job is exported to."""

from __future__ import annotations

from elastic_worker import contract

MAX_RESTARTS = 10
"""torchrun's own restarts per agent: a leaving pod costs every other agent one, a failing script costs all
agents one.
"""


def variables(
    *, address: str, port: str, world_size: str, nnodes: str, nproc: str, endpoint: str, run_id: str, conf: str
) -> dict[str, str]:
    """Where agents meet, how many, and how often they may start over. The values may be text for a shell.

    `nnodes` is as in `2:8`, `endpoint` as in `ADDRESS:PORT`. `conf` may be "": then torchrun's own defaults count.
    """
    return {
        contract.ENV_MASTER_ADDR: address,
        contract.ENV_MASTER_PORT: port,
        contract.ENV_WORLD_SIZE: world_size,
        contract.ENV_NNODES: nnodes,
        contract.ENV_NPROC_PER_NODE: nproc,
        contract.ENV_RDZV_BACKEND: "c10d",
        contract.ENV_RDZV_ENDPOINT: endpoint,
        contract.ENV_RDZV_ID: run_id,
        **({contract.ENV_RDZV_CONF: conf} if conf else {}),
        contract.ENV_MAX_RESTARTS: str(MAX_RESTARTS),
    }
