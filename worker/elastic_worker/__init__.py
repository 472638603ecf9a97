"""Runs inside the training pods. `contract` is shared with the operator; scripts call the names exported here.

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
    "DivergedError": "replicas",
    "HuggingFaceCallback": "huggingface",
    "LightningCallback": "lightning",
    "accumulation_steps": "trainers",
    "latest_checkpoint": "huggingface",
    "lightning_world": "lightning",
}
__all__ = [
    "CheckpointError",
    "DivergedError",
    "HuggingFaceCallback",
    "Job",
    "LightningCallback",
    "NotFormedError",
    "Sampler",
    "SamplerError",
    "State",
    "StateError",
    "StepError",
    "accumulation_steps",
    "init",
    "latest_checkpoint",
    "lightning_world",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.library.{_HOMES[name]}"), name)
