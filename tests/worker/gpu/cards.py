"""On which cards two ranks of NCCL can be: one each, or both on one where this NCCL lets them share it."""

import mmap
import os
from pathlib import Path

SHARES = "NCCL_MULTI_RANK_GPU_ENABLE"
"""At 1 several ranks may be on a card; NCCL 2.30 knows it, 2.20 does not."""


def nccl_library(tree):
    """The one beside the torch of this folder; None where it is elsewhere, as in images that bring their own."""
    return next(Path(tree).glob("nvidia/nccl*/lib/libnccl.so*"), None)


def knows_sharing(library):
    """Whether it has the variable: it refuses two ranks on a card otherwise."""
    if library is None:
        return False
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(SHARES.encode()) >= 0


def for_two_ranks(count, library):
    """Their indices, with `count` cards there; None where two ranks have no place."""
    if count >= 2:
        return 0, 1
    return (0, 0) if count == 1 and os.environ.get(SHARES, "1") == "1" and knows_sharing(library) else None
