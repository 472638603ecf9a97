"""Counts the GPUs in amounts of resources: whole devices of all extended resources that count as GPUs. The setting
flavors[].resources names these resources (`settings.GpuFlavor`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def count_gpus(amounts: Mapping[str, int], gpu_resources: Sequence[str]) -> int:
    """The GPUs in these amounts, by name of the resource."""
    return sum([amounts.get(name, 0) for name in gpu_resources])


def gpus_by_resource(amounts: Mapping[str, int], gpu_resources: Sequence[str]) -> dict[str, int]:
    """The amounts of GPUs among these that are not zero."""
    return {name: amounts[name] for name in gpu_resources if amounts.get(name)}
