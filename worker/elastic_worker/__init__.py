"""The package in the training pods. The operator uses `contract`; scripts use the names exported here.

    import elastic_worker as elastic

Only these names import torch, when they are first used; `should_save` does not.

Words of the package, with torchelastic's word in brackets where it differs:

    launcher        the first process of a pod (agent)
    coordinator     the process in the master's pod that decides which pods train together (rendezvous handler)
    group           the training processes that train together, of all pods; the class
                    `launcher.worker_group.WorkerGroup` has those of one pod (worker group)
    generation      a group with its number and the order of its ranks (round of the rendezvous)
    part            the data of a generation that one pod needs
    membership      the pods that the operator lets train, as a list with a number; its JSON calls the number `wish`
    member          a pod as the coordinator knows it (participant; a pod that waits: wait list)
    epoch           the number of a master: a later master has a higher one. Not an epoch of the training data
    warm parent     the process that has imported torch, and from which training processes are forked (no word there)
    store           the process in which a group meets (TCPStore)
    change          from one group to the next: by a restart of the processes (re-rendezvous), or in place
    boundary        between two steps, where the processes of a group may switch to the next group
    align           to stop a group right after a checkpoint
    parked          of a group in place: it waits with its state in memory
    candidate       a process that is ready for a group that uses the library
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
