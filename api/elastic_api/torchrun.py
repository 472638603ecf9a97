"""The variables that describe its group to torchrun, on a cluster and in exported jobs."""

from __future__ import annotations

from elastic_worker import contract

MAX_RESTARTS = 10
"""torchrun's own restarts per agent: a leaving pod costs every other agent one, a failing script costs all
agents one.
"""


def variables(
    *, address: str, port: str, world_size: str, nnodes: str, nproc: str, endpoint: str, run_id: str, conf: str
) -> dict[str, str]:
    """The variables for the meeting point, the number of agents, and the number of restarts. The values may be text for
    a shell.

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
