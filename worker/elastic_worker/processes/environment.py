"""Environment variables that a process reads so early that a forked process keeps the warm parent's values."""

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
"""Prefixes of names that match EARLY but are read late, or are handled by after_fork.py."""


def of_parent(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a warm parent whose processes get `environ`: the same without the job's secret."""
    return {name: value for name, value in environ.items() if name != contract.ENV_TOKEN}


def early_differences(parent: Mapping[str, str], child: Mapping[str, str]) -> list[str]:
    """Names of early variables that differ, so that this parent cannot fork this child; sorted."""
    return sorted({name for name, _ in _early(parent) ^ _early(child)})


def _early(environ: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(name, value) for name, value in environ.items() if name.startswith(EARLY) and not name.startswith(LATE)}
