"""Chooses the cards of two ranks of NCCL: one each, or a single one if this NCCL lets them share it."""

import mmap
import os
from pathlib import Path

SHARES = "NCCL_MULTI_RANK_GPU_ENABLE"
"""With the value 1 several ranks may use one card; NCCL 2.30 has this variable, 2.20 does not."""


def nccl_library(tree):
    """The library beside the torch of this folder; None if it is elsewhere, as in images with their own."""
    return next(Path(tree).glob("nvidia/nccl*/lib/libnccl.so*"), None)


def knows_sharing(library):
    """Whether the library has the variable; otherwise it refuses two ranks on a card."""
    if library is None:
        return False
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(SHARES.encode()) >= 0


def for_two_ranks(count, library):
    """The cards' indices, of `count` cards; None if two ranks do not fit."""
    if count >= 2:
        return 0, 1
    return (0, 0) if count == 1 and os.environ.get(SHARES, "1") == "1" and knows_sharing(library) else None
