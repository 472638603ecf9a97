"""The package in the training pods. The operator uses `contract`; scripts use the names exported here.

    import elastic_worker as elastic

Only these names import torch, when they are first used; `should_save` does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "should_save": "processes.saving",
    "init": "library.job",
    "Job": "library.job",
    "NotFormedError": "library.job",
    "Sampler": "library.sampler",
    "SamplerError": "library.sampler",
    "State": "library.state",
    "StateError": "library.state",
    "StepError": "library.step",
    "CheckpointError": "library.checkpoints",
    "DivergedError": "library.replicas",
    "HuggingFaceCallback": "library.huggingface",
    "LightningCallback": "library.lightning",
    "accumulation_steps": "library.trainers",
    "latest_checkpoint": "library.huggingface",
    "lightning_world": "library.lightning",
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
    "should_save",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
