"""The GPUs of this machine that a process may see: the user's choice, if there is one."""

from __future__ import annotations

import os

VISIBLE = "CUDA_VISIBLE_DEVICES"


def chosen() -> list[str] | None:
    """The user's choice, by number or by UUID; None without one."""
    named = os.environ.get(VISIBLE)
    return None if named is None else [card.strip() for card in named.split(",") if card.strip()]


def names(number: int) -> list[str]:
    """The names of that many cards: the user's choice, else their numbers."""
    mine = chosen() or []
    return mine[:number] if len(mine) >= number else [str(index) for index in range(number)]
