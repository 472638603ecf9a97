"""Seeds random numbers by the micro-batch, not by the rank that runs it.

torch.manual_seed takes 50 to 80 us, since it queries every kind of device; this takes some 7 us.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

NUMPY_BITS = 0xFFFF_FFFF


def stable_hash(purpose: str, *numbers: int) -> int:
    """A hash of 63 bits, the same in every process and on every machine."""
    text = "/".join((purpose, *map(str, numbers)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_for(micro: Any) -> None:
    """Seed the generators of torch, `random` and, if imported, NumPy with `micro.seed`, for dropout and the like.

    The generators of GPUs are set only if CUDA is in use already; CUDA is not initialised for them.
    """
    set_seeds(micro.seed)


def set_seeds(seed: int) -> None:
    """Seed all generators as `seed_for` does, with a seed of 63 bits."""
    set_cpu_seeds(seed)
    if torch.cuda.is_initialized():
        for generator in torch.cuda.default_generators:
            generator.manual_seed(seed)


def set_cpu_seeds(seed: int) -> None:
    """Seed the CPU's generators with a seed of 63 bits. torch's and NumPy's use the lower 32 of them."""
    torch.default_generator.manual_seed(seed)
    numpy_random = _numpy_random()
    if numpy_random is not None:
        numpy_random.seed(seed & NUMPY_BITS)
    random.seed(seed)


@contextmanager
def kept_on_cpu() -> Iterator[None]:
    """Restore the CPU's generators at the end of this context, whatever is drawn or set within."""
    of_torch, of_python = torch.default_generator.get_state(), random.getstate()
    numpy_random = _numpy_random()
    of_numpy = numpy_random.get_state() if numpy_random is not None else None
    try:
        yield
    finally:
        torch.default_generator.set_state(of_torch)
        random.setstate(of_python)
        if numpy_random is not None:
            numpy_random.set_state(of_numpy)


def _numpy_random() -> Any:
    """`numpy.random`, None if NumPy is not imported. NumPy 2 imports it at its first use only."""
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random
