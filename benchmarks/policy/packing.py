"""Places pods on nodes: each on the fullest node with room, so that large blocks of GPUs stay free."""

from __future__ import annotations

from collections.abc import Sequence


def fullest(free: Sequence[int], gpus: int) -> int | None:
    """The node with the fewest sufficient free GPUs, the first of several; None if there is none."""
    return min((node for node, room in enumerate(free) if room >= gpus), key=lambda node: free[node], default=None)


def fits(free: Sequence[int], gpus: int, count: int) -> bool:
    """Whether there is room for `count` pods of `gpus` GPUs."""
    return sum([room // gpus for room in free]) >= count


def packed(free: Sequence[int], gpus: int, count: int) -> list[int] | None:
    """A node for each of `count` pods of `gpus` GPUs; None if they do not all fit."""
    if not fits(free, gpus, count):
        return None
    left, nodes = list(free), list[int]()
    for _ in range(count):
        node = fullest(left, gpus)
        assert node is not None, "pods of one size fit in any order"
        left[node] -= gpus
        nodes.append(node)
    return nodes
