"""Which variables a process reads so early that a warm parent's answer to them would be wrong for its children."""

from __future__ import annotations

from collections.abc import Mapping

from .. import contract

EARLY = (
    "PYTHON",
    "LD_",
    "MALLOC_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
    "TORCH_",
    "PYTORCH_",
    "TORCHINDUCTOR_",
    "TORCHDYNAMO_",
)
LATE = ("PYTHONPATH", "TORCH_NCCL_")
"""Beginnings of names that are read late all the same, or that fresh.py takes care of."""


def of_parent(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for the warm parent of processes that get `environ`; none of them ever sees the job's secret."""
    return {name: value for name, value in environ.items() if name != contract.ENV_TOKEN}


def early_differences(parent: Mapping[str, str], child: Mapping[str, str]) -> list[str]:
    """Names of variables for whose sake a parent started in the one environment cannot fork for the other."""
    return sorted({name for name, _ in _early(parent) ^ _early(child)})


def _early(environ: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(name, value) for name, value in environ.items() if name.startswith(EARLY) and not name.startswith(LATE)}
