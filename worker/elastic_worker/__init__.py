"""What runs inside the training pods. `contract` is shared with the operator; scripts call what is named here.

    import elastic_worker as elastic

Nothing but those names imports torch, and only when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "init": "job",
    "Job": "job",
    "NotFormedError": "job",
    "Sampler": "sampler",
    "SamplerError": "sampler",
    "State": "state",
    "StateError": "state",
    "StepError": "step",
    "CheckpointError": "checkpoints",
}
__all__ = [
    "CheckpointError",
    "Job",
    "NotFormedError",
    "Sampler",
    "SamplerError",
    "State",
    "StateError",
    "StepError",
    "init",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.library.{_HOMES[name]}"), name)
