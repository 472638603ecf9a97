"""Which of this machine's GPUs a process may see: those of the user's own choice, if there is one."""

from __future__ import annotations

import os

VISIBLE = "CUDA_VISIBLE_DEVICES"


def chosen() -> list[str] | None:
    """As the user names them, by number or by UUID; None if it is not said."""
    named = os.environ.get(VISIBLE)
    return None if named is None else [card.strip() for card in named.split(",") if card.strip()]


def names(number: int) -> list[str]:
    """Names of that many cards: as the user chose them, else their numbers."""
    mine = chosen() or []
    return mine[:number] if len(mine) >= number else [str(index) for index in range(number)]
