"""The number of pods that a group may have, as in torchrun's --nnodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastic_api.job import MAX_REPLICAS, JobSpec
from elastic_api.template import main_container
from elastic_worker.contract import ROLE_MASTER


def frozen_nnodes(spec: JobSpec) -> tuple[int, int]:
    """The fewest and most pods for the agents of a new incarnation; all of its pods have the same numbers (11).

    If the operator adds torchrun, only the operator limits the number of pods from above, so that maxReplicas can be
    raised while the job runs. A user's own command may use the numbers literally. Elastic mode does not use them.
    """
    most = MAX_REPLICAS if not spec.is_elastic and runs_torchrun(spec.template_of(ROLE_MASTER)) else spec.max_replicas
    return spec.minimum, most


def runs_torchrun(template: Mapping[str, Any]) -> bool:
    """Whether the main container only has a script and its arguments, and torchrun is added."""
    return not main_container(template).get("command")
